//! Models of the hub of Hugging Face by their names: their files come into its cache, where `hf download` and `transformers` find them, too.
//!
//! A snapshot counts as whole when its `config.json` is there, which is why that file comes last: what broke off is never taken for a
//! model, and goes on with the next try. `HF_TOKEN`, `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`, `HF_HUB_OFFLINE` and
//! `HF_HUB_DOWNLOAD_TIMEOUT` mean what they mean there.
//!
//! Where files lie in the cache, and the addresses of the hub, are `hf-hub`'s. Its downloads are not used: they wait for ever for a hub
//! that is silent, and send the token to every host that the hub redirects to.

mod server;
mod snapshot;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use firelight_storage::{InputError, shortened, shortened_reason};
use hf_hub::api::RepoInfo;
use hf_hub::{Cache, Repo, RepoType};

use crate::locate::HubName;
use server::{Failure, Server};
use snapshot::Snapshot;

/// How long the hub may be silent, in seconds: the variable of Hugging Face's own programs.
const SILENCE: &str = "HF_HUB_DOWNLOAD_TIMEOUT";

/// As long where the variable is not set. Longer than theirs, 10 seconds, because they try several times.
const USUAL_SILENCE: Duration = Duration::from_secs(30);

/// No limit is longer: a day.
const MAX_SILENCE: Duration = Duration::from_secs(86_400);

/// The marker of a whole snapshot.
const CONFIG: &str = "config.json";

/// Weights: the first of these that a repository has, and their shards.
const WEIGHTS: [&str; 4] =
    ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];

/// What may stand beside them.
const FILES: [&str; 20] = [
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "source.spm",
    "target.spm",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];

/// Downloads a model into `cache`; `tell` hears of each file before it comes. Returns the folder of its snapshot.
pub(crate) fn download(name: &HubName, cache: &Path, mut tell: impl FnMut(&str)) -> Result<PathBuf, InputError> {
    let server = Server::new(&endpoint(), token(), silence()?);
    let info = list(&server, name).map_err(|failure| failed(name, "the list of files", &failure))?;
    let files: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
    if !is_plain(&info.sha) {
        return Err(untrusted(name, &info.sha));
    }
    // One commit, whatever happens to the branch meanwhile.
    let snapshot = Snapshot { name, commit: &info.sha, cache };
    for file in wanted(&files, name)? {
        snapshot.fetch(&server, file, &mut tell)?;
    }
    snapshot.keep_revision()?;
    Ok(snapshot.folder())
}

/// Whether a variable of the environment forbids the network.
pub(crate) fn is_offline() -> bool {
    let value = env::var("HF_HUB_OFFLINE").unwrap_or_default().to_lowercase();
    ["1", "true", "yes", "on"].contains(&value.as_str())
}

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().map(|value| value.trim().to_string()).filter(|value| !value.is_empty())
}

fn endpoint() -> String {
    variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into())
}

/// The token of the environment, or the one that `hf auth login` keeps.
fn token() -> Option<String> {
    variable("HF_TOKEN").or_else(|| Cache::from_env().token())
}

fn silence() -> Result<Duration, InputError> {
    let Some(text) = variable(SILENCE) else { return Ok(USUAL_SILENCE) };
    let limit = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match limit.filter(|limit| !limit.is_zero()) {
        Some(limit) => Ok(limit.min(MAX_SILENCE)),
        None => {
            let problem = format!("{SILENCE} is \"{}\": expected a number of seconds above 0", shortened(&text));
            Err(InputError::new(problem)
                .advise(format!("set it to the longest silence of the hub, such as {SILENCE}=60")))
        }
    }
}

fn list(server: &Server, name: &HubName) -> Result<RepoInfo, Failure> {
    let text = server.text(&format!("api/{}", repo(name, &name.revision).api_url()))?;
    serde_json::from_str(&text).map_err(|error| Failure::Other(format!("the answer is no list of files: {error}")))
}

fn repo(name: &HubName, revision: &str) -> Repo {
    Repo::with_revision(name.name.clone(), RepoType::Model, revision.into())
}

/// The files of a model, `config.json` last.
fn wanted<'a>(files: &'a [String], name: &HubName) -> Result<Vec<&'a str>, InputError> {
    let has = |wanted: &str| files.iter().any(|file| file == wanted);
    if !has(CONFIG) {
        return Err(no_model(name));
    }
    let Some(weights) = WEIGHTS.into_iter().find(|weights| has(weights)) else { return Err(no_model(name)) };
    let shard = weights.strip_suffix(".index.json").and_then(|weights| weights.rsplit_once('.'));
    let is_shard = |file: &str| {
        shard.is_some_and(|(stem, extension)| file.starts_with(&format!("{stem}-")) && file.ends_with(extension))
    };
    // Folders of sentence-transformers' modules, such as `1_Pooling`.
    let is_module = |file: &str| {
        let is_first_file = |(folder, file): (&str, &str)| {
            folder.starts_with(|c: char| c.is_ascii_digit()) && [CONFIG, WEIGHTS[0], WEIGHTS[2]].contains(&file)
        };
        file.split_once('/').is_some_and(is_first_file)
    };
    let is_wanted = |file: &str| file == weights || FILES.contains(&file) || is_shard(file) || is_module(file);
    let found = files.iter().map(String::as_str).filter(|file| is_wanted(file) && is_plain_path(file));
    Ok(found.chain([CONFIG]).collect())
}

fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// A hash, as the names of files in the cache are.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn is_plain_path(file: &str) -> bool {
    file.split('/').all(|part| !part.is_empty() && part != ".." && !part.contains('\\'))
}

fn untrusted(name: &HubName, found: &str) -> InputError {
    let problem = format!("the hub names a file or a commit of {name} as \"{}\", which is none", shortened(found));
    InputError::new(problem).advise("look at HF_ENDPOINT: is that a hub?")
}

fn no_model(name: &HubName) -> InputError {
    let problem = format!("{name} on the hub is no model of transformers: it lacks config.json or weights");
    InputError::new(problem).advise(format!("expected config.json and one of {}", WEIGHTS.join(", ")))
}

/// What went wrong, with what helps.
fn failed(name: &HubName, file: &str, failure: &Failure) -> InputError {
    match failure {
        Failure::Status(404, _) => {
            let advice = match name.revision.as_str() {
                "main" => "look at its name".to_string(),
                revision => format!("look at its name; is `{revision}` a branch, a tag or a commit of it?"),
            };
            InputError::new(format!("there is no model {name} on the hub, or not {file}")).advise(advice)
        }
        Failure::Status(401 | 403, _) => {
            InputError::new(format!("the hub does not give {name} to everybody, or has none"))
                .advise("look at its name, or set HF_TOKEN to a token that may read it")
        }
        Failure::Status(429, after) => {
            InputError::new(format!("the hub refuses {file} of {name} for now: too many requests (status 429)"))
                .advise(format!("try again {}, or set HF_TOKEN: more requests are allowed with a token", later(after)))
        }
        Failure::Silence(limit) => {
            let (limit, problem) = (limit.as_secs_f64(), format!("cannot download {file} of {name}"));
            InputError::new(format!("{problem}: the hub was silent for {limit} seconds")).advise(format!(
                "try again, wait longer with {SILENCE}=60, or set HF_HUB_OFFLINE=1 to use what is there"
            ))
        }
        Failure::Status(status, _) => undelivered(name, file, &format!("the hub answers with status {status}")),
        Failure::Other(reason) => undelivered(name, file, &shortened_reason(reason)),
    }
}

fn undelivered(name: &HubName, file: &str, reason: &str) -> InputError {
    InputError::new(format!("cannot download {file} of {name}: {reason}"))
        .advise("look at the network and try again, or set HF_HUB_OFFLINE=1 to use what is there")
}

/// When to try again: `Retry-After` is a number of seconds or a date (RFC 9110, section 10.2.3).
fn later(after: &Option<String>) -> String {
    match after.as_deref().map(str::trim) {
        None | Some("") => "later".into(),
        Some(after) if after.chars().all(|c| c.is_ascii_digit()) => format!("in {} seconds", shortened(after)),
        Some(date) => format!("after {}", shortened(date)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_files_of_a_model_are_chosen_with_its_configuration_last() {
        let name = HubName::parse("a/b").unwrap();
        let listed = files(&[
            "README.md",
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "pytorch_model.bin",
            "tokenizer.json",
            "config_sentence_transformers.json",
            "1_Pooling/config.json",
            "onnx/model.onnx",
            "2_Dense/../config.json",
        ]);
        let expected = [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
            "config_sentence_transformers.json",
            "1_Pooling/config.json",
            "config.json",
        ];
        assert_eq!(wanted(&listed, &name).unwrap(), expected);
        for lacking in [files(&["model.safetensors"]), files(&["config.json"])] {
            assert!(wanted(&lacking, &name).unwrap_err().to_string().contains("a/b on the hub is no model"));
        }
    }
    #[test]
    fn too_many_requests_are_told_with_the_time_to_wait() {
        let name = HubName::parse("a/b").unwrap();
        let told = |after: Option<&str>| failed(&name, "c", &Failure::Status(429, after.map(Into::into))).to_string();
        let [none, seconds, date] = [None, Some("7"), Some("Sat, 28 Nov 2026 17:00:00 GMT")].map(told);
        assert!(
            none.starts_with("the hub refuses c of a/b for now: too many requests (status 429); try again later, or ")
        );
        assert!(seconds.contains("; try again in 7 seconds, or "), "{seconds}");
        assert!(date.contains("; try again after Sat, 28 Nov 2026 17:00:00 GMT, or "), "{date}");
    }
}
