//! The programs that Firelight is measured beside, and what is compared with each. All of them take the flags of `firelight bench` and
//! print its JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use tempfile::TempDir;

use super::{Options, text};
use crate::command::{built, program, target, workspace_root};

/// The program that runs llama.cpp.
const LLAMA_CPP: &str = "bench/llama_cpp_reference.py";

/// What is compared with PyTorch, as the arguments of both programs.
const WORKS: [&str; 11] = [
    "train --config baby --runs 20",
    "train --config char6 --runs 3",
    "train --config seq2seq --runs 5",
    "train --config bert --runs 10",
    "train --config vit --runs 10",
    "prefill --runs 3",
    "decode --runs 1",
    "attention --length 4096 --runs 3",
    "train --config char6 --runs 3 --dtype bf16",
    "prefill --runs 3 --dtype bf16",
    "decode --runs 1 --dtype bf16",
];

/// What is compared with llama.cpp, each on a file that Firelight writes.
const FILES: [&str; 10] = [
    "decode --config gpt2 --dtype f32 --runs 3",
    "decode --config llama110m --dtype f32 --runs 3",
    "decode --config llama110m --dtype bf16 --runs 3",
    "decode --config llama110m --dtype q8_0 --runs 3",
    "decode --config llama110m --dtype q4_0 --runs 3",
    "decode --config llama110m --dtype q4_k --runs 3",
    "prefill --config llama110m --dtype f32 --runs 3",
    "prefill --config llama110m --dtype q8_0 --runs 3",
    "prefill --config llama110m --dtype q4_k --runs 3",
    "decode --config llama1b --dtype q8_0 --runs 1",
];

/// Another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Beside {
    /// PyTorch, or what --reference names
    Pytorch,
    /// llama.cpp, on files that `firelight bench --keep` writes
    LlamaCpp,
}

/// Another program, found.
pub(super) struct Reference {
    beside: Beside,
    python: String,
    script: PathBuf,
}

impl Reference {
    /// # Errors
    /// If its file or a package that it needs is missing: nothing has been measured yet.
    pub(super) fn find(beside: Beside, options: &Options) -> Result<Self> {
        let named = match beside {
            Beside::Pytorch => options.reference.as_path(),
            Beside::LlamaCpp => Path::new(LLAMA_CPP),
        };
        let named = if named.exists() { named.to_path_buf() } else { workspace_root().join(named) };
        let script = fs::canonicalize(&named).with_context(|| named.display().to_string())?;
        let found = Self { beside, python: options.python.clone(), script };
        found.probe()?;
        Ok(found)
    }

    fn probe(&self) -> Result<()> {
        let started = self.command().arg("--help").output();
        let output = started.with_context(|| format!("cannot start `{}`, see --python", self.python))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}; --python names an interpreter that has it, --beside the programs",
            said.trim()
        );
        Ok(())
    }

    /// What stands above its figures.
    pub(super) fn name(&self) -> &'static str {
        match self.beside {
            Beside::Pytorch => "reference",
            Beside::LlamaCpp => "llama.cpp",
        }
    }

    pub(super) fn works(&self) -> &'static [&'static str] {
        match self.beside {
            Beside::Pytorch => &WORKS,
            Beside::LlamaCpp => &FILES,
        }
    }

    /// The file that a work is measured on, which lies as long as its folder is held; none where the program draws its own weights.
    pub(super) fn file(&self, work: &str) -> Result<Option<(TempDir, PathBuf)>> {
        if self.beside == Beside::Pytorch {
            return Ok(None);
        }
        let home = tempfile::tempdir_in(target())?;
        let file = home.path().join("model.gguf");
        text(built("release/firelight", &keeping(work)).arg("--keep").arg(&file))?;
        Ok(Some((home, file)))
    }

    /// The program at a work.
    pub(super) fn at(&self, work: &str, file: Option<&Path>) -> Command {
        let mut command = self.command();
        command.args(work.split(' '));
        if let Some(file) = file {
            command.arg("--model").arg(file);
        }
        command
    }

    fn command(&self) -> Command {
        let mut command = program(&self.python, "");
        command.arg(&self.script);
        command
    }
}

/// The call that keeps the model of a work.
fn keeping(work: &str) -> String {
    let words: Vec<&str> = work.split(' ').collect();
    let options = words[1..].chunks(2).filter(|option| ["--config", "--dtype"].contains(&option[0]));
    format!("bench prefill {} --runs 1", options.flatten().copied().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_of_a_work_is_kept_by_its_shape_and_its_type() {
        let found = keeping("decode --config gpt2 --dtype q8_0 --runs 3 --threads 2");
        assert_eq!(found, "bench prefill --config gpt2 --dtype q8_0 --runs 1");
        for work in FILES {
            assert!(keeping(work).contains("--config ") && keeping(work).contains("--dtype "), "{work}");
        }
    }

    #[test]
    fn a_program_takes_the_words_of_a_work_and_the_file() {
        let script = PathBuf::from("llama.py");
        let reference = Reference { beside: Beside::LlamaCpp, python: "python3".into(), script };
        let words = |command: Command| {
            let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        let found = words(reference.at("decode --runs 3", Some(Path::new("a.gguf"))));
        assert_eq!(found, "llama.py decode --runs 3 --model a.gguf");
        assert_eq!(words(reference.at("prefill", None)), "llama.py prefill");
    }

    /// No interpreter of that name: as a missing package, before anything is built or measured.
    #[test]
    fn a_program_that_cannot_start_is_told() {
        let python = "no-such-python-anywhere".to_string();
        let reference = Reference { beside: Beside::Pytorch, python, script: PathBuf::from("a.py") };
        let error = reference.probe().map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.starts_with("cannot start `no-such-python-anywhere`")));
    }
}
