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
    /// Requests are accepted, and that is all.
    Silent,
    /// A body stops in its middle, and the connection stays.
    Stuck,
    /// Redirects without end.
    Circle,
}

/// Where a hub sends those who ask for a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Nowhere: it has the file.
    Here,
    /// To another path, which is relative.
    Aside,
    /// To another host.
    Away,
}

/// A hub of one model, `somebody/tiny`.
struct Hub {
    endpoint: String,
    fault: Arc<Mutex<Fault>>,
    way: Arc<Mutex<Way>>,
    asked: Arc<Mutex<Vec<String>>>,
    /// What the other host is asked for.
    asked_away: Arc<Mutex<Vec<String>>>,
}

type Commits = [(&'static str, BTreeMap<String, Vec<u8>>); 2];

/// A request.
struct Request {
    path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Reads one, and notes its path and its token.
    fn read(stream: &TcpStream, asked: &Mutex<Vec<String>>) -> std::io::Result<Self> {
        let lines = BufReader::new(stream.try_clone()?).lines();
        let lines: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let path = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_string();
        let header = |line: &String| line.split_once(": ").map(|(key, value)| (key.to_lowercase(), value.to_string()));
        let request = Self { path, headers: lines.iter().filter_map(header).collect() };
        let token = request.header("authorization").unwrap_or_default();
        asked.lock().unwrap().push(format!("{} {token}", request.path));
        Ok(request)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The bytes that are asked for.
    fn range(&self, size: usize) -> std::ops::Range<usize> {
        let range = self.header("range").unwrap_or("bytes=0-").trim_start_matches("bytes=");
        let (start, end) = range.split_once('-').unwrap_or(("0", ""));
        let end = end.parse().map_or(size, |end: usize| end + 1).min(size);
        start.parse::<usize>().unwrap_or(0).min(end)..end
    }
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
        // Another host where the machine has one, else another port.
        let other = TcpListener::bind("127.0.0.2:0").or_else(|_| TcpListener::bind("127.0.0.1:0")).unwrap();
        let [endpoint, away] = [&listener, &other].map(|it| format!("http://{}", it.local_addr().unwrap()));
        let hub = Self {
            endpoint,
            fault: Arc::new(Mutex::new(Fault::None)),
            way: Arc::new(Mutex::new(Way::Here)),
            asked: Arc::default(),
            asked_away: Arc::default(),
        };
        let commits: Arc<Commits> = Arc::new([COMMIT, LATER].map(|commit| (commit, files(commit))));
        let (files, asked) = (commits.clone(), hub.asked_away.clone());
        std::thread::spawn(move || other.incoming().flatten().for_each(|stream| drop(store(stream, &files, &asked))));
        let (fault, way, asked) = (hub.fault.clone(), hub.way.clone(), hub.asked.clone());
        std::thread::spawn(move || {
            // Connections that stay, though nothing comes any more.
            let mut held = Vec::new();
            for stream in listener.incoming().flatten() {
                let (fault, way) = (*fault.lock().unwrap(), *way.lock().unwrap());
                held.extend(stream.try_clone().ok().filter(|_| matches!(fault, Fault::Silent | Fault::Stuck)));
                // What is broken off on purpose is no failure of the hub's.
                let _ = answer(stream, (fault, way), &away, &commits, &asked);
            }
        });
        hub
    }
}

/// Answers one request and closes the connection.
fn answer(
    mut stream: TcpStream,
    (fault, way): (Fault, Way),
    away: &str,
    commits: &Commits,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let request = Request::read(&stream, asked)?;
    let path = request.path.as_str();
    let is_list = path.starts_with("/api/models/");
    match fault {
        Fault::Closed | Fault::Silent => return Ok(()),
        Fault::Garbage => return stream.write_all(b"220 mail.example ESMTP\r\n"),
        Fault::List(status) if is_list => return status_line(&mut stream, status, ""),
        Fault::Status(status) if !is_list => return status_line(&mut stream, status, ""),
        Fault::Circle if !is_list => return status_line(&mut stream, 302, &format!("Location: {path}\r\n")),
        _ => {}
    }
    // The revision stands behind the model's name: `/api/models/A/B/revision/R`, `/A/B/resolve/R/FILE` and `/moved/A/B/R/FILE`.
    let revision = path.split('/').nth(if is_list { 6 } else { 4 }).unwrap_or_default();
    let known = commit_of(revision).and_then(|commit| commits.iter().find(|(known, _)| *known == commit));
    let Some((commit, files)) = known else { return status_line(&mut stream, 404, "") };
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
    let Some(bytes) = files.get(name) else { return status_line(&mut stream, 404, "") };
    let etag = if fault == Fault::Tricks {
        "../../../outside".into()
    } else {
        let mut hasher = DefaultHasher::new();
        (name, bytes).hash(&mut hasher);
        format!("{:x}", hasher.finish())
    };
    match way {
        Way::Aside if !path.starts_with("/moved/") => {
            let location = format!("Location: /moved/somebody/tiny/{revision}/{name}\r\n");
            return status_line(&mut stream, 307, &location);
        }
        Way::Away => {
            let said =
                format!("X-Repo-Commit: {commit}\r\nX-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {}\r\n", bytes.len());
            return status_line(
                &mut stream,
                302,
                &format!("{said}Location: {away}/{commit}/{name}?signature=x%2Fy\r\n"),
            );
        }
        _ => {}
    }
    let commit = if fault == Fault::Moved { commit.replace('0', "9") } else { commit.to_string() };
    let said = format!("ETag: \"{etag}\"\r\nX-Repo-Commit: {commit}\r\n");
    part(&mut stream, bytes, request.range(bytes.len()), &said, fault)
}

/// The other host: it has files, and knows neither hashes nor commits.
fn store(mut stream: TcpStream, commits: &Commits, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let request = Request::read(&stream, asked)?;
    let path = request.path.split('?').next().unwrap_or_default();
    let (commit, name) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    let found = commits.iter().find(|(known, _)| *known == commit).and_then(|(_, files)| files.get(name));
    let Some(bytes) = found else { return status_line(&mut stream, 404, "") };
    part(&mut stream, bytes, request.range(bytes.len()), "ETag: \"of-the-store\"\r\n", Fault::None)
}

/// A part of a file.
fn part(
    stream: &mut TcpStream,
    bytes: &[u8],
    range: std::ops::Range<usize>,
    more: &str,
    fault: Fault,
) -> std::io::Result<()> {
    let (body, start, end) = (&bytes[range.clone()], range.start, range.end);
    let is_half = matches!(fault, Fault::Cut | Fault::Short | Fault::Stuck) && body.len() > 1;
    let sent = if is_half { &body[..body.len() / 2] } else { body };
    let said = if fault == Fault::Short { sent.len() } else { body.len() };
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {said}\r\nContent-Range: bytes {start}-{}/{}\r\n{more}Connection: \
         close\r\n\r\n",
        end.saturating_sub(1),
        bytes.len(),
    )?;
    stream.write_all(sent)
}

/// An answer without a body.
fn status_line(stream: &mut TcpStream, status: u16, more: &str) -> std::io::Result<()> {
    let wait = if status == 429 { "Retry-After: 7\r\n" } else { "" };
    write!(stream, "HTTP/1.1 {status} Told\r\n{wait}{more}Content-Length: 0\r\nConnection: close\r\n\r\n")
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
    set(&[("HF_HUB_DOWNLOAD_TIMEOUT", None)]);
    home
}

/// The files below a folder, links followed, by their paths in it.
fn below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(below(&path).into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

/// Nothing in the cache is less than a whole file of the model, but what is named as incomplete: that is the beginning of one.
fn is_whole(model: &Path, case: &str) {
    let whole = files(COMMIT);
    for (path, bytes) in below(&model.join("snapshots")) {
        let file = path.strip_prefix(COMMIT).unwrap_or_else(|| panic!("{case} leaves {path}")).trim_start_matches('/');
        assert_eq!(Some(&bytes), whole.get(file), "{case} leaves {path}");
    }
    for (path, bytes) in below(&model.join("blobs")) {
        let is_known = match path.ends_with(".incomplete") {
            true => whole.values().any(|file| file.starts_with(&bytes)),
            false => whole.values().any(|file| *file == bytes),
        };
        assert!(is_known, "{case} leaves {path} of {} bytes", bytes.len());
    }
}

fn failed(hub: &Hub, fault: Fault) -> String {
    let home = cache();
    let (model, case) = (home.path().join("hub/models--somebody--tiny"), format!("{fault:?}"));
    let limit = matches!(fault, Fault::Silent | Fault::Stuck).then_some("0.3");
    set(&[("HF_HUB_DOWNLOAD_TIMEOUT", limit)]);
    *hub.fault.lock().unwrap() = fault;
    let error = locate("somebody/tiny", |_| ()).unwrap_err().to_string();
    assert!(!model.join("refs").exists(), "{case} leaves what is called main");
    assert!(!model.join("snapshots").join(COMMIT).join("config.json").exists(), "{case} leaves what looks whole");
    is_whole(&model, &case);
    assert!(!home.path().join("outside").exists() && !home.path().parent().unwrap().join("outside").exists());
    // What broke off is no hindrance.
    *hub.fault.lock().unwrap() = Fault::None;
    set(&[("HF_HUB_DOWNLOAD_TIMEOUT", None)]);
    assert!(PublishedModel::open(locate("somebody/tiny", |_| ()).expect("a second try")).is_ok(), "{case}");
    is_whole(&model, &case);
    assert!(below(&model.join("snapshots")).len() > 3, "{case}");
    assert!(below(&model.join("blobs")).keys().all(|file| !file.ends_with(".incomplete")), "{case}");
    error
}

/// Large files of the real hub lie on another host, and other addresses are relative. The token is for the hub alone.
fn redirects_are_followed(hub: &Hub) {
    for way in [Way::Aside, Way::Away] {
        let home = cache();
        set(&[("HF_TOKEN", Some("hf_secret"))]);
        *hub.way.lock().unwrap() = way;
        let before = hub.asked_away.lock().unwrap().len();
        let asked = asked_for(hub, || is_there(&home, ("main", COMMIT)));
        *hub.way.lock().unwrap() = Way::Here;
        is_whole(&home.path().join("hub/models--somebody--tiny"), &format!("{way:?}"));
        assert!(asked.iter().all(|asked| asked.ends_with(" Bearer hf_secret")), "{way:?}: {asked:?}");
        assert_eq!(asked.iter().any(|asked| asked.starts_with("/moved/")), way == Way::Aside, "{way:?}: {asked:?}");
        let away = hub.asked_away.lock().unwrap()[before..].to_vec();
        assert_eq!(away.is_empty(), way == Way::Aside, "{way:?}: {away:?}");
        let is_signed =
            |asked: &String| asked.starts_with(&format!("/{COMMIT}/")) && asked.ends_with("?signature=x%2Fy ");
        assert!(away.iter().all(is_signed), "the token is told, or the signature lost: {away:?}");
    }
}

/// A revision is in the cache, or comes there: the files of its commit, and its name.
fn is_there(home: &TempDir, (revision, commit): (&str, &str)) {
    let model = home.path().join("hub/models--somebody--tiny");
    let found = locate(format!("somebody/tiny@{revision}"), |_| ()).unwrap();
    assert_eq!(found, model.join("snapshots").join(commit), "{revision}");
    assert_eq!(fs::read_to_string(found.join("tokenizer.json")).unwrap(), tokenizer(word(commit)), "{revision}");
    let kept = fs::read_to_string(model.join("refs").join(revision)).ok();
    // A commit that is there already needs no other name.
    assert!(
        kept.as_deref().is_some_and(|kept| kept == commit) || (kept.is_none() && revision == commit),
        "{revision}: {kept:?}"
    );
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
        (Fault::List(500), "cannot download the list of files of somebody/tiny: "),
        (Fault::Status(404), "there is no model somebody/tiny on the hub, or not model"),
        (Fault::Status(403), "the hub does not give somebody/tiny to everybody"),
        (Fault::Status(503), "cannot download "),
        (Fault::Cut, "try again"),
        (Fault::Short, "was cut short: "),
        (Fault::Closed, "cannot download the list of files"),
        (Fault::Garbage, "cannot download the list of files"),
        (Fault::NoJson, "cannot download the list of files"),
        (Fault::Tricks, "which is none"),
        (Fault::Moved, "which is none"),
        (
            Fault::List(429),
            "the hub refuses the list of files of somebody/tiny for now: too many requests (status 429)",
        ),
        (Fault::Status(429), "; try again in 7 seconds, or set HF_TOKEN"),
        (
            Fault::Silent,
            "cannot download the list of files of somebody/tiny: the hub was silent for 0.3 seconds; try again",
        ),
        (Fault::Stuck, " of somebody/tiny: the hub was silent for 0.3 seconds; try again"),
        (Fault::Circle, "there are more than 10 redirects"),
    ] {
        let error = failed(&hub, fault);
        assert!(
            error.starts_with("there is no folder `somebody/tiny`, and ") && error.contains(expected),
            "{fault:?}: {error}"
        );
        assert!(!error.contains('\n') && error.len() < 400, "{error}");
    }

    revisions_are_apart(&hub);
    redirects_are_followed(&hub);

    let _home = cache();
    set(&[("HF_ENDPOINT", Some("http://127.0.0.1:1"))]);
    let error = locate("somebody/tiny", |_| ()).unwrap_err().to_string();
    assert!(error.contains("look at the network and try again"), "{error}");

    for wrong in ["soon", "0", "-1", "NaN"] {
        set(&[("HF_HUB_DOWNLOAD_TIMEOUT", Some(wrong))]);
        let error = locate("somebody/tiny", |_| ()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("HF_HUB_DOWNLOAD_TIMEOUT is \"{wrong}\": expected a number of seconds")),
            "{error}"
        );
    }
}
