//! Who and what a story is about. Chosen once for each story, so that names, pronouns and things stay the same from its
//! first sentence to its last.

use super::words::{
    ANIMALS, BABIES, DISHES, HOMES, NAMES, NATURES, PLACES, PROJECTS, Pronouns, SKILLS, SPOTS, THINGS, TIMES, WEATHERS,
};
use crate::dice::Dice;

/// One of the two characters.
struct Character {
    name: &'static str,
    pronouns: &'static Pronouns,
    animal: &'static str,
    nature: &'static str,
}

/// The characters and things of one story.
pub(super) struct Cast {
    hero: Character,
    friend: Character,
    home: &'static str,
    place: &'static str,
    spot: &'static str,
    thing: &'static str,
    dish: &'static str,
    food: &'static str,
    project: &'static str,
    skill: &'static str,
    baby: &'static str,
    weather: &'static str,
    time: &'static str,
}

impl Cast {
    /// Chooses everything a story may need.
    pub(super) fn choose(dice: &mut Dice) -> Self {
        let hero = Character::choose(dice, |_| true, |_| true);
        let friend = Character::choose(dice, |name| name != hero.name, |animal| animal != hero.animal);
        let (dish, food) = dice.pick(DISHES);
        Self {
            hero,
            friend,
            home: dice.pick(HOMES),
            place: dice.pick(PLACES),
            spot: dice.pick(SPOTS),
            thing: dice.pick(THINGS),
            dish,
            food,
            project: dice.pick(PROJECTS),
            skill: dice.pick(SKILLS),
            baby: dice.pick(BABIES),
            weather: dice.pick(WEATHERS),
            time: dice.pick(TIMES),
        }
    }

    /// Puts the words of this story into a sentence: `{thing}` becomes `red kite`, `{a thing}` becomes `a red kite`, and
    /// `{He}` becomes `She` if the hero is a she.
    pub(super) fn fill(&self, sentence: &str) -> String {
        let mut text = String::new();
        let mut rest = sentence;
        while let Some((before, (key, after))) =
            rest.split_once('{').and_then(|(before, tail)| Some((before, tail.split_once('}')?)))
        {
            text.push_str(before);
            text.push_str(&self.word(key));
            rest = after;
        }
        text + rest
    }

    /// The word for a key, with its article or a capital letter if the key asks for one.
    fn word(&self, key: &str) -> String {
        if let Some(noun) = key.strip_prefix("a ") {
            let noun = self.lookup(noun);
            return format!("{} {noun}", article(noun));
        }
        match key.starts_with(|first: char| first.is_ascii_uppercase()) {
            true => capitalised(self.lookup(&key.to_ascii_lowercase())),
            false => self.lookup(key).to_owned(),
        }
    }

    /// The word for a plain key. Keys that begin with `f.` are about the friend.
    fn lookup(&self, key: &str) -> &'static str {
        match key {
            "hero" => self.hero.name,
            "friend" => self.friend.name,
            "home" => self.home,
            "place" => self.place,
            "spot" => self.spot,
            "thing" => self.thing,
            "dish" => self.dish,
            "food" => self.food,
            "project" => self.project,
            "skill" => self.skill,
            "baby" => self.baby,
            "weather" => self.weather,
            "time" => self.time,
            _ => match key.strip_prefix("f.") {
                Some(key) => self.friend.lookup(key),
                None => self.hero.lookup(key),
            },
        }
    }
}

impl Character {
    /// Chooses a character among the names and animals that are free.
    fn choose(dice: &mut Dice, is_free_name: impl Fn(&str) -> bool, is_free_animal: impl Fn(&str) -> bool) -> Self {
        let (name, pronouns) = dice.pick_where(NAMES, |(name, _)| is_free_name(name));
        let animal = dice.pick_where(ANIMALS, is_free_animal);
        Self { name, pronouns, animal, nature: dice.pick(NATURES) }
    }

    /// The word for a key about this character.
    fn lookup(&self, key: &str) -> &'static str {
        match key {
            "he" => self.pronouns.subject,
            "him" => self.pronouns.object,
            "his" => self.pronouns.possessive,
            "animal" => self.animal,
            "nature" => self.nature,
            _ => unreachable!("no plot has the key {key}, which a test makes sure of"),
        }
    }
}

/// The article in front of a word.
fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// The word with a capital letter.
fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stories::plots::PLOTS;

    #[test]
    fn keys_become_words_with_articles_and_capitals() {
        let mut cast = Cast::choose(&mut Dice::new(0));
        cast.hero = Character::choose(&mut Dice::new(1), |name| name == "Nell", |animal| animal == "owl");
        cast.friend = Character::choose(&mut Dice::new(1), |name| name == "Otto", |animal| animal == "fox");
        cast.thing = "red kite";
        assert_eq!(
            cast.fill("{Hero}, {a animal}, took {his} {thing}. {He} saw {friend}, {a f.animal}, and {f.his} {food}{"),
            format!("Nell, an owl, took her red kite. She saw Otto, a fox, and his {}{{", cast.food)
        );
    }

    #[test]
    fn every_sentence_of_every_plot_can_be_filled() {
        let cast = Cast::choose(&mut Dice::new(3));
        for sentence in PLOTS.iter().flat_map(|plot| plot.iter()).flat_map(|step| step.iter()) {
            let text = cast.fill(sentence);
            assert!(!text.contains(['{', '}']), "{text}");
            assert!(text.ends_with(['.', '!', '?', '"']), "{text}");
        }
    }
}
