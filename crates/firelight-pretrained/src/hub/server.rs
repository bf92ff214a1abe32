//! Requests to a hub. Each is given up when the hub is silent for too long. Redirects are followed here, one by one, because the token
//! is for the hub alone: the hosts that keep its large files never get it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::Duration;

use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body, Error};

/// Redirects of one request, at most.
const REDIRECTS: usize = 10;

/// The header that names the commit of a file.
const COMMIT: &str = "x-repo-commit";

/// Why a request came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The status of the answer, and when it says that the next try may come.
    Status(u16, Option<String>),
    /// Nothing came for this long.
    Silence(Duration),
    /// Anything else, in words.
    Other(String),
}

impl Failure {
    fn of_file(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

/// What a hub says about a file.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) commit: String,
    /// The name of the content, which another file with the same content has, too.
    pub(super) etag: String,
    /// In bytes.
    pub(super) size: u64,
}

/// A hub, as it is asked.
#[derive(Debug)]
pub(super) struct Server {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    silence: Duration,
}

impl Server {
    /// The hub at `endpoint`, such as `https://huggingface.co`; `silence` is how long a connection, an answer and every further part of it
    /// may take to come.
    pub(super) fn new(endpoint: &str, token: Option<String>, silence: Duration) -> Self {
        let limit = Some(silence);
        let config = Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("firelight/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_resolve(limit)
            .timeout_connect(limit)
            .timeout_send_request(limit)
            .timeout_recv_response(limit)
            .timeout_per_read(limit)
            .build();
        let endpoint = endpoint.trim_end_matches('/').to_string();
        Self { agent: Agent::new_with_config(config), endpoint, token, silence }
    }

    /// A short text, such as the list of a model's files.
    pub(super) fn text(&self, path: &str) -> Result<String, Failure> {
        let (mut response, _) = self.answer(path, None)?;
        response.body_mut().read_to_string().map_err(|error| self.failure(error))
    }

    /// What the hub says about a file, of which one byte is asked for.
    pub(super) fn metadata(&self, path: &str) -> Result<Metadata, Failure> {
        let (response, said) = self.answer(path, Some("bytes=0-0"))?;
        let lacking = |what: &str| Failure::Other(format!("the answer says no {what}"));
        // A file that lies elsewhere has a name and a size here as well.
        let etag = header(&said, "x-linked-etag").or_else(|| header(&said, "etag"));
        let size = header(&said, "x-linked-size").and_then(|size| size.parse::<u64>().ok());
        Ok(Metadata {
            commit: header(&said, COMMIT).ok_or_else(|| lacking("commit"))?.to_string(),
            etag: etag.ok_or_else(|| lacking("hash"))?.trim_start_matches("W/").trim_matches('"').to_string(),
            size: size.or_else(|| size_of(&response)).ok_or_else(|| lacking("size"))?,
        })
    }

    /// Adds what `file` lacks of its `size` bytes, or some of it, where the answer is cut short.
    pub(super) fn fill(&self, path: &str, size: u64, file: &mut File) -> Result<(), Failure> {
        let found = file.metadata().map_err(Failure::of_file)?.len();
        if found == size {
            return Ok(());
        }
        let asked = if found < size { found } else { 0 };
        let (response, _) = self.answer(path, Some(&format!("bytes={asked}-")))?;
        // A hub that knows no parts sends the whole file.
        let start = if response.status().as_u16() == 206 { asked } else { 0 };
        file.set_len(start).map_err(Failure::of_file)?;
        file.seek(SeekFrom::Start(start)).map_err(Failure::of_file)?;
        // One byte more tells that a body is too long.
        let mut body = response.into_body().into_reader().take((size - start).saturating_add(1));
        io::copy(&mut body, file).map_err(|error| self.failure(Error::from(error)))?;
        Ok(())
    }

    /// The answer at the end of all redirects, and the headers of the last one that names a commit, which is the hub's own.
    fn answer(&self, path: &str, range: Option<&str>) -> Result<(Response<Body>, HeaderMap), Failure> {
        let mut address = format!("{}/{path}", self.endpoint);
        let mut said = HeaderMap::new();
        for _ in 0..=REDIRECTS {
            let response = self.ask(&address, range)?;
            let headers = response.headers();
            if headers.contains_key(COMMIT) {
                said = headers.clone();
            }
            let status = response.status();
            if status.is_success() {
                return Ok((response, said));
            }
            if !status.is_redirection() {
                return Err(Failure::Status(status.as_u16(), header(headers, "retry-after").map(str::to_string)));
            }
            let next = header(headers, "location").and_then(|location| next(&address, location));
            address = next.ok_or_else(|| Failure::Other(format!("status {} names no address", status.as_u16())))?;
        }
        Err(Failure::Other(format!("there are more than {REDIRECTS} redirects")))
    }

    fn ask(&self, address: &str, range: Option<&str>) -> Result<Response<Body>, Failure> {
        let mut request = self.agent.get(address);
        if let Some(token) = self.token.as_ref().filter(|_| origin(address) == origin(&self.endpoint)) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if let Some(range) = range {
            request = request.header("Range", range);
        }
        request.call().map_err(|error| self.failure(error))
    }

    fn failure(&self, error: Error) -> Failure {
        match error {
            Error::Timeout(_) => Failure::Silence(self.silence),
            other => Failure::Other(other.to_string()),
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The size of a file of which a part came, or all of it.
fn size_of(response: &Response<Body>) -> Option<u64> {
    match header(response.headers(), "content-range") {
        Some(range) => range.rsplit('/').next()?.trim().parse::<u64>().ok(),
        None => header(response.headers(), "content-length")?.trim().parse::<u64>().ok(),
    }
}

/// Where a redirect leads: to a whole address, or to a path of the same host.
fn next(address: &str, location: &str) -> Option<String> {
    let is_whole = location.starts_with("https://") || location.starts_with("http://");
    match is_whole {
        true => Some(location.to_string()),
        false => location.starts_with('/').then(|| format!("{}{location}", origin(address))),
    }
}

/// Scheme, host and port of an address.
fn origin(address: &str) -> &str {
    let host = address.find("://").map_or(0, |at| at + 3);
    let end = address[host..].find(['/', '?', '#']).map_or(address.len(), |at| host + at);
    &address[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_a_path_of_the_same_host_or_to_another_one() {
        let address = "https://hub.example:8080/a/b/resolve/main/x?y=/z";
        assert_eq!(origin(address), "https://hub.example:8080");
        assert_eq!(next(address, "/c/d?e=1").as_deref(), Some("https://hub.example:8080/c/d?e=1"));
        assert_eq!(next(address, "https://store.example/x").as_deref(), Some("https://store.example/x"));
        assert_eq!((next(address, "ftp://store.example/x"), next(address, "")), (None, None));
    }

    #[test]
    fn hosts_that_only_look_like_the_hub_are_others() {
        let hub = origin("https://hub.example");
        for address in
            ["http://hub.example/", "https://hub.example:81/", "https://hub.example@evil/", "https://hub.example.evil/"]
        {
            assert_ne!(origin(address), hub, "{address}");
        }
        assert_eq!(origin("https://hub.example?a"), hub);
    }
}
