//! JSON schemas for the tests, from a generator with a seed.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

/// The schema of a seed.
pub(super) fn schema(seed: u64) -> Value {
    let mut generator = Generator(ChaCha8Rng::seed_from_u64(seed));
    let mut schema = generator.any(3);
    let leaf = generator.scalar();
    if let Value::Object(schema) = &mut schema {
        schema.insert(
            "$defs".into(),
            json!({"leaf": leaf, "list": {
                "type": "object", "properties": {"value": {"$ref": "#/$defs/leaf"}, "next": {"$ref": "#/$defs/list"}},
                "required": ["value"], "additionalProperties": false,
            }}),
        );
    }
    schema
}

struct Generator(ChaCha8Rng);

impl Generator {
    /// A number below another one.
    fn below(&mut self, limit: i64) -> i64 {
        (self.0.next_u64() >> 1) as i64 % limit
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    fn any(&mut self, depth: i64) -> Value {
        match self.below(if depth > 0 { 9 } else { 4 }) {
            0..=3 => self.scalar(),
            4 | 5 => self.object(depth),
            6 => self.array(depth),
            7 => {
                let options: Vec<Value> = (0..1 + self.below(3)).map(|_| self.any(depth - 1)).collect();
                json!({"anyOf": options})
            }
            _ => self.other(),
        }
    }

    fn other(&mut self) -> Value {
        match self.below(3) {
            0 => json!({"$ref": "#/$defs/leaf"}),
            1 => json!({"$ref": "#/$defs/list"}),
            _ => {
                let (integer, least) = (self.number("integer"), self.below(20));
                json!({"allOf": [integer, {"minimum": least - 30}]})
            }
        }
    }

    fn scalar(&mut self) -> Value {
        match self.below(9) {
            0 => json!({"type": "null"}),
            1 => json!({"type": "boolean"}),
            2 => self.number("integer"),
            3 => self.number("number"),
            4 | 5 => self.string(),
            6 => json!({"const": self.constant()}),
            7 => {
                let constants: Vec<Value> = (0..1 + self.below(4)).map(|_| self.constant()).collect();
                json!({"enum": constants})
            }
            _ => json!({"type": ["null", "string", "integer"]}),
        }
    }

    fn constant(&mut self) -> Value {
        match self.below(6) {
            0 => json!(null),
            1 => json!(self.below(2000) - 1000),
            2 => json!("a \"quoted\"\\\n\u{e9}\u{1f600} text"),
            3 => json!([self.below(9), "x"]),
            4 => json!({"k": self.below(9)}),
            _ => json!(format!("word{}", self.below(90))),
        }
    }

    fn number(&mut self, kind: &str) -> Value {
        let mut schema = Map::from_iter([("type".to_string(), json!(kind))]);
        let least = self.below(400) - 200;
        // A validator divides in f64, so that multiples have to be small.
        let is_multiple = self.below(4) == 0;
        if is_multiple || self.chance() {
            schema.insert(["minimum", "exclusiveMinimum"][self.below(2) as usize].into(), json!(least));
        }
        if is_multiple || self.chance() {
            schema.insert(
                ["maximum", "exclusiveMaximum"][self.below(2) as usize].into(),
                json!(least + 20 + self.below(90)),
            );
        }
        if is_multiple {
            schema.insert("multipleOf".into(), json!(1 + self.below(7)));
        }
        schema.into()
    }

    fn string(&mut self) -> Value {
        let least = self.below(6);
        match self.below(6) {
            0 => json!({"type": "string"}),
            1 => json!({"type": "string", "minLength": least}),
            2 => json!({"type": "string", "maxLength": least}),
            3 => json!({"type": "string", "minLength": least, "maxLength": least + self.below(5)}),
            4 => {
                let patterns =
                    ["^[a-z]{2,4}[0-9]*$", "^(foo|ba[rz])+$", "[A-Z]", "^\\d{3}-\\d{4}$", "^\u{e9}+$", "^[^\"]{3}$"];
                json!({"type": "string", "pattern": patterns[self.below(patterns.len() as i64) as usize]})
            }
            _ => {
                let formats = ["date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "hostname"];
                // A validator limits the parts of addresses.
                json!({"type": "string", "format": formats[self.below(formats.len() as i64) as usize], "maxLength": 50})
            }
        }
    }

    fn object(&mut self, depth: i64) -> Value {
        let names = ["a", "b b", "\u{e9}\"c", "d\\", "length"];
        let count = self.below(5) as usize;
        let properties: Map<String, Value> =
            names[..count].iter().map(|name| (name.to_string(), self.any(depth - 1))).collect();
        let required: Vec<&str> = names[..count].iter().copied().filter(|_| self.chance()).collect();
        let additional = match self.below(4) {
            0 => json!(true),
            1 => self.scalar(),
            _ => json!(false),
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": additional})
    }

    fn array(&mut self, depth: i64) -> Value {
        let mut schema = Map::from_iter([("type".to_string(), json!("array"))]);
        if self.chance() {
            schema.insert("items".into(), self.any(depth - 1));
        }
        if self.below(3) == 0 {
            schema.insert("prefixItems".into(), json!([self.scalar(), self.any(depth - 1)]));
        }
        let least = self.below(4);
        if self.chance() {
            schema.insert("minItems".into(), json!(least));
        }
        if self.chance() {
            schema.insert("maxItems".into(), json!(least + self.below(4)));
        }
        schema.into()
    }
}
