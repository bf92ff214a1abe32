//! The plots: each is a row of steps, each step a choice of sentences, each sentence with places for the words of the
//! [`Cast`](super::cast::Cast). Any sentence of a step fits after any sentence of the step before it.

/// The sentences that fit at one point of a plot.
type Step = &'static [&'static str];

/// The plots of all stories.
pub(super) const PLOTS: &[&[Step]] = &[LOST, SHARED, BUILT, NEWCOMER, NOISE, LEARNED, STORM, GIFT];

const HERO: Step = &[
    "Once upon a time there was {a nature} {animal} named {hero}. {He} lived {home}.",
    "{Hero} was {a nature} {animal} who lived {home}.",
    "There once was {a nature} {animal} called {hero}. {His} home was {home}.",
    "Long ago, {a nature} {animal} named {hero} lived {home}.",
];

const FRIEND: Step = &[
    "{His} best friend was {friend}, {a f.nature} {f.animal}.",
    "Every day {he} played with {friend}, {a f.nature} {f.animal}.",
    "{He} had a good friend, {a f.nature} {f.animal} named {friend}.",
];

const END: Step = &[
    "They laughed all the way home.",
    "Then they went home together and ate {dish}.",
    "That night {hero} slept well and had sweet dreams.",
    "{Hero} and {friend} never forgot that {time}.",
    "When the sun went down, they said good night.",
];

/// Something is lost, and two find what one could not.
const LOST: &[Step] = &[
    HERO,
    FRIEND,
    &[
        "One {weather} {time}, {hero} could not find {his} {thing}.",
        "One {weather} {time}, {hero} lost {his} {thing} near the {place}.",
        "It was a {weather} {time}. {Hero} looked for {his} {thing}, but it was gone.",
    ],
    &[
        "{He} looked under the bed and behind the door, but it was not there.",
        "{He} looked here and there, but {he} saw nothing.",
        "{He} was so sad that {he} began to cry.",
    ],
    &[
        "\"Do not worry,\" said {friend}. \"We will look for it together.\"",
        "\"I will help you,\" said {friend}. \"Two can see more than one.\"",
        "{Friend} came by, and {hero} told {f.him} about the {thing}. \"Let us look for it,\" said {friend}.",
    ],
    &[
        "So the two friends went to the {place}.",
        "They walked down the path to the {place}, step by step.",
        "They ran to the {place} and looked at every stone.",
    ],
    &[
        "There it was, {spot}!",
        "At last {friend} saw the {thing} {spot}.",
        "Then {hero} saw something {spot}. It was the {thing}!",
    ],
    &[
        "\"Thank you, {friend},\" said {hero}. \"You are a true friend.\"",
        "{Hero} was so happy that {he} danced.",
        "{Hero} gave {friend} a big hug.",
    ],
    END,
];

/// One has food, the other is hungry.
const SHARED: &[Step] = &[
    HERO,
    &[
        "One {weather} {time}, {he} carried {dish} home from the {place}.",
        "One {weather} {time}, {he} sat near the {place} with {dish}.",
        "One {weather} {time}, {he} put {dish} on the table.",
    ],
    &[
        "{He} wanted to eat all the {food} alone.",
        "{He} wanted to keep the {food} for {him}self.",
        "The {food} smelled very good.",
    ],
    &[
        "Then {friend} came along, {a f.nature} {f.animal} who was cold and hungry.",
        "Soon {he} met {a f.nature} {f.animal} named {friend}, who had eaten nothing all day.",
        "Then {he} saw {friend}, {a f.nature} {f.animal}. \"I am so hungry,\" {friend} said.",
    ],
    &[
        "{Hero} thought about it for a while.",
        "{Hero} looked at the {food} and then at {friend}.",
        "At first {hero} did not want to share.",
    ],
    &[
        "\"Sit down and eat with me,\" said {hero}.",
        "Then {he} gave {friend} half of the {food}.",
        "\"There is enough for two,\" {he} said with a smile.",
    ],
    &[
        "They ate together until nothing was left.",
        "The {food} tasted better than ever.",
        "They ate the {food} and told each other stories.",
    ],
    &[
        "\"You are kind,\" said {friend}. \"Tomorrow I will bring something for you.\"",
        "And {hero} learned that it is good to share.",
        "From that day on, {hero} and {friend} ate together every evening.",
    ],
];

