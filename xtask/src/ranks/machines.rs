//! Two machines in one: network namespaces, each with a host name and an address of its own, and a cable between them. Needs root.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command::{is_ci, program, workspace_root};

/// What nothing else than these namespaces sees.
pub(super) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// What the names of namespaces begin with. The process follows, for several clones may be at work.
const PREFIX: &str = "firelight-";

/// What makes the ends of a cable.
const TUN: &str = "/dev/net/tun";

const ADVICE: &str = "apt-get install iproute2";

/// What would be flags of `mpirun` that the how-to does not have: ranks are started as root, and have 300 seconds.
const ENVIRONMENT: [(&str, &str); 3] =
    [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"), ("MPIEXEC_TIMEOUT", "300")];

/// How long ranks that lost `mpirun` may be there; much more than they need on a machine that is busy.
const IDLE: Duration = Duration::from_secs(60);

/// Why this machine cannot be two. A program that root can install is an error where `CI` is `true`.
pub(super) fn obstacle() -> Result<Option<String>> {
    if !is_root() {
        return Ok(Some("network namespaces need root".into()));
    }
    if program("ip", "-V").stdout(Stdio::null()).status().is_err() {
        ensure!(!is_ci(), "two machines: `ip` is not installed, `{ADVICE}` brings it");
        return Ok(Some(format!("`{ADVICE}` brings `ip`")));
    }
    Ok(try_out().err().map(|error| format!("the kernel does not allow it: {error:#}")))
}

fn is_root() -> bool {
    program("id", "-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

/// What containers may forbid even to root.
fn try_out() -> Result<()> {
    let name = name(0);
    let done = ip(&format!("netns add {name}")).and_then(|()| ip(&format!("netns exec {name} unshare --uts true")));
    remove(&name);
    done?;
    File::options().read(true).write(true).open(TUN).with_context(|| format!("cannot open {TUN}"))?;
    Ok(())
}

pub(super) struct Machines {
    names: [String; 2],
    cable: Option<Child>,
}

impl Machines {
    pub(super) fn connected(delay: u32) -> Result<Self> {
        remove_stale();
        let mut machines = Self { names: [1, 2].map(name), cable: None };
        machines.names.iter().try_for_each(|name| ip(&format!("netns add {name}")))?;
        let [first, second] = &machines.names;
        let mut cable = program("python3", &format!("xtask/src/ranks/cable.py {delay} {first} {second}"));
        cable.stdin(Stdio::piped()).stdout(Stdio::piped()); // the cable ends with its input
        let cable = machines.cable.insert(cable.spawn().context("cannot start `python3`")?);
        let mut said = String::new();
        if let Some(stdout) = cable.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        ensure!(!said.is_empty(), "there is no cable between the namespaces: it needs root and {TUN}");
        for (name, address) in machines.names.iter().zip(ADDRESSES) {
            ip(&format!("-n {name} addr add {address}/24 dev eth0"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        machines.connect()?;
        Ok(machines)
    }

    pub(super) fn connect(&self) -> Result<()> {
        self.names.iter().try_for_each(|name| ip(&format!("-n {name} link set eth0 up")))
    }

    pub(super) fn cut(&self) -> Result<()> {
        ip(&format!("-n {} link set eth0 down", self.names[1]))
    }

    /// A command on the first machine. `mpirun` starts the ranks of the other one by a script in the place of ssh.
    pub(super) fn command(&self, words: &[String]) -> Command {
        let shell = workspace_root().join("xtask/src/ranks/remote_shell.sh");
        let [first, second] = &self.names;
        let mut command = program("ip", &format!("netns exec {first} unshare --uts sh -c"));
        command.args(["hostname \"$0\"; exec \"$@\"", first.as_str()]).args(words);
        command.env("OMPI_MCA_plm_rsh_agent", format!("sh {} {second}", shell.display())).envs(ENVIRONMENT);
        command
    }

    /// Waits until nothing runs on the machines.
    pub(super) fn are_idle(&self) -> Result<()> {
        let began = Instant::now();
        for name in &self.names {
            while let Some(process) = said_by_ip(&format!("netns pids {name}"))?.lines().next() {
                ensure!(began.elapsed() < IDLE, "the process {process} is still there on {name}");
                sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        if let Some(cable) = &mut self.cable {
            let _ = cable.kill();
            let _ = cable.wait();
        }
        self.names.iter().for_each(|name| remove(name));
    }
}

fn name(number: u32) -> String {
    format!("{PREFIX}{}-{number}", process::id())
}

/// Removes the namespaces of tests that were killed.
fn remove_stale() {
    let all = said_by_ip("netns list").unwrap_or_default();
    let names = all.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| is_stale(name)).for_each(remove);
}

fn is_stale(name: &str) -> bool {
    let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
    owner.is_some_and(|id| id != process::id() && !Path::new("/proc").join(id.to_string()).exists())
}

fn remove(name: &str) {
    let _ = program("ip", &format!("netns del {name}")).stderr(Stdio::null()).status(); // it may not be there
}

fn said_by_ip(line: &str) -> Result<String> {
    let output = program("ip", line).output().context("cannot start `ip`")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ip(line: &str) -> Result<()> {
    let output = program("ip", line).output().with_context(|| format!("cannot start `ip`: `{ADVICE}` brings it"))?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {line}`: {}", reason.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_a_process_that_is_gone_are_stale() {
        let beyond_all_processes = format!("{PREFIX}{}-1", u32::MAX);
        assert!(is_stale(&beyond_all_processes));
        for name in [name(1), format!("{PREFIX}one-1"), "node1".into()] {
            assert!(!is_stale(&name), "{name}");
        }
    }
}
