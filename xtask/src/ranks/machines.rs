//! Two machines in one: network namespaces, each with a host name and an address of its own, and a cable between them. Needs root.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::command::{program, workspace_root};

const NAMES: [&str; 2] = ["firelight-1", "firelight-2"];

/// What becomes 10.77.0.1 and 10.77.0.2, which nothing else than these namespaces sees.
const NETWORK: &str = "10.77.0";

/// As between machines: TCP alone, over this network, and `mpirun` looks every few seconds whether the other machine is still there.
const FLAGS: &str = "--allow-run-as-root --oversubscribe --timeout 300 --mca btl tcp,self \
                     --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
                     --mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
                     -n 4 -H 10.77.0.1:2,10.77.0.2:2 --map-by ppr:2:node";

/// How long ranks that lost `mpirun` may be there; much more than they need on a machine that is busy.
const IDLE: Duration = Duration::from_secs(60);

pub(super) struct Machines {
    cable: Option<Child>,
}

impl Machines {
    pub(super) fn connected(delay: u32) -> Result<Self> {
        remove(); // those of a test that was killed
        let mut machines = Self { cable: None };
        NAMES.iter().try_for_each(|name| ip(&format!("netns add {name}")))?;
        let [first, second] = NAMES;
        let mut cable = program("python3", &format!("xtask/src/ranks/cable.py {delay} {first} {second}"));
        let cable = machines.cable.insert(cable.stdout(Stdio::piped()).spawn().context("cannot start `python3`")?);
        let mut said = String::new();
        if let Some(stdout) = cable.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        ensure!(!said.is_empty(), "there is no cable between the namespaces: it needs root and /dev/net/tun");
        for (number, name) in (1..).zip(NAMES) {
            ip(&format!("-n {name} addr add {NETWORK}.{number}/24 dev cable"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        machines.connect()?;
        Ok(machines)
    }

    pub(super) fn connect(&self) -> Result<()> {
        NAMES.iter().try_for_each(|name| ip(&format!("-n {name} link set cable up")))
    }

    pub(super) fn cut(&self) -> Result<()> {
        ip(&format!("-n {} link set cable down", NAMES[1]))
    }

    /// `mpirun` on the first machine, to which the program is to be added. It starts the ranks of the other one by a script in the place of ssh.
    pub(super) fn mpirun(&self) -> Command {
        let shell = workspace_root().join("xtask/src/ranks/remote_shell.sh");
        let [first, second] = NAMES;
        let mut command = program("ip", &format!("netns exec {first} unshare --uts sh -c"));
        command.args(["hostname \"$0\"; exec \"$@\"", first, "mpirun"]).args(FLAGS.split_whitespace());
        command.args(["--mca", "plm_rsh_agent"]).arg(format!("sh {} {second}", shell.display()));
        command
    }

    /// Waits until nothing runs on the machines.
    pub(super) fn are_idle(&self) -> Result<()> {
        let began = Instant::now();
        for name in NAMES {
            while let Some(process) = processes(name)?.lines().next() {
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
        remove();
    }
}

fn remove() {
    for name in NAMES {
        let _ = program("ip", &format!("netns del {name}")).stderr(Stdio::null()).status(); // it may not be there
    }
}

fn processes(name: &str) -> Result<String> {
    let output = program("ip", &format!("netns pids {name}")).output().context("cannot start `ip`")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ip(line: &str) -> Result<()> {
    let output = program("ip", line).output().context("cannot start `ip`, which the package iproute2 brings")?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {line}`: {}; two machines in one need root", reason.trim());
    Ok(())
}
