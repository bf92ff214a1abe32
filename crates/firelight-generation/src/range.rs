//! Ranges of options: each check returns the sentence for [`InvalidOptions`](crate::GenerationError::InvalidOptions), or `None` if the
//! value is fine.

/// A finite number greater than 0; `hint` says what else would do.
pub(crate) fn positive(name: &str, value: f64, hint: &str) -> Option<String> {
    let fits = value.is_finite() && value > 0.0;
    (!fits).then(|| format!("{name} is {value}, expected a finite number greater than 0{hint}"))
}

/// A number from 0 to 1.
pub(crate) fn share(name: &str, value: f64) -> Option<String> {
    (!(0.0..=1.0).contains(&value)).then(|| format!("{name} is {value}, expected a number from 0 to 1"))
}
