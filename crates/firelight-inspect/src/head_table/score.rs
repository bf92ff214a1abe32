//! The scores of heads: what each is, and where it comes from.

/// What is said of a head by a number; the functions of [`heads`](firelight_core::inspect::heads), what it is in a language, and two kinds of
/// importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadScore {
    /// The mean entropy of a row, in nats.
    Entropy,
    /// The mean weight of the previous token.
    Previous,
    /// The mean weight of the next token.
    Next,
    /// The mean weight of the first token.
    First,
    /// The mean weight of the special tokens together.
    Separator,
    /// The mean weight of earlier tokens that are the same.
    Same,
    /// The mean weight of the tokens behind earlier ones that are the same.
    Induction,
    /// By how much the loss rises, in nats a token, when the head is zeroed.
    Ablation,
    /// The size of the gradient of the loss by a gate of the head.
    Gradient,
    /// The mean weight of the rarest tokens of a text together, of a query's own not; how rare one is, all texts together say. None where the
    /// tokens of a text are equally frequent. Source: Voita et al. 2019, "Rare words" (<https://arxiv.org/abs/1905.09418>), who count how
    /// often the largest weight is that of the rarest tokens.
    Rare,
    /// The share of a text's distinct tokens, of at most 256 of them, that are among the five highest logits of the head's output when it attends to that token alone, by
    /// [`copying`](fn@firelight_core::inspect::copying); of language models. Source: Elhage et al. 2021, "Copying as a simple property of the OV
    /// circuit" (<https://transformer-circuits.pub/2021/framework/index.html>).
    Copying,
    /// The correlation, within the rows, of the weight of a token with the cosine of the embeddings of both, before positions join; special
    /// tokens and tokens of the same kind are left out. From -1 to 1. None where the weights of a row are alike.
    Semantic,
    /// The mean weight from words to their syntactic heads, or back, whichever is larger, over the relations of sentences that are
    /// [given with their syntax](crate::read_conllu). Sources: Voita et al. 2019, "Syntactic heads"; Clark et al. 2019, §4.2
    /// (<https://arxiv.org/abs/1906.04341>), who count largest weights. Differs from them: punctuation is left out.
    Syntactic,
    /// The mean weight from mentions to what they refer to, in [pairs that are given](crate::read_pairs). Source: Clark et al. 2019, §4.3, who
    /// count largest weights.
    Coreference,
}

impl HeadScore {
    /// All scores.
    pub const ALL: [Self; 14] = [
        Self::Entropy,
        Self::Previous,
        Self::Next,
        Self::First,
        Self::Separator,
        Self::Same,
        Self::Induction,
        Self::Ablation,
        Self::Gradient,
        Self::Rare,
        Self::Copying,
        Self::Semantic,
        Self::Syntactic,
        Self::Coreference,
    ];

    /// Its name in a command and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entropy => "entropy",
            Self::Previous => "previous",
            Self::Next => "next",
            Self::First => "first",
            Self::Separator => "separator",
            Self::Same => "same",
            Self::Induction => "induction",
            Self::Ablation => "ablation",
            Self::Gradient => "gradient",
            Self::Rare => "rare",
            Self::Copying => "copying",
            Self::Semantic => "semantic",
            Self::Syntactic => "syntactic",
            Self::Coreference => "coreference",
        }
    }

    /// Its name above a column of eight characters.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Previous => "prev",
            Self::Separator => "sep",
            Self::Induction => "induct",
            Self::Ablation => "ablate",
            Self::Gradient => "grad",
            Self::Copying => "copy",
            Self::Semantic => "semant",
            Self::Syntactic => "syntax",
            Self::Coreference => "coref",
            other => other.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_score_is_its_place_in_the_list_and_its_heading_fits_a_column() {
        for (place, score) in HeadScore::ALL.into_iter().enumerate() {
            assert_eq!(score as usize, place, "{}", score.name());
            assert!(score.heading().len() < 8, "{}", score.name());
        }
    }
}
