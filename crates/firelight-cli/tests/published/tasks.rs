//! A model of each task goes out as Hugging Face has it. Every command prints for that folder what it prints for the run, and a
//! training that begins from the folder takes the steps of one that begins from the run.

use std::fs::{self, File};
use std::path::Path;

use tempfile::TempDir;

use crate::support::{Model, command, finish, firelight, model, text, timeless};
use crate::{answering, classification, tagging, translation};

/// What stands for the model in a command.
const MODEL: &str = "MODEL";

/// What stands for the data of the task in a command.
const DATA: &str = "DATA";

/// The structure of BERT: norms behind the parts, two segments, positions that are learned.
const BERT: &[&str] = &[
    "model.norm_placement=post",
    "model.activation=gelu",
    "model.embedding_norm=true",
    "model.norm.kind=layer",
    "model.norm.epsilon=1e-12",
    "model.n_segments=2",
    "model.position=learned",
    "model.max_seq_len=24",
];

/// The structure of BART, and a learning rate at which two steps change what is written.
const BART: &[&str] = &[
    "model.norm_placement=post",
    "model.activation=relu",
    "model.embedding_norm=true",
    "model.head.bias=true",
    "schedule.kind=constant",
    "schedule.warmup_steps=0",
];

/// The messages of a conversation: what `chat` reads from the standard input.
const SAID: &str = "The fox\nthe hen\n";

/// A chat template of characters that the tiny language model has.
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }}. {% endfor %}";

/// An embedded recipe, and what writes its data into a folder.
type Begun<'a> = (&'a str, fn(&Path));

/// A task, a tiny training of it, and the commands that take its models.
struct Case<'a> {
    recipe: &'a str,
    /// The settings that make the structure one that a published family has.
    structure: Vec<&'a str>,
    /// Settings that every training on this data needs.
    data: &'a [&'a str],
    /// Fills a folder with data, and returns the name of what a command takes in it.
    write: fn(&Path) -> &'static str,
    commands: &'a [&'a [&'a str]],
    /// Embedded recipes of other tasks, with the data of each, that begin from the model.
    begins: &'a [Begun<'a>],
}

/// A run, the folder that it was exported to, and the data of its task.
struct Pair {
    home: TempDir,
    run: String,
    folder: String,
    data: String,
}

impl Pair {
    fn of(case: &Case<'_>) -> Self {
        let home = Model::scratch();
        let [run, folder, recipe] = ["run", "folder", "tiny.toml"].map(|name| text(&home.path().join(name)));
        let data = home.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(&recipe, case.recipe).unwrap();
        fs::write(home.path().join("said.txt"), SAID).unwrap();
        let pair = Self { data: text(&data.join((case.write)(&data))), home, run, folder };
        let settings = [&case.structure[..], case.data].concat();
        pair.train(&[&recipe, "--data", &pair.data], &settings, &pair.run);
        fs::write(Path::new(&pair.run).join("chat_template.jinja"), TEMPLATE).unwrap();
        firelight(["export", &pair.run, "--to", &pair.folder]).succeeds();
        pair
    }

    /// Trains for two steps; returns what the command tells.
    fn train(&self, more: &[&str], settings: &[&str], out: &str) -> String {
        let mut train = command(["train", "--steps", "2", "--set", "training.evaluate_every=2", "--out", out]);
        train.args(more).args(settings.iter().flat_map(|setting| ["--set", *setting]));
        train.env("FIRELIGHT_CACHE", self.home.path().join("cache"));
        finish(train).succeeds().stderr
    }

    /// What a command prints for a model, but for how long it took.
    fn printed(&self, words: &[&str], model: &str) -> String {
        let word = |word: &&str| match *word {
            MODEL => model.to_string(),
            DATA => self.data.clone(),
            word => word.to_string(),
        };
        let mut asked = command(words.iter().map(word));
        asked.stdin(File::open(self.home.path().join("said.txt")).unwrap());
        asked.env("FIRELIGHT_CACHE", self.home.path().join("cache"));
        let found = finish(asked).succeeds().stdout;
        assert!(!found.trim().is_empty(), "{words:?} prints nothing");
        found.split(",\"seconds\"").next().unwrap().to_string()
    }

    /// The steps of a training that begins from a model, with their losses; without a recipe, so that its task is the model's.
    fn steps(&self, from: &str, settings: &[&str]) -> String {
        let out = format!("{from}-begun");
        self.train(&["--data", &self.data, "--from", from], settings, &out);
        timeless(&fs::read_to_string(Path::new(&out).join("metrics.jsonl")).unwrap())
    }

