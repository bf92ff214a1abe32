//! `tests/consumer`: a Burn project outside the workspace, with a lock file of its own.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, run};

const MANIFEST: &str = "--manifest-path tests/consumer/Cargo.toml";

/// The devices that its tests run on, by the names that `BURN_DEVICE` takes.
const DEVICES: [&str; 2] = ["flex", "ndarray"];

/// A moment's work: whether the lock files outside of the workspace still fit, and whether Burn is built once. If a file does not fit, copy
/// Cargo.lock there and run `cargo metadata` in its folder.
pub(crate) fn check_locks() -> Result<()> {
    run("consumer lock", &mut cargo(&format!("tree {MANIFEST} --depth 0")))?;
    run("fuzz lock", &mut cargo("tree --manifest-path fuzz/Cargo.toml --depth 0"))?;
    check_features()
}

/// Packages from a registry, each with the lists of features that it is built with, for a proc macro perhaps another one.
type Features = BTreeMap<String, Vec<String>>;

/// Whether the consumer's tests take Burn as those of the workspace built it. With other features, of Burn or of anything below it, it would be
/// built anew, which takes longer than all tests.
fn check_features() -> Result<()> {
    let own = features(&format!("{MANIFEST} --features ndarray"))?;
    let differing = built_anew(&own, &features("--workspace --features ndarray")?);
    ensure!(
        differing.is_empty(),
        "tests/consumer has other features than the workspace: name those of the workspace in workspace-hack/Cargo.toml. {differing:?}"
    );
    Ok(())
}

/// Packages of which no list of features is one of the workspace's.
fn built_anew<'a>(own: &'a Features, workspace: &Features) -> Vec<(&'a String, &'a Vec<String>)> {
    let is_there = |(name, lists): &(&String, &Vec<String>)| {
        workspace.get(*name).is_some_and(|others| lists.iter().any(|list| others.contains(list)))
    };
    own.iter().filter(|package| !is_there(package)).collect()
}

fn features(of: &str) -> Result<Features> {
    let mut tree = cargo(&format!("tree {of} --edges normal,dev --prefix none --format {{p}}|{{f}}"));
    let output = tree.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    Ok(parsed(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines of `name version|features`, some with a mark that they have been there before. Packages of a folder name it.
fn parsed(tree: &str) -> Features {
    let mut found = Features::new();
    let lines = tree.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once('|'));
    for (package, features) in lines.filter(|(package, _)| !package.contains("(/")) {
        found.entry(package.to_owned()).or_default().push(features.to_owned());
    }
    found
}

/// Formats and lints it, builds it once and runs its tests on both CPU backends. Burn is there from the tests before.
pub(crate) fn check() -> Result<()> {
    run("consumer format", &mut cargo(&format!("fmt {MANIFEST} --check")))?;
    run("consumer clippy", &mut cargo(&format!("clippy {MANIFEST} --all-targets --features ndarray -- -D warnings")))?;
    DEVICES.into_iter().try_for_each(|device| run(&format!("consumer on {device}"), &mut tests_on(device)))
}

/// Its tests on a device: the same build for each.
fn tests_on(device: &str) -> Command {
    let mut command = cargo(&format!("test {MANIFEST} --features ndarray"));
    command.env("BURN_DEVICE", device);
    command
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsStr;
    use std::fs;

    use super::*;
    use crate::command::workspace_root;

    /// What a newcomer reads first, each with the most lines of code that it has: attention, a block and a mask rule of one's own with
    /// their proofs, and a model of one's own, which `fit` trains in 100 lines and Burn's Learner in 15 more.
    const SHOWN: [(&str, usize); 4] = [
        ("tests/own_attention.rs", 70),
        ("tests/own_block.rs", 70),
        ("tests/own_mask.rs", 50),
        ("src/forecaster.rs", 115),
    ];

    /// Lines that are neither empty nor comments.
    fn lines_of_code(text: &str) -> usize {
        let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
        text.lines().map(str::trim).filter(is_code).count()
    }

    #[test]
    fn parts_of_ones_own_are_short() {
        let folder = workspace_root().join("tests/consumer");
        for (name, most) in SHOWN {
            let found = lines_of_code(&fs::read_to_string(folder.join(name)).expect("a file of the consumer"));
            assert!(
                found <= most,
                "{name} has {found} lines of code, {most} at most: shorten by a better interface, not by longer lines"
            );
        }
        assert_eq!(lines_of_code("//! A.\n\nfn a() {\n    // One.\n    b(); // Two.\n}\n"), 3);
    }

    #[test]
    fn a_package_with_other_features_is_built_anew() {
        let workspace = parsed("burn v1|flex,std\nbytes v1|std\nbytes v1|\nours v1 (/a/folder)|\n");
        let alike = parsed("burn v1|flex,std (*)\nbytes v1|\nours v1 (/another)|flex\n");
        assert!(alike.len() == 2 && built_anew(&alike, &workspace).is_empty(), "{alike:?}");
        let other = parsed("burn v1|flex\nbytes v2|std\n");
        assert_eq!(built_anew(&other, &workspace).len(), 2);
    }

    /// A file that asked for a backend by name would compute on that one in both runs.
    #[test]
    fn its_tests_run_on_both_cpu_backends_by_one_build() {
        for folder in ["tests/consumer/src", "tests/consumer/tests"] {
            let files = fs::read_dir(workspace_root().join(folder)).expect("the consumer");
            for path in files.map(|file| file.expect("a file").path()) {
                let text = fs::read_to_string(&path).expect("a source");
                let named = DEVICES.iter().find(|device| text.contains(&format!("Device::{device}(")));
                assert_eq!(named, None, "{}: take Device::default()", path.display());
            }
        }
        let [flex, ndarray] = DEVICES.map(tests_on);
        assert!(flex.get_args().eq(ndarray.get_args()), "{flex:?} and {ndarray:?} are two builds");
        let device = (OsStr::new("BURN_DEVICE"), Some(OsStr::new("ndarray")));
        assert!(ndarray.get_envs().any(|variable| variable == device), "{ndarray:?}");
    }

    /// Name, version and source of each package.
    fn packages(lock: &str) -> BTreeSet<String> {
        let text = fs::read_to_string(workspace_root().join(lock)).unwrap_or_default();
        let lines = |part: &str| part.lines().filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join(", ");
        text.split("[[package]]").skip(1).map(lines).collect()
    }

    #[test]
    fn it_is_locked_to_the_versions_of_the_workspace() {
        let (root, own) = (packages("Cargo.lock"), packages("tests/consumer/Cargo.lock"));
        assert!(own.len() > 100, "{} packages", own.len());
        let others: Vec<_> = own.difference(&root).filter(|package| !package.contains("firelight-consumer")).collect();
        assert!(
            others.is_empty(),
            "copy Cargo.lock to tests/consumer, then run cargo metadata there: cargo drops what is not needed. {others:?}"
        );
    }
}
