//! What docs/how-to/distributed.md says about several machines, word for word.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::command::workspace_root;

pub(super) const PAGE: &str = "docs/how-to/distributed.md";

const SECTION: &str = "\n## On several machines\n";

/// What to do on several machines.
#[derive(Clone, Debug)]
pub(super) struct Instructions {
    /// The file of hosts.
    pub(super) hosts: String,
    /// The words of the command, with all flags that the prose adds for some machines.
    pub(super) command: Vec<String>,
}

impl Instructions {
    pub(super) fn read() -> Result<Self> {
        let page = fs::read_to_string(workspace_root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
        Self::of(&page)
    }

    fn of(page: &str) -> Result<Self> {
        let (_, rest) =
            page.split_once(SECTION).with_context(|| format!("{PAGE} has no section `{}`", SECTION.trim()))?;
        let section = rest.split("\n## ").next().unwrap_or(rest);
        let command = block(section, "sh")?.replace("\\\n", " ");
        let (mpirun, arguments) = command.split_once(' ').unwrap_or((command.as_str(), ""));
        let words = [mpirun].into_iter().chain(flags(section)).chain(arguments.split_whitespace());
        Ok(Self { hosts: block(section, "text")?.into(), command: words.map(str::to_owned).collect() })
    }

    /// The instructions with `replacement` for a host or a word; an error says that the page does not have it.
    pub(super) fn with(mut self, original: &str, replacement: &str) -> Result<Self> {
        let is_there = self.hosts.contains(original) || self.command.iter().any(|word| word == original);
        ensure!(is_there, "{PAGE}: `{original}` is not in the section `{}`", SECTION.trim());
        self.hosts = self.hosts.replace(original, replacement);
        for word in self.command.iter_mut().filter(|word| word.as_str() == original) {
            *word = replacement.to_owned();
        }
        Ok(self)
    }

    /// What one rank runs: the words from the program on.
    pub(super) fn of_one_rank(&self) -> &[String] {
        let before = self.command.iter().position(|word| word.ends_with("/firelight"));
        &self.command[before.unwrap_or(0)..]
    }
}

/// The first block of code in a language.
fn block<'a>(section: &'a str, language: &str) -> Result<&'a str> {
    let begun = section.split_once(&format!("```{language}\n"));
    let block = begun.and_then(|(_, rest)| rest.split_once("```"));
    Ok(block.with_context(|| format!("{PAGE}: no block `{language}` in the section `{}`", SECTION.trim()))?.0)
}

/// The words of all parameters of `mpirun` in the prose.
fn flags(section: &str) -> impl Iterator<Item = &str> {
    section.split('`').filter(|code| code.starts_with("--mca ")).flat_map(str::split_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "# Ranks\n\n```sh\nmpirun -n 2 a\n```\n\n## On several machines\n\nHosts:\n\n```text\nnode1 slots=4\n```\n\n\
        ```sh\nmpirun -n 8 bin/firelight train \\\n    --out /shared/a\n```\n\nBy `ssh`, or `--mca x 1 --mca y 2`.\n\n## More\n\n`--mca z 3`\n";

    #[test]
    fn a_section_becomes_hosts_and_words() {
        let small = Instructions::of(SMALL).unwrap();
        assert_eq!(small.hosts, "node1 slots=4\n");
        assert_eq!(small.command.join(" "), "mpirun --mca x 1 --mca y 2 -n 8 bin/firelight train --out /shared/a");
        assert_eq!(small.of_one_rank().join(" "), "bin/firelight train --out /shared/a");
    }

    #[test]
    fn what_is_replaced_must_be_there() {
        let small = Instructions::of(SMALL).unwrap();
        let changed = small.clone().with("node1", "10.0.0.1").unwrap().with("/shared/a", "b").unwrap();
        assert_eq!(changed.hosts, "10.0.0.1 slots=4\n");
        assert_eq!(changed.of_one_rank().join(" "), "bin/firelight train --out b");
        let error = small.with("node3", "10.0.0.3").unwrap_err().to_string();
        assert!(error.contains("`node3` is not in the section `## On several machines`"), "{error}");
    }

    #[test]
    fn the_page_says_how_a_lost_machine_is_noticed() {
        let page = Instructions::read().unwrap();
        for word in ["mpirun", "--hostfile", "btl_tcp_if_include", "oob_tcp_keepalive_time", "train"] {
            assert!(page.command.iter().any(|found| found == word), "`{word}` is not in {:?}", page.command);
        }
        assert!(
            !page.command.iter().any(|word| word == "-q"),
            "it would leave out what `mpirun` says of a lost machine"
        );
    }
}