    /// An embedded recipe takes over everything but its head.
    fn begins(&self, recipe: &str, write: fn(&Path)) {
        let [data, out] = ["data", "run"].map(|name| self.home.path().join(format!("{recipe}-{name}")));
        write(&data);
        let told = self.train(&[recipe, "--data", &text(&data), "--from", &self.folder], &[], &text(&out));
        assert!(told.contains(" parameters taken over, 2 new (`head.output.weight`, `head.output.bias`)"), "{told}");
    }
}

fn is_the_same_as_a_folder(case: &Case<'_>) {
    let pair = Pair::of(case);
    for words in case.commands {
        assert_eq!(pair.printed(words, &pair.folder), pair.printed(words, &pair.run), "{words:?}");
    }
    let [expected, found] = [&pair.run, &pair.folder].map(|from| pair.steps(from, case.data));
    assert!(expected.starts_with("{\"step\":1,\"loss\":") && expected.contains("\n{\"step\":2,"), "{expected}");
    assert_eq!(found, expected, "{:?}", case.commands);
    case.begins.iter().for_each(|(recipe, write)| pair.begins(recipe, *write));
}

/// Words and the same words backwards: a file, for a published translator does not know the names of two sides.
fn write_pairs(data: &Path) -> &'static str {
    let lines = ["abdc", "abadc", "abbadc"].map(|line| format!("{line}\t{}\n", line.chars().rev().collect::<String>()));
    fs::write(data.join("pairs.tsv"), lines.concat().repeat(10)).unwrap();
    "pairs.tsv"
}

#[test]
fn a_folder_of_each_task_prints_and_begins_what_its_run_does() {
    let language = fs::read_to_string(&model().recipe).unwrap();
    let translation = translation::RECIPE.replace("source = \"a\"\ntarget = \"b\"\n", "");
    let cases = [
        Case {
            recipe: &language,
            structure: vec!["model.max_seq_len=48", "training.batch_size=1"],
            data: &[],
            write: |data| {
                fs::copy(&model().text, data.join("text.txt")).unwrap();
                "text.txt"
            },
            commands: &[
                &["generate", MODEL, "--prompt", "The fox", "--max-new-tokens", "8"],
                &["chat", MODEL, "--max-new-tokens", "8"],
                &["score", MODEL, "--text", "The fox", "--json"],
                &["evaluate", MODEL, "--data", DATA, "--json"],
            ],
            begins: &[],
        },
        Case {
            recipe: &translation,
            structure: BART.to_vec(),
            data: &["data.split.validation=4"],
            write: write_pairs,
            commands: &[
                &["translate", MODEL, "--text", "abadc", "--beams", "2", "--n-best", "2", "--json"],
                &["score", MODEL, "--source", "abadc", "--text", "cdaba", "--json"],
                &["evaluate", MODEL, "--data", DATA, "--json"],
            ],
            begins: &[],
        },
        Case {
            recipe: classification::RECIPE,
            structure: [BERT, &["model.pooling=class", "model.pooler=tanh"]].concat(),
            data: &[],
            write: |data| {
                classification::write_splits(data);
                ""
            },
            commands: &[
                &["classify", MODEL, "--text", "a dull film", "--json"],
                &["embed", MODEL, "--text", "a dull film", "--json"],
                &["evaluate", MODEL, "--data", DATA, "--split", "test", "--json"],
            ],
            begins: &[],
        },
        Case {
            recipe: tagging::RECIPE,
            structure: BERT.to_vec(),
            data: &[],
            write: |data| {
                tagging::write_splits(data);
                ""
            },
            commands: &[
                &["classify", MODEL, "--text", "she saw Lima Hill today", "--json"],
                &["evaluate", MODEL, "--data", DATA, "--split", "test", "--json"],
            ],
            begins: &[],
        },
        Case {
            recipe: answering::RECIPE,
            structure: BERT.to_vec(),
            data: &[],
            write: |data| {
                answering::write_splits(data);
                ""
            },
            commands: &[
                &["classify", MODEL, "--text", "who was seen ?\tthen rose saw max today", "--json"],
                &["evaluate", MODEL, "--data", DATA, "--split", "test", "--json"],
            ],
            begins: &[],
        },
        Case {
            recipe: classification::MASKED,
            structure: BERT.to_vec(),
            data: &[],
            write: |data| {
                classification::write_splits(data);
                ""
            },
            commands: &[
                &["fill-mask", MODEL, "--text", "a [MASK] film", "--json"],
                &["embed", MODEL, "--text", "a fine film"],
                &["evaluate", MODEL, "--data", DATA, "--split", "dev", "--json"],
            ],
            begins: &[
                ("texts", classification::write_splits),
                ("entities", tagging::write_splits),
                ("answers", answering::write_splits),
            ],
        },
    ];
    cases.iter().for_each(is_the_same_as_a_folder);
}
