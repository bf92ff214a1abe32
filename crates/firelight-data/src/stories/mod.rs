//! A generator of small English stories, so that a language model can be trained without a file: `firelight train` alone
//! uses it, and so do the examples and tests. The stories follow eight plots over the words of a nursery book; they are
//! plain ASCII, and regular enough that a small model learns to write readable ones in minutes.

mod cast;
mod plots;
mod words;

use crate::dice::Dice;
use cast::Cast;
use plots::PLOTS;

/// The most bytes that are generated: they lie in memory.
const MOST: usize = 1_000_000_000;

/// Says what is wrong with `data.stories` of a recipe.
pub fn check_stories(length: Option<usize>) -> Option<String> {
    length.filter(|length| *length > MOST).map(|length| format!("data.stories = {length} must be at most {MOST}"))
}

/// Writes stories until there are at least `length` bytes of them, one a paragraph, with an empty line after each.
///
/// One seed gives one text on every platform, and a longer text begins with the shorter one.
pub fn stories(seed: u64, length: usize) -> String {
    let mut dice = Dice::new(seed);
    let mut text = String::new();
    while text.len() < length {
        text.push_str(&story(&mut dice));
        text.push_str("\n\n");
    }
    text
}

/// Tells one story: a plot, and for each of its steps one of the sentences that fit there.
fn story(dice: &mut Dice) -> String {
    let plot = dice.pick(PLOTS);
    let cast = Cast::choose(dice);
    let sentences: Vec<String> = plot.iter().map(|step| cast.fill(dice.pick(step))).collect();
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_seed_always_tells_the_same_story() {
        assert_eq!(
            stories(42, 1),
            "Ivy was a shy bear who lived on a farm near the village. Her best friend was Pearl, a quiet goose. It was a \
             windy morning. Ivy looked for her blue scarf, but it was gone. She looked under the bed and behind the door, \
             but it was not there. \"I will help you,\" said Pearl. \"Two can see more than one.\" They ran to the field \
             and looked at every stone. Then Ivy saw something under a bush. It was the blue scarf! \"Thank you, Pearl,\" \
             said Ivy. \"You are a true friend.\" Then they went home together and ate a bowl of berries.\n\n"
        );
        assert!(stories(42, 5_000).starts_with(&stories(42, 3_000)));
        assert_ne!(stories(42, 500), stories(43, 500));
        assert_eq!(stories(42, 0), "");
    }

    #[test]
    fn stories_are_plain_sentences() {
        let text = stories(1, 200_000);
        assert!((200_000..201_500).contains(&text.len()));
        assert!(text.is_ascii() && text.ends_with("\n\n"));
        for story in text.split_terminator("\n\n") {
            assert!((200..1_100).contains(&story.len()), "{story}");
            assert!(story.starts_with(|first: char| first.is_ascii_uppercase()), "{story}");
            assert!(story.ends_with(['.', '!', '?', '"']), "{story}");
            for wrong in ["{", "}", "  ", " a a", " a e", " a i", " a o", " a u", " the the ", " .", " ,", "\n"] {
                assert!(!story.contains(wrong), "{wrong:?} in {story}");
            }
            assert_eq!(story.matches('"').count() % 2, 0, "{story}");
        }
    }

    #[test]
    fn stories_differ() {
        let text = stories(5, 400_000);
        let all: Vec<&str> = text.split_terminator("\n\n").collect();
        let distinct: HashSet<&str> = all.iter().copied().collect();
        assert!(all.len() > 500);
        assert_eq!(all.len(), distinct.len());
    }
}
