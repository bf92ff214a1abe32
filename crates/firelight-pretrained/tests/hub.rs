//! Downloads from a hub on this machine that fails in every way: what comes is whole, and what does not is one clear error.

#![cfg(feature = "hub")]

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use burn::tensor::Device;
use firelight_pretrained::{AutoModel, PublishedModel, locate, run_folder};
use serde_json::json;
use tempfile::TempDir;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A later commit, with another tokenizer.
const LATER: &str = "fedcba9876543210fedcba9876543210fedcba98";

/// Branches and a tag, and their commits.
const NAMED: [(&str, &str); 3] = [("main", COMMIT), ("v2.0", LATER), ("work/next", LATER)];

/// How a hub fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Not at all.
    None,
    /// With this status, for all files but the list.
    Status(u16),
    /// The list has this status.
    List(u16),
    /// A body ends in its middle, though its header says how long it is.
    Cut,
    /// A body is shorter than the file is said to be.
    Short,
    /// The connection is closed without an answer.
    Closed,
    /// What answers does not speak HTTP.
    Garbage,
    /// The list is no JSON.
    NoJson,
    /// The list names files outside the folder, and a hash is a path.
    Tricks,
    /// The files are those of another commit.
    Moved,
}

/// A hub of one model, `somebody/tiny`.
struct Hub {
    endpoint: String,
    fault: Arc<Mutex<Fault>>,
    asked: Arc<Mutex<Vec<String>>>,
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained/llama-sharded")
}

/// A tokenizer whose second word is this one.
fn tokenizer(word: &str) -> String {
    let vocab = format!(r#"{{"a": 0, "{word}": 1}}"#);
    format!(
        r#"{{"version": "1.0", "added_tokens": [], "model": {{"type": "WordLevel", "vocab": {vocab}, "unk_token": "a"}}}}"#
    )
}

/// The second word of the tokenizer of a commit.
fn word(commit: &str) -> &'static str {
    if commit == LATER { "c" } else { "b" }
}

/// The files of a commit.
fn files(commit: &str) -> BTreeMap<String, Vec<u8>> {
    let tokenizer = tokenizer(word(commit)).into_bytes();
    let mut files = BTreeMap::from([("tokenizer.json".to_string(), tokenizer), ("README.md".into(), vec![b'x'; 99])]);
    for entry in fs::read_dir(fixture()).unwrap() {
        let path = entry.unwrap().path();
        files.insert(path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap());
    }
    files
}

/// The commit of a branch, a tag, a commit or its beginning; none where the hub has no such revision.
fn commit_of(revision: &str) -> Option<&'static str> {
    let revision = revision.replace("%2F", "/");
    let named = NAMED.iter().find(|(name, _)| *name == revision).map(|(_, commit)| *commit);
    let begins = |commit: &&str| revision.len() >= 7 && commit.starts_with(&revision);
    named.or_else(|| [COMMIT, LATER].into_iter().find(begins))
}

impl Hub {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (fault, asked) = (Arc::new(Mutex::new(Fault::None)), Arc::new(Mutex::new(Vec::new())));
        let state = (fault.clone(), asked.clone());
        let commits = [COMMIT, LATER].map(|commit| (commit, files(commit)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (fault, asked) = &state;
                // What is broken off on purpose is no failure of the hub's.
                let _ = answer(stream, *fault.lock().unwrap(), &commits, asked);
            }
        });
        Self { endpoint, fault, asked }
    }
}

