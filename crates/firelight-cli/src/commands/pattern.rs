//! What a query sees, by a name such as `window:256`: for `firelight bench attention` and `firelight visualize mask`.

use firelight::kernels::{PairRule, RandomBlocks};
use std::{fmt, str::FromStr};

/// Tokens of a random block, and the seed that draws it.
const BLOCK: (usize, u64) = (64, 0);

/// A rule under the name that it was asked for by.
#[derive(Clone)]
pub(super) struct Pattern {
    name: String,
    pub(super) rule: PairRule,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, numbers) = text.split_once(':').map_or((text, None), |(kind, numbers)| (kind, Some(numbers)));
        let numbers: Result<Vec<usize>, _> =
            numbers.into_iter().flat_map(|all| all.split(',')).map(str::parse).collect();
        let rule = match (kind, numbers.unwrap_or_default().as_slice()) {
            ("causal", []) if text == "causal" => PairRule::Causal,
            ("window", &[before]) => PairRule::window(before, 0),
            ("around", &[side]) => PairRule::window(side, side),
            ("chunks", &[size]) if size > 0 => PairRule::Chunks { size },
            ("strided", &[stride]) if stride > 0 => PairRule::strided(stride),
            ("local_global", &[side, global]) => PairRule::local_global(side, global),
            ("bigbird", &[side, global, count]) => {
                PairRule::big_bird(side, global, RandomBlocks { count, size: BLOCK.0, seed: BLOCK.1 })
            }
            _ => return Err(EXPECTED.into()),
        };
        Ok(Self { name: text.into(), rule })
    }
}

const EXPECTED: &str =
    "expected causal, window:N, around:N, chunks:N, strided:N, local_global:N,G or bigbird:N,G,R, as window:256";

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(text: &str) -> String {
        text.parse::<Pattern>().unwrap_or_else(|e| panic!("{text}: {e}")).rule.grid(0, 4)
    }

    #[test]
    fn patterns_are_the_rules_of_their_names() {
        assert_eq!(grid("causal"), "#...\n##..\n###.\n####\n");
        assert_eq!(grid("window:1"), "#...\n##..\n.##.\n..##\n");
        assert_eq!(grid("around:1"), "##..\n###.\n.###\n..##\n");
        assert_eq!(grid("chunks:3"), "###.\n###.\n###.\n...#\n");
        assert_eq!(grid("strided:2"), "###.\n####\n####\n.###\n");
        assert_eq!(grid("local_global:0,1"), "####\n##..\n#.#.\n#..#\n");
        assert_eq!(grid("bigbird:0,1,0"), grid("local_global:0,1"));
        assert_eq!(grid("bigbird:0,0,1"), "#...\n.#..\n..#.\n...#\n"); // All in one block, which is not drawn.
    }

    #[test]
    fn other_words_and_numbers_are_refused() {
        for text in [
            "",
            "causal:1",
            "causal:",
            "window",
            "window:",
            "window:a",
            "window:1,2",
            "chunks:0",
            "strided:0",
            "wide:3",
        ] {
            assert!(text.parse::<Pattern>().is_err_and(|e| e.contains("around:N")), "{text}");
        }
    }
}
