//! The name of the parameter that a visitor stands at, as in the fixtures.

/// The path of a parameter: without the names of enum variants, and without fields named `projection`, above all the choice between
/// fused and separate ones.
#[derive(Default)]
pub struct ParameterPath(Vec<String>);

impl ParameterPath {
    /// Goes down to the field `name` of a module.
    pub fn enter(&mut self, name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.0.push(name.to_string());
        }
    }

    /// Leaves the module entered last.
    pub fn exit(&mut self, container: &str) {
        if !container.starts_with("Enum:") {
            self.0.pop();
        }
    }

    /// `blocks.0.attention.query.weight`.
    pub fn key(&self) -> String {
        self.0.iter().filter(|name| *name != "projection").map(String::as_str).collect::<Vec<_>>().join(".")
    }
}