/// Answers one request and closes the connection.
fn answer(
    mut stream: TcpStream,
    fault: Fault,
    commits: &[(&str, BTreeMap<String, Vec<u8>>)],
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let lines: Vec<String> =
        BufReader::new(stream.try_clone()?).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let path = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_string();
    let header = |name: &str| {
        let of = |line: &String| {
            Some(line.split_once(": ")?).filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|it| it.1.to_string())
        };
        lines.iter().find_map(of)
    };
    asked.lock().unwrap().push(format!("{path} {}", header("authorization").unwrap_or_default()));
    let is_list = path.starts_with("/api/models/");
    match fault {
        Fault::Closed => return Ok(()),
        Fault::Garbage => return stream.write_all(b"220 mail.example ESMTP\r\n"),
        Fault::List(status) if is_list => return status_line(&mut stream, status),
        Fault::Status(status) if !is_list => return status_line(&mut stream, status),
        _ => {}
    }
    // The revision stands behind the model's name: `/api/models/A/B/revision/R` and `/A/B/resolve/R/FILE`.
    let revision = path.split('/').nth(if is_list { 6 } else { 4 }).unwrap_or_default();
    let known = commit_of(revision).and_then(|commit| commits.iter().find(|(known, _)| *known == commit));
    let Some((commit, files)) = known else { return status_line(&mut stream, 404) };
    if is_list {
        let mut names: Vec<&str> = files.keys().map(String::as_str).collect();
        if fault == Fault::Tricks {
            names.push("1_../../../../outside/config.json");
        }
        let list =
            json!({"sha": commit, "siblings": names.iter().map(|name| json!({"rfilename": name})).collect::<Vec<_>>()});
        let body = if fault == Fault::NoJson { "<html>".into() } else { list.to_string() };
        return write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let Some(bytes) = files.get(name) else { return status_line(&mut stream, 404) };
    let range = header("range").unwrap_or_else(|| "bytes=0-".into());
    let (start, end) = range.trim_start_matches("bytes=").split_once('-').unwrap_or(("0", ""));
    let start: usize = start.parse().unwrap_or(0);
    let end = end.parse().map_or(bytes.len(), |end: usize| end + 1).min(bytes.len());
    let body = &bytes[start.min(end)..end];
    let sent =
        if matches!(fault, Fault::Cut | Fault::Short) && body.len() > 1 { &body[..body.len() / 2] } else { body };
    let said = if fault == Fault::Short { sent.len() } else { body.len() };
    let etag = if fault == Fault::Tricks {
        "../../../outside".into()
    } else {
        let mut hasher = DefaultHasher::new();
        (name, bytes).hash(&mut hasher);
        format!("{:x}", hasher.finish())
    };
    let commit = if fault == Fault::Moved { commit.replace('0', "9") } else { commit.to_string() };
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {said}\r\nContent-Range: bytes {start}-{}/{}\r\nETag: \"{etag}\"\r\nX-Repo-Commit: \
         {commit}\r\nConnection: close\r\n\r\n",
        end.saturating_sub(1),
        bytes.len(),
    )?;
    stream.write_all(sent)
}

fn status_line(stream: &mut TcpStream, status: u16) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status} Told\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// A home of its own; the environment is that of the whole process, so all is one test.
fn set(variables: &[(&str, Option<&str>)]) {
    for (name, value) in variables {
        // SAFETY: this program has one test, and no other thread of it reads the environment.
        match value {
            Some(value) => unsafe { std::env::set_var(name, value) },
            None => unsafe { std::env::remove_var(name) },
        }
    }
}

fn cache() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    set(&[("HF_HOME", home.path().to_str()), ("HF_HUB_CACHE", None), ("HF_TOKEN", None), ("HF_HUB_OFFLINE", None)]);
    home
}

fn failed(hub: &Hub, fault: Fault) -> String {
    let home = cache();
    *hub.fault.lock().unwrap() = fault;
    let error = locate("somebody/tiny", |_| ()).unwrap_err().to_string();
    let snapshots = home.path().join("hub/models--somebody--tiny/snapshots");
    let whole =
        fs::read_dir(snapshots).into_iter().flatten().flatten().any(|it| it.path().join("config.json").exists());
    assert!(!whole, "{fault:?} leaves what looks whole");
    assert!(!home.path().join("outside").exists() && !home.path().parent().unwrap().join("outside").exists());
    // What broke off is no hindrance.
    *hub.fault.lock().unwrap() = Fault::None;
    assert!(PublishedModel::open(locate("somebody/tiny", |_| ()).expect("a second try")).is_ok(), "{fault:?}");
    error
}

/// A revision is in the cache, or comes there: the files of its commit, and its name.
fn is_there(home: &TempDir, (revision, commit): (&str, &str)) {
    let model = home.path().join("hub/models--somebody--tiny");
    let found = locate(format!("somebody/tiny@{revision}"), |_| ()).unwrap();
    assert_eq!(found, model.join("snapshots").join(commit), "{revision}");
    assert_eq!(fs::read_to_string(found.join("tokenizer.json")).unwrap(), tokenizer(word(commit)), "{revision}");
    assert_eq!(fs::read_to_string(model.join("refs").join(revision)).unwrap(), commit, "{revision}");
}

/// What the hub is asked for meanwhile.
fn asked_for(hub: &Hub, act: impl FnOnce()) -> Vec<String> {
    let before = hub.asked.lock().unwrap().len();
    act();
    hub.asked.lock().unwrap()[before..].to_vec()
}

