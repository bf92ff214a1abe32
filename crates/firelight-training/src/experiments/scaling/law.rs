//! The law itself: what it says of a size, and which sizes a budget is best spent on.

use std::fmt;

use serde::Serialize;

/// `E + A / N^alpha + B / D^beta`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScalingLaw {
    /// `E`, the loss that no size goes below.
    pub irreducible: f64,
    /// `A` and `alpha`, of the parameters.
    pub parameters: PowerTerm,
    /// `B` and `beta`, of the tokens, where they were varied.
    pub tokens: Option<PowerTerm>,
}

/// `coefficient / size^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PowerTerm {
    /// `A` or `B`.
    pub coefficient: f64,
    /// `alpha` or `beta`.
    pub exponent: f64,
}

/// What a budget of arithmetic is best spent on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComputeOptimum {
    /// The budget, in floating point operations.
    pub flops: f64,
    /// Parameters of the model.
    pub parameters: f64,
    /// Tokens that it is trained on.
    pub tokens: f64,
    /// The loss that the law says of it.
    pub loss: f64,
}

impl PowerTerm {
    /// `coefficient / size^exponent`.
    pub fn at(&self, size: f64) -> f64 {
        self.coefficient * size.powf(-self.exponent)
    }
}

impl ScalingLaw {
    /// The loss of a model of so many parameters after so many tokens.
    pub fn loss(&self, parameters: f64, tokens: f64) -> f64 {
        self.irreducible + self.parameters.at(parameters) + self.tokens.map_or(0.0, |term| term.at(tokens))
    }

    /// The sizes of the lowest loss that cost `flops` operations, where a token costs `flops_per_parameter` of them for each parameter, about
    /// 6 in large models: `N = G (C/k)^(beta / (alpha + beta))` and `D = C / (k N)`, with `G = (alpha A / (beta B))^(1 / (alpha + beta))`
    /// (Hoffmann et al. 2022, eq. 4). None without a term for each.
    ///
    /// # Example
    ///
    /// ```
    /// use firelight_training::experiments::{PowerTerm, ScalingLaw};
    ///
    /// // The law of Hoffmann et al. 2022, appendix D, and the budget of Gopher.
    /// let parameters = PowerTerm { coefficient: 406.4, exponent: 0.34 };
    /// let tokens = Some(PowerTerm { coefficient: 410.7, exponent: 0.28 });
    /// let law = ScalingLaw { irreducible: 1.69, parameters, tokens };
    /// let best = law.optimum(5.76e23, 6.0).unwrap();
    /// assert!(best.parameters > 30e9 && best.parameters < 40e9);
    /// ```
    pub fn optimum(&self, flops: f64, flops_per_parameter: f64) -> Option<ComputeOptimum> {
        let (PowerTerm { coefficient: a, exponent: alpha }, term) = (self.parameters, self.tokens?);
        let PowerTerm { coefficient: b, exponent: beta } = term;
        let pairs = flops / flops_per_parameter;
        if !(a > 0.0 && b > 0.0 && pairs > 0.0) {
            return None;
        }
        let balance = (alpha * a / (beta * b)).powf(1.0 / (alpha + beta));
        let parameters = balance * pairs.powf(beta / (alpha + beta));
        let tokens = pairs / parameters;
        Some(ComputeOptimum { flops, parameters, tokens, loss: self.loss(parameters, tokens) })
    }

    /// Its numbers by name.
    pub(super) fn numbers(&self) -> Vec<(&'static str, f64)> {
        let PowerTerm { coefficient, exponent } = self.parameters;
        let own = [("E", self.irreducible), ("A", coefficient), ("alpha", exponent)];
        let tokens = self.tokens.map(|term| [("B", term.coefficient), ("beta", term.exponent)]);
        own.into_iter().chain(tokens.into_iter().flatten()).collect()
    }
}

impl fmt::Display for ScalingLaw {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let PowerTerm { coefficient, exponent } = self.parameters;
        write!(f, "L = {:.4} + {coefficient:.4} / N^{exponent:.4}", self.irreducible)?;
        let Some(PowerTerm { coefficient, exponent }) = self.tokens else { return Ok(()) };
        write!(f, " + {coefficient:.4} / D^{exponent:.4}")
    }
}