/// What breaks for one holds when two build it.
const BUILT: &[Step] = &[
    HERO,
    &[
        "One {weather} {time}, {he} wanted to build a {project}.",
        "{He} had a plan. {He} wanted to build a {project} near the {place}.",
        "One {weather} {time}, {he} found some wood near the {place}. \"I will build a {project},\" {he} said.",
    ],
    &[
        "{He} took a rope and a hammer and began to work.",
        "{He} worked very hard.",
        "{He} worked all {time} without a rest.",
    ],
    &[
        "But the {project} fell apart.",
        "But the rope was too short, and the {project} broke.",
        "{He} tried once and {he} tried twice, but the {project} did not hold.",
    ],
    &[
        "\"This is too hard for me,\" said {hero}, and {he} sat down.",
        "{Hero} wanted to give up.",
        "{Hero} was angry and threw {his} hammer into the grass.",
    ],
    &[
        "Then {friend} came along, {a f.nature} {f.animal} with a bag of nails.",
        "{His} friend {friend}, {a f.nature} {f.animal}, saw it and came to help.",
        "{Friend}, {a f.nature} {f.animal}, had an idea. \"You hold the wood, and I will tie the rope,\" {f.he} said.",
    ],
    &[
        "They worked side by side until the sun went down.",
        "This time they did it together, and it worked.",
        "They worked slowly, and they helped each other.",
    ],
    &[
        "The new {project} was strong and beautiful.",
        "Now they had the best {project} near the {place}.",
        "\"We did it!\" cried {hero} and {friend}.",
    ],
    END,
];

/// A stranger becomes a friend.
const NEWCOMER: &[Step] = &[
    HERO,
    &[
        "One {weather} {time}, {a f.nature} {f.animal} came to the {place}.",
        "One {weather} {time}, {hero} saw {a f.nature} {f.animal} near the {place}.",
        "One {weather} {time}, {a f.nature} {f.animal} came walking from the {place}.",
    ],
    &[
        "Nobody knew {f.him}, and {f.he} was all alone.",
        "{F.he} was new there and had no friends.",
        "{F.he} came from far away and looked sad.",
    ],
    &["\"Hello,\" said {hero}. \"What is your name?\"", "{Hero} went to {f.him} and asked, \"Who are you?\""],
    &[
        "\"I am {friend},\" said the {f.animal} in a small voice.",
        "\"My name is {friend},\" said the {f.animal}. \"I have nobody to play with.\"",
    ],
    &[
        "\"Do you want to play with my {thing}?\" asked {hero}.",
        "\"Come and play with me,\" said {hero}.",
        "\"I will show you my {thing},\" said {hero}.",
    ],
    &[
        "{Friend} smiled for the first time that {time}.",
        "{Friend} was so glad that {f.he} jumped into the air.",
        "\"Oh, yes!\" said {friend}, and {f.his} eyes were bright.",
    ],
    &[
        "They played near the {place} until it was dark.",
        "They ran and sang and ate {dish}.",
        "They played hide and seek for a long time.",
    ],
    &[
        "From that day on, {hero} and {friend} were best friends.",
        "The next day they met again, and the day after that, too.",
        "And {friend} was never alone again.",
    ],
];

/// What is frightening in the dark turns out to be small.
const NOISE: &[Step] = &[
    HERO,
    FRIEND,
    &[
        "One dark night, {hero} heard a strange noise.",
        "In the middle of the night, a strange sound came from the {place}.",
        "One night, something cried in the dark.",
    ],
    &[
        "\"Who is there?\" {he} called, but nobody answered.",
        "{Hero} pulled the blanket over {his} head.",
        "{Hero} was so afraid that {he} could not sleep.",
    ],
    &["{He} took a lamp and ran to {friend}.", "Then {he} got up and went to wake {friend}."],
    &[
        "\"Let us go and see,\" said {friend}.",
        "\"I am not afraid when you are with me,\" said {friend}.",
        "\"It may be a monster,\" said {hero}. \"We will see,\" said {friend}.",
    ],
    &[
        "They went to the {place}, very slowly.",
        "Hand in hand they walked through the dark to the {place}.",
        "The moon was bright, and they went to the {place} without a word.",
    ],
    &[
        "There, {spot}, sat a little {baby}.",
        "It was only a little {baby} {spot}!",
        "{Spot}, they found a little {baby}.",
    ],
    &[
        "\"I am lost,\" said the {baby}. \"I want to go home.\"",
        "\"Please do not hurt me,\" said the {baby}.",
        "The {baby} was cold and wanted its mother.",
    ],
    &[
        "So they took the {baby} home to its mother.",
        "{Hero} held the {baby} in {his} arms, and they brought it home.",
        "They gave the {baby} some {food} and showed it the way home.",
    ],
    &[
        "\"Next time I will not be so afraid,\" said {hero}.",
        "They laughed, because such a little {baby} had made such a big noise.",
        "After that, {hero} was never afraid of the dark again.",
    ],
];