/// Branches, tags and commits are downloaded, lie side by side and are found again; what is none of them is told.
fn revisions_are_apart(hub: &Hub) {
    let all = [("main", COMMIT), ("v2.0", LATER), ("work/next", LATER), (LATER, LATER), (&LATER[..7], LATER)];
    for (revision, commit) in all {
        let home = cache();
        let asked = asked_for(hub, || is_there(&home, (revision, commit)));
        let list = format!("/api/models/somebody/tiny/revision/{} ", revision.replace('/', "%2F"));
        assert!(asked[0].starts_with(&list) && asked.len() > 1, "{revision}: {asked:?}");
        // One commit, whatever a branch comes to mean meanwhile.
        assert!(asked[1..].iter().all(|it| it.contains(&format!("/resolve/{commit}/"))), "{revision}: {asked:?}");
        set(&[("HF_HUB_OFFLINE", Some("1"))]);
        assert!(asked_for(hub, || is_there(&home, (revision, commit))).is_empty(), "{revision}");
    }

    let home = cache();
    all.iter().for_each(|revision| is_there(&home, *revision));
    for missing in ["v3.0", "work", "0123457"] {
        let error = locate(format!("somebody/tiny@{missing}"), |_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("there is no model somebody/tiny@{missing} on the hub")), "{error}");
        assert!(error.ends_with(&format!("is `{missing}` a branch, a tag or a commit of it?")), "{error}");
    }
    set(&[("HF_HUB_OFFLINE", Some("1"))]);
    let asked = asked_for(hub, || all.iter().for_each(|revision| is_there(&home, *revision)));
    assert!(asked.is_empty(), "{asked:?}");
    let error = locate("somebody/tiny@v3.0", |_| ()).unwrap_err().to_string();
    assert!(error.ends_with("hf download somebody/tiny --revision v3.0"), "{error}");
}

#[test]
fn a_model_comes_whole_or_not_at_all() {
    let hub = Hub::start();
    set(&[("HF_ENDPOINT", Some(&hub.endpoint))]);

    let home = cache();
    set(&[("HF_TOKEN", Some("hf_secret"))]);
    let mut told = Vec::new();
    let folder = locate("somebody/tiny", |sentence| told.push(sentence.to_string())).unwrap();
    assert_eq!(folder, home.path().join("hub/models--somebody--tiny/snapshots").join(COMMIT));
    assert!(told.iter().any(|it| it.starts_with("downloading config.json of somebody/tiny, ")), "{told:?}");
    assert!(told.last().unwrap().contains("config.json") && !told.iter().any(|it| it.contains("README")), "{told:?}");
    assert!(matches!(PublishedModel::open(&folder).unwrap().load(&Device::default()).unwrap(), AutoModel::Language(_)));
    assert!(hub.asked.lock().unwrap().iter().all(|asked| asked.ends_with(" Bearer hf_secret")));

    // A second time nothing is asked, nor by its commit, nor where the network is forbidden.
    let asked = hub.asked.lock().unwrap().len();
    set(&[("HF_HUB_OFFLINE", Some("1"))]);
    for name in ["somebody/tiny", "somebody/tiny@main", &format!("somebody/tiny@{COMMIT}")] {
        assert_eq!(locate(name, |_| ()).unwrap(), folder, "{name}");
    }
    let error = locate("somebody/other", |_| ()).unwrap_err().to_string();
    assert!(error.contains("no model of that name in") && error.contains("hf download somebody/other"), "{error}");
    let run = run_folder("somebody/tiny", &home.path().join("runs"), |_| ()).unwrap();
    assert!(run.join("tokenizer.json").is_file());
    assert_eq!(hub.asked.lock().unwrap().len(), asked);

    for (fault, expected) in [
        (Fault::List(404), "there is no model somebody/tiny on the hub"),
        (Fault::List(401), "set HF_TOKEN to a token that may read it"),
        (Fault::List(500), "cannot download its list of files of somebody/tiny: "),
        (Fault::Status(404), "there is no model somebody/tiny on the hub, or not model"),
        (Fault::Status(403), "the hub does not give somebody/tiny to everybody"),
        (Fault::Status(503), "cannot download "),
        (Fault::Cut, "try again"),
        (Fault::Short, "was cut short: "),
        (Fault::Closed, "cannot download its list of files"),
        (Fault::Garbage, "cannot download its list of files"),
        (Fault::NoJson, "cannot download its list of files"),
        (Fault::Tricks, "which is none"),
        (Fault::Moved, "which is none"),
    ] {
        let error = failed(&hub, fault);
        assert!(
            error.starts_with("there is no folder `somebody/tiny`, and ") && error.contains(expected),
            "{fault:?}: {error}"
        );
        assert!(!error.contains('\n') && error.len() < 400, "{error}");
    }

    revisions_are_apart(&hub);

    let _home = cache();
    set(&[("HF_ENDPOINT", Some("http://127.0.0.1:1"))]);
    let error = locate("somebody/tiny", |_| ()).unwrap_err().to_string();
    assert!(error.contains("look at the network and try again"), "{error}");
}
