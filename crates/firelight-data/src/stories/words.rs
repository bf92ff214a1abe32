//! The words the stories are told with. Nouns stand in the singular unless a sentence around them fits both.

/// The pronouns of a character.
#[derive(PartialEq, Eq)]
pub(super) struct Pronouns {
    /// `she`
    pub(super) subject: &'static str,
    /// `her`, as in `saw her`
    pub(super) object: &'static str,
    /// `her`, as in `her hat`
    pub(super) possessive: &'static str,
}

const SHE: &Pronouns = &Pronouns { subject: "she", object: "her", possessive: "her" };
const HE: &Pronouns = &Pronouns { subject: "he", object: "him", possessive: "his" };

pub(super) const NAMES: &[(&str, &Pronouns)] = &[
    ("Tilly", SHE),
    ("Rosa", SHE),
    ("Mina", SHE),
    ("Clara", SHE),
    ("Nell", SHE),
    ("Greta", SHE),
    ("Ivy", SHE),
    ("Pearl", SHE),
    ("Dora", SHE),
    ("Lucy", SHE),
    ("Bruno", HE),
    ("Otto", HE),
    ("Finn", HE),
    ("Jasper", HE),
    ("Milo", HE),
    ("Hugo", HE),
    ("Barney", HE),
    ("Toby", HE),
    ("Felix", HE),
    ("Rudy", HE),
];

pub(super) const ANIMALS: &[&str] = &[
    "fox", "bear", "rabbit", "mouse", "owl", "hedgehog", "squirrel", "frog", "duck", "goose", "cat", "dog", "badger",
    "otter", "sheep", "goat", "pony", "turtle", "beaver", "crow",
];

/// What a character is like.
pub(super) const NATURES: &[&str] =
    &["little", "brave", "kind", "shy", "clever", "curious", "gentle", "quiet", "merry", "young", "old", "friendly"];

/// Where a character lives.
pub(super) const HOMES: &[&str] = &[
    "in a small house near the forest",
    "in a hollow tree",
    "in a cave behind the hill",
    "under the roots of an old oak",
    "in a little hut by the lake",
    "on a farm near the village",
    "in an old mill",
    "in a warm nest of hay",
    "in a white cottage",
    "at the end of a long road",
];

/// Places to go to, to be near of, and to come from.
pub(super) const PLACES: &[&str] = &[
    "forest", "river", "hill", "lake", "garden", "bridge", "meadow", "barn", "well", "village", "pond", "orchard",
    "beach", "field", "mountain", "market",
];

/// Places where something small lies or sits.
pub(super) const SPOTS: &[&str] = &[
    "under a bush",
    "behind a big stone",
    "in the tall grass",
    "on a low branch",
    "beside the path",
    "behind a fence",
    "under a pile of leaves",
    "between two roots",
    "in an empty bucket",
];

/// Things that a character owns, and may lose.
pub(super) const THINGS: &[&str] = &[
    "red kite",
    "blue scarf",
    "wooden boat",
    "brass bell",
    "warm hat",
    "silver key",
    "green umbrella",
    "little drum",
    "yellow ball",
    "picture book",
    "woolen blanket",
    "straw basket",
    "tin whistle",
    "toy wagon",
    "paper crown",
];

/// Food: what it comes in, and what is eaten. The second word is singular or plural.
pub(super) const DISHES: &[(&str, &str)] = &[
    ("a pot of soup", "soup"),
    ("a big pie", "pie"),
    ("a plate of cookies", "cookies"),
    ("a loaf of bread", "bread"),
    ("a bowl of berries", "berries"),
    ("a basket of apples", "apples"),
    ("a jar of honey", "honey"),
    ("a bag of nuts", "nuts"),
    ("a piece of cheese", "cheese"),
    ("a bunch of carrots", "carrots"),
    ("a sweet cake", "cake"),
];

/// Things that two friends can build of wood.
pub(super) const PROJECTS: &[&str] = &["raft", "sled", "swing", "tent", "wagon", "tree house", "little bridge", "boat"];

/// Things one can learn to do.
pub(super) const SKILLS: &[&str] =
    &["swim", "climb trees", "whistle", "skate", "dance", "sing", "count to ten", "read"];

/// Small animals that make a noise in the night.
pub(super) const BABIES: &[&str] = &["bird", "kitten", "bat", "cricket", "piglet", "lamb", "puppy"];

pub(super) const WEATHERS: &[&str] = &["sunny", "rainy", "windy", "snowy", "foggy", "warm", "cold", "cloudy", "bright"];

pub(super) const TIMES: &[&str] = &["morning", "afternoon", "evening", "day"];
