//! How a message writes a choice of a configuration: as a recipe spells it.

use burn::config::{Config, config_to_json};

/// A choice as a recipe spells it: `"alibi"`, or `{ kind = "shaw", max_distance = 16 }`.
pub(crate) fn spelled<C: Config>(choice: &C) -> String {
    let line = |line: &str| match line.trim().split_once("\": ") {
        Some((key, value)) => format!("{} = {value}", key.trim_start_matches('"')),
        None => line.trim().into(),
    };
    let table = config_to_json(choice).lines().map(line).collect::<Vec<_>>().join(" ");
    match table.strip_prefix("{ kind = ").and_then(|rest| rest.strip_suffix(" }")) {
        Some(kind) if !kind.contains('=') => kind.into(),
        _ => table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{AttentionMechanism, ScoreScale};
    use crate::position::PositionConfig;

    #[test]
    fn choices_are_spelled_as_in_a_recipe() {
        assert_eq!(spelled(&PositionConfig::Alibi), "\"alibi\"");
        assert_eq!(spelled(&PositionConfig::Shaw { max_distance: 2 }), "{ kind = \"shaw\", max_distance = 2 }");
        assert_eq!(spelled(&ScoreScale::InverseSqrt), "\"inverse_sqrt\"");
        assert_eq!(spelled(&ScoreScale::Constant(0.5)), "{ constant = 0.5 }");
        assert_eq!(spelled(&AttentionMechanism::Performer { features: 8 }), "{ kind = \"performer\", features = 8 }");
    }
}
