//! Models of the hub of Hugging Face by their names: their files come into its cache, where `hf download` and `transformers` find them, too.
//!
//! A snapshot counts as whole when its `config.json` is there, which is why that file comes last: what broke off is never taken for a
//! model, and goes on with the next try. `HF_TOKEN`, `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE` and `HF_HUB_OFFLINE` mean what they mean
//! there.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use firelight_storage::{InputError, shortened, shortened_reason};
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use crate::locate::HubName;

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
    let api = api(cache).map_err(|error| failed(name, "its list of files", &error))?;
    let info = repo(&api, name, &name.revision).info().map_err(|error| failed(name, "its list of files", &error))?;
    let files: Vec<String> = info.siblings.into_iter().map(|file| file.rfilename).collect();
    if !is_plain(&info.sha) {
        return Err(untrusted(name, &info.sha));
    }
    // One commit, whatever happens to the branch meanwhile.
    let pinned = repo(&api, name, &info.sha);
    let mut snapshot = None;
    for file in wanted(&files, name)? {
        snapshot = Some(fetch(&api, &pinned, (name, &info.sha), file, &mut tell)?);
    }
    let model = Repo::with_revision(name.name.clone(), RepoType::Model, name.revision.clone());
    let kept = Cache::new(cache.into()).repo(model).create_ref(&info.sha);
    kept.map_err(|error| failed(name, CONFIG, &ApiError::from(error)))?;
    snapshot.as_deref().and_then(Path::parent).map(Into::into).ok_or_else(|| no_model(name))
}

/// Whether a variable of the environment forbids the network.
pub(crate) fn is_offline() -> bool {
    let value = env::var("HF_HUB_OFFLINE").unwrap_or_default().to_lowercase();
    ["1", "true", "yes", "on"].contains(&value.as_str())
}

fn api(cache: &Path) -> Result<Api, ApiError> {
    let builder = ApiBuilder::from_env().with_cache_dir(cache.into()).with_progress(false).with_retries(0);
    let builder = builder.with_user_agent("firelight", env!("CARGO_PKG_VERSION"));
    match env::var("HF_TOKEN") {
        Ok(token) if !token.trim().is_empty() => builder.with_token(Some(token.trim().into())).build(),
        _ => builder.build(),
    }
}

fn repo(api: &Api, name: &HubName, revision: &str) -> ApiRepo {
    api.repo(Repo::with_revision(name.name.clone(), RepoType::Model, revision.into()))
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

/// One file; what is there already does not come again.
fn fetch(
    api: &Api,
    repo: &ApiRepo,
    (name, commit): (&HubName, &str),
    file: &str,
    tell: &mut impl FnMut(&str),
) -> Result<PathBuf, InputError> {
    let failed = |error: ApiError| failed(name, file, &error);
    let metadata = api.metadata(&repo.url(file)).map_err(failed)?;
    let (etag, size) = (metadata.etag(), metadata.size() as u64);
    if !is_plain(etag) || metadata.commit_hash() != commit {
        return Err(untrusted(name, etag));
    }
    tell(&format!("downloading {file} of {name}, {}", megabytes(size)));
    let path = repo.get(file).map_err(failed)?;
    match fs::metadata(&path).map(|found| found.len()) {
        Ok(found) if found == size => Ok(path),
        found => {
            remove(&path);
            let problem = format!("{file} of {name} was cut short: {} of {size} bytes came", found.unwrap_or(0));
            Err(InputError::new(problem).advise("try again"))
        }
    }
}

/// Removes a file and the link to it.
fn remove(path: &Path) {
    let blob = path.canonicalize();
    let _ = fs::remove_file(path);
    blob.into_iter().for_each(|blob| drop(fs::remove_file(blob)));
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
fn failed(name: &HubName, file: &str, error: &ApiError) -> InputError {
    let status = match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        _ => None,
    };
    match status {
        Some(404) => {
            let advice = match name.revision.as_str() {
                "main" => "look at its name".to_string(),
                revision => format!("look at its name; is `{revision}` a branch, a tag or a commit of it?"),
            };
            InputError::new(format!("there is no model {name} on the hub, or not {file}")).advise(advice)
        }
        Some(401 | 403) => InputError::new(format!("the hub does not give {name} to everybody, or has none"))
            .advise("look at its name, or set HF_TOKEN to a token that may read it"),
        _ => InputError::new(format!("cannot download {file} of {name}: {}", shortened_reason(&error.to_string())))
            .advise("look at the network and try again, or set HF_HUB_OFFLINE=1 to use what is there"),
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
}
