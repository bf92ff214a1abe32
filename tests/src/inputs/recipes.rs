//! Readers of recipes, of each task, and of what overrides them.

use std::fs;
use std::path::Path;

use firelight::classification::{Classification, MaskedLanguage, QuestionAnswering, TokenClassification};
use firelight::language::Language;
use firelight::seq2seq::{Captioning, Seq2Seq};
use firelight::training::{Task, read_recipe};
use firelight::vision::Vision;

use super::{Names, Reader, text_of, written};

const LANGUAGE: &str = include_str!("../../../recipes/shakespeare-char-cpu-best.toml");
const SMALL: &str = include_str!("../../../recipes/shakespeare-char-cpu.toml");

pub(super) fn readers() -> Vec<Reader> {
    vec![
        of_task("recipe-language", |home| written(home, FILE, &[LANGUAGE, SMALL]), read::<Language>),
        of_task("recipe-seq2seq", |home| written(home, FILE, &[PAIRS]), read::<Seq2Seq>),
        of_task("recipe-classification", |home| written(home, FILE, &[TEXTS]), read::<Classification>),
        of_task("recipe-masked", |home| written(home, FILE, &[MASKED]), read::<MaskedLanguage>),
        of_task("recipe-tagging", built_in::<TokenClassification>, read::<TokenClassification>),
        of_task("recipe-answering", built_in::<QuestionAnswering>, read::<QuestionAnswering>),
        of_task("recipe-vision", |home| written(home, FILE, &[IMAGES]), read::<Vision>),
        of_task("recipe-captioning", built_in::<Captioning>, read::<Captioning>),
        Reader { name: "overrides", file: "overrides", valid: overrides, read: read_overrides, names: Names::File },
    ]
}

const FILE: &str = "recipe.toml";
const PAIRS: &str = include_str!("../../../recipes/multi30k-de-en.toml");
const TEXTS: &str = include_str!("../../../recipes/sst2.toml");
const MASKED: &str = include_str!("../../../recipes/mlm-pretrain.toml");
const IMAGES: &str = include_str!("../../../recipes/mnist-vit.toml");

fn of_task(name: &'static str, valid: fn(&Path) -> Vec<Vec<u8>>, read: fn(&Path) -> Result<(), String>) -> Reader {
    Reader { name, file: FILE, valid, read, names: Names::File }
}

fn built_in<T: Task>(home: &Path) -> Vec<Vec<u8>> {
    let texts: Vec<&str> = T::BUILT_IN.iter().map(|recipe| recipe.text).collect();
    written(home, FILE, &texts)
}

fn read<T: Task>(home: &Path) -> Result<(), String> {
    text_of(read_recipe::<T>(Some(&home.join(FILE)), &[]))
}

fn overrides(home: &Path) -> Vec<Vec<u8>> {
    let lines =
        ["training.steps=10\nmodel.d_model=64\nmodel.n_heads=2\n", "optimizer.kind=lion\nmodel.position=rotary\n"];
    written(home, "overrides", &lines)
}

/// One override a line. Their errors name the recipe, which is built in, and the key; the file's name stands for both here.
fn read_overrides(home: &Path) -> Result<(), String> {
    let bytes = fs::read(home.join("overrides")).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let pairs: Vec<_> = pairs.map(|(key, value)| (key.to_string(), value.to_string())).collect();
    text_of(read_recipe::<Language>(None, &pairs)).map_err(|text| format!("overrides: {text}"))
}