/// Practice, and a friend who did not always know how either.
const LEARNED: &[Step] = &[
    HERO,
    &[
        "All the others could {skill}, but {hero} could not.",
        "{Hero} wanted to learn to {skill}.",
        "{Hero} had only one wish. {He} wanted to {skill}.",
    ],
    &[
        "One {weather} {time}, {he} went to the {place} to try.",
        "One {weather} {time}, {he} tried it for the first time.",
        "Every {time} {he} went to the {place} and tried.",
    ],
    &[
        "But it was not easy.",
        "{He} tried and tried, but it did not go well.",
        "It went wrong, and the others laughed.",
    ],
    &[
        "\"I will never learn it,\" {he} said.",
        "{He} sat down on the ground and cried.",
        "{Hero} was sad and went home.",
    ],
    &[
        "Then {friend} came, {a f.nature} {f.animal}. \"At first I could not {skill}, either,\" {f.he} said.",
        "{His} friend {friend}, {a f.nature} {f.animal}, said, \"I can teach you.\"",
        "\"Do not give up,\" said {friend}, {a f.nature} {f.animal}. \"We will try it together.\"",
    ],
    &[
        "So {hero} tried every day, in the sun and in the rain.",
        "{Friend} showed {him} how to do it, again and again.",
        "They met near the {place} every day.",
    ],
    &[
        "After a week {he} could {skill} a little, and after a month {he} could {skill} very well.",
        "At last {he} could {skill} as well as {friend}.",
        "And one {weather} {time}, {hero} could {skill}!",
    ],
    &[
        "\"Look at me!\" cried {hero}.",
        "{Hero} was very proud, and {friend} was proud, too.",
        "\"Thank you for your help,\" said {hero}.",
    ],
];

/// A storm, a shelter, and the sun again.
const STORM: &[Step] = &[
    HERO,
    &[
        "One {time}, {he} went to the {place} with {his} {thing}.",
        "One {time}, {he} took {his} {thing} and walked to the {place}.",
    ],
    &[
        "Soon dark clouds came over the {place}.",
        "Then the sky turned gray and the wind began to blow.",
        "Then there was thunder over the {place}.",
    ],
    &[
        "The rain fell hard, and {hero} was wet and cold.",
        "The wind took the {thing} and blew it away.",
        "{Hero} ran as fast as {he} could, but the storm was faster.",
    ],
    &[
        "A door opened. \"Come in, quick!\" called {friend}, {a f.nature} {f.animal}.",
        "Then {he} saw a light. It was the house of {friend}, {a f.nature} {f.animal}.",
        "{Friend}, {a f.nature} {f.animal}, saw {him} and called, \"Come to my house!\"",
    ],
    &[
        "They sat by the fire and drank warm milk.",
        "{Friend} gave {him} {dish} and a dry coat.",
        "They sat by the window and listened to the rain.",
    ],
    &[
        "When the storm was over, they saw a rainbow over the {place}.",
        "After an hour the sun came out again.",
        "Then the rain stopped, and the birds began to sing.",
    ],
    &[
        "They found the {thing} {spot}. It was wet, but it was not broken.",
        "The {thing} lay {spot}, and {friend} gave it back to {hero}.",
    ],
    END,
];

/// A birthday without a present, and a present without a price.
const GIFT: &[Step] = &[
    HERO,
    FRIEND,
    &[
        "It was the birthday of {friend}, and {hero} had no present.",
        "One {weather} {time}, {hero} wanted to give {friend} something for {f.his} birthday.",
    ],
    &[
        "{He} looked at the market, but everything cost too much.",
        "{He} had no money at all.",
        "{He} thought and thought, but {he} had no idea.",
    ],
    &[
        "Then {he} looked at {his} {thing}. It was the best thing {he} had.",
        "At home {he} found {his} {thing}. {He} loved it very much.",
    ],
    &[
        "{He} put a ribbon around the {thing} and went to the {place}, where {friend} was.",
        "\"{Friend} will like it,\" {he} said, and {he} took the {thing} to the {place}.",
    ],
    &[
        "\"This is for you,\" said {hero}. \"Happy birthday!\"",
        "\"Happy birthday!\" called {hero}, and {he} gave {friend} the {thing}.",
    ],
    &[
        "{Friend} could not believe it. \"But you love your {thing},\" {f.he} said.",
        "{Friend} laughed and cried at once. \"But it is yours,\" {f.he} said.",
    ],
    &[
        "\"I love my friend more,\" said {hero}.",
        "\"We can share it,\" said {friend}.",
        "\"Then it is for both of us,\" said {friend}.",
    ],
    END,
];
