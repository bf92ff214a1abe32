//! JSON schemas for the tests, from a generator with a seed, and the reader of what is written by them.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

/// How many digits are read of each part of a number, and of its exponent: no more than `f64` holds, and more than keywords tell apart.
const DIGITS: usize = 200;
const EXPONENT: usize = 2;

/// The value of a text. JSON sets no limit to numbers, but `f64` does, so that further digits of a long one are left out.
pub(super) fn read(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(&with_short_numbers(text))
}

fn with_short_numbers(text: &str) -> String {
    let (mut is_string, mut is_escaped, mut left) = (false, false, DIGITS);
    let is_kept = |character: &char| {
        is_string ^= *character == '"' && !is_escaped;
        is_escaped = *character == '\\' && !is_escaped;
        let is_digit = character.is_ascii_digit() && !is_string;
        let is_kept = !is_digit || left > 0;
        left = match character {
            'e' | 'E' => EXPONENT,
            '+' | '-' => left,
            _ if is_digit => left.saturating_sub(1),
            _ => DIGITS,
        };
        is_kept
    };
    text.chars().filter(is_kept).collect()
}

/// The schema of a seed, one in four of draft 7.
pub(super) fn schema(seed: u64) -> Value {
    let mut generator = Generator { random: ChaCha8Rng::seed_from_u64(seed), is_draft_7: seed % 4 == 3 };
    let mut schema = generator.any(3);
    let leaf = generator.scalar();
    if let Value::Object(schema) = &mut schema {
        if generator.is_draft_7 {
            schema.insert("$schema".into(), json!("http://json-schema.org/draft-07/schema#"));
        }
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

struct Generator {
    random: ChaCha8Rng,
    is_draft_7: bool,
}

impl Generator {
    /// A number below another one.
    fn below(&mut self, limit: i64) -> i64 {
        (self.random.next_u64() >> 1) as i64 % limit
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    fn any(&mut self, depth: i64) -> Value {
        match self.below(if depth > 0 { 10 } else { 4 }) {
            0..=3 => self.scalar(),
            4 | 5 => self.object(depth),
            6 => self.array(depth),
            7 => {
                let options: Vec<Value> = (0..1 + self.below(3)).map(|_| self.any(depth - 1)).collect();
                json!({"anyOf": options})
            }
            8 => self.one_of(depth),
            _ => self.other(),
        }
    }

    /// Options that exclude each other by their types or by a constant.
    fn one_of(&mut self, depth: i64) -> Value {
        let options = match self.chance() {
            true => vec![self.string(), self.number("number"), self.array(depth - 1), json!({"type": "boolean"})],
            false => ["a", "b", "c"].map(|tag| self.tagged(tag, depth)).to_vec(),
        };
        let count = 1 + self.below(options.len() as i64) as usize;
        json!({"oneOf": options[..count]})
    }

    fn tagged(&mut self, tag: &str, depth: i64) -> Value {
        let value = self.any(depth - 1);
        json!({
            "type": "object", "properties": {"kind": {"const": tag}, "value": value},
            "required": ["kind"], "additionalProperties": false,
        })
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
        match self.below(8) {
            0 => json!({"type": "string"}),
            1 => json!({"type": "string", "minLength": least}),
            2 => json!({"type": "string", "maxLength": least}),
            3 => json!({"type": "string", "minLength": least, "maxLength": least + self.below(5)}),
            4 => {
                let patterns =
                    ["^[a-z]{2,4}[0-9]*$", "^(foo|ba[rz])+$", "[A-Z]", "^\\d{3}-\\d{4}$", "^\u{e9}+$", "^[^\"]{3}$"];
                json!({"type": "string", "pattern": patterns[self.below(patterns.len() as i64) as usize]})
            }
            _ => self.formatted(),
        }
    }

    /// A validator limits the parts of addresses, and where hyphens may stand in them, and knows leap years and leap seconds. The shape does not.
    fn formatted(&mut self) -> Value {
        let formats = [
            ("date", "^[0-9-]{8}[01]"),
            ("time", "^[0-9:]{6}[0-5]"),
            ("date-time", "^[0-9-]{8}[01][0-9][Tt][0-9:]{6}[0-5]"),
            ("duration", ""),
            ("email", "@[^-]+$"),
            ("hostname", "^[^-]+$"),
            ("ipv4", ""),
            ("ipv6", ""),
            ("uri", ""),
            ("uuid", ""),
        ];
        let (format, pattern) = formats[self.below(formats.len() as i64) as usize];
        let mut schema = json!({"type": "string", "format": format, "maxLength": 50});
        if !pattern.is_empty() {
            schema["pattern"] = json!(pattern);
        }
        schema
    }

    fn object(&mut self, depth: i64) -> Value {
        match self.below(4) {
            0 => self.patterned(depth),
            1 => self.counted(depth),
            _ => self.named(depth),
        }
    }

    /// Names by patterns that have none in common.
    fn patterned(&mut self, depth: i64) -> Value {
        let (letters, digits, additional) = (self.any(depth - 1), self.scalar(), self.additional());
        let mut schema = json!({
            "type": "object", "patternProperties": {"^n_[a-z]$": letters, "^[0-9]{2}$": digits}, "additionalProperties": additional,
        });
        if self.chance() {
            schema["properties"] = json!({"id": self.scalar()});
            schema["required"] = json!(["id"]);
            schema["minProperties"] = json!(1 + self.below(2));
        }
        if self.chance() {
            schema["maxProperties"] = json!(2 + self.below(3));
        }
        schema
    }

    /// A number of properties of which all are required, or at least one or at most one of those that are not.
    fn counted(&mut self, depth: i64) -> Value {
        let names = ["a", "b b", "length"];
        let properties: Map<String, Value> = names.iter().map(|name| (name.to_string(), self.any(depth - 1))).collect();
        let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
        match self.below(3) {
            0 => {
                let least = self.below(5);
                schema["required"] = json!(names);
                schema["additionalProperties"] = self.scalar();
                schema["minProperties"] = json!(least);
                schema["maxProperties"] = json!(least.max(3) + self.below(2));
            }
            1 => schema["minProperties"] = json!(1),
            _ => schema["maxProperties"] = json!(1),
        }
        schema
    }

    fn named(&mut self, depth: i64) -> Value {
        let names = ["a", "b b", "\u{e9}\"c", "d\\", "length"];
        let count = self.below(5) as usize;
        let properties: Map<String, Value> =
            names[..count].iter().map(|name| (name.to_string(), self.any(depth - 1))).collect();
        let required: Vec<&str> = names[..count].iter().copied().filter(|_| self.chance()).collect();
        let additional = self.additional();
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": additional})
    }

    fn additional(&mut self) -> Value {
        match self.below(4) {
            0 => json!(true),
            1 => self.scalar(),
            _ => json!(false),
        }
    }

    fn array(&mut self, depth: i64) -> Value {
        let mut schema = Map::from_iter([("type".to_string(), json!("array"))]);
        let has_first = self.chance();
        let (first, others) = match (self.is_draft_7, has_first) {
            (true, true) => ("items", "additionalItems"),
            _ => ("prefixItems", "items"),
        };
        if self.chance() {
            schema.insert(others.into(), self.any(depth - 1));
        }
        if has_first {
            schema.insert(first.into(), json!([self.scalar(), self.any(depth - 1)]));
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
