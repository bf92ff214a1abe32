//! What a model must be able to do before it is worth training. A model that fails wastes the hours that follow.

use std::fmt;

/// One property of a model, and whether it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What must hold.
    pub property: &'static str,
    /// What was measured.
    pub found: f64,
    /// The most that is allowed.
    pub limit: f64,
}

impl Check {
    /// Whether the property holds.
    pub fn holds(&self) -> bool {
        self.found <= self.limit
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let verdict = if self.holds() { "holds" } else { "FAILS" };
        write!(f, "{} {verdict}: {:.2e}, at most {:.2e}", self.property, self.found, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_holds_up_to_its_limit_and_no_number_is_above_all() {
        let check = |found| Check { property: "the first loss is ln V", found, limit: 0.5 };
        assert!(check(0.5).holds() && !check(0.51).holds() && !check(f64::NAN).holds());
        assert_eq!(check(0.25).to_string(), "the first loss is ln V holds: 2.50e-1, at most 5.00e-1");
    }
}
