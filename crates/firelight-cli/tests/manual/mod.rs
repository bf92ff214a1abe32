//! What the command tells about itself: its version, its recipes, its help, what shells complete and what `man` shows.

use std::fs;
use std::process::Command;

use crate::USER;
use crate::support::{Model, command, finish, firelight, model, text, train_with};

/// The commit of the repository whose sources these are; none in a package that was published.
fn checked_out() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_string())
    };
    if git(&["rev-parse", "--show-prefix"])? == "crates/firelight-cli/" { git(&["rev-parse", "HEAD"]) } else { None }
}

#[test]
fn the_version_names_the_commit_and_the_backends() {
    let long = firelight(["--version"]).succeeds().stdout;
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, concat!("firelight ", env!("CARGO_PKG_VERSION"))), "{long}");
    let commit = lines[1].strip_prefix("commit:   ").unwrap();
    match checked_out() {
        Some(head) => assert!(commit.len() >= 10 && head.starts_with(commit), "{head} is checked out: {long}"),
        None => assert_eq!(commit, "unknown"),
    }
    let backends = lines[2].strip_prefix("backends: ").unwrap();
    assert_eq!(backends.split(", ").any(|name| name == "ndarray"), cfg!(feature = "ndarray"), "{long}");
    assert!(backends.split(", ").any(|name| name == "flex"), "{long}");
    assert_eq!(firelight(["-V"]).succeeds().stdout, format!("{}\n", lines[0]));
}

#[test]
fn recipes_are_listed_and_printed_and_what_is_printed_is_a_recipe() {
    let listed = firelight(["recipes"]).succeeds().stdout;
    let names: Vec<&str> = listed.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert!(["stories", "dates", "texts", "images"].iter().all(|name| names.contains(name)), "{listed}");
    assert!(names.len() >= 10 && listed.lines().all(|line| line.len() > 40), "{listed}");
    let scratch = Model::scratch();
    for name in names {
        let printed = firelight(["train", name, "--print-config", "--seed", "5"]).succeeds().stdout;
        assert!(printed.lines().any(|line| line == "seed = 5") && printed.contains("[optimizer]"), "{printed}");
        let file = scratch.path().join(format!("{name}.toml"));
        fs::write(&file, &printed).unwrap();
        assert_eq!(firelight(["train", &text(&file), "--print-config"]).succeeds().stdout, printed, "{name}");
    }
}

#[test]
fn the_printed_recipe_is_the_one_of_the_run() {
    let kept = fs::read_to_string(model().dir.join("recipe.toml")).unwrap();
    assert_eq!(train_with(&["--print-config"]).succeeds().stdout, kept);
    let resumed = firelight(["train", "--resume", "--out", &text(&model().dir), "--print-config"]);
    assert_eq!(resumed.succeeds().stdout, kept);
    train_with(&["--print-config", "--dry-run"]).fails(USER, &["'--print-config'", "'--dry-run'"]);
    train_with(&["--print-config", "--set", "model.n_head=2"]).fails(USER, &["model.n_head", "n_heads"]);
}

#[test]
fn a_file_comes_before_the_embedded_recipe_of_its_name() {
    let scratch = Model::scratch();
    let texts = firelight(["train", "texts", "--print-config"]).succeeds().stdout;
    fs::write(scratch.path().join("dates"), &texts).unwrap();
    let printed = |name: &str| {
        let mut command = command(["train", name, "--print-config"]);
        command.current_dir(scratch.path());
        finish(command).succeeds().stdout
    };
    assert_eq!(printed("dates"), texts);
    assert_ne!(printed("entities"), texts);
}

/// The help of every command is looked at beside the parser, in `src/main.rs`.
#[test]
fn help_goes_to_the_standard_output() {
    for command in [&["train"][..], &["visualize", "loss"]] {
        let long = firelight([command, &["--help"]].concat()).succeeds();
        let begin = format!("  firelight {} ", command.join(" "));
        assert!(long.stdout.contains("Examples:") && long.stdout.contains(&begin), "{}", long.stdout);
        let short = firelight([command, &["-h"]].concat()).succeeds();
        assert!(short.stdout.contains("Usage: firelight") && !short.stdout.contains("Examples:"), "{}", short.stdout);
        assert_eq!((long.stderr.as_str(), short.stderr.as_str()), ("", ""));
    }
}

#[test]
fn shells_complete_and_manual_pages_are_written() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = firelight(["completions", shell]).succeeds().stdout;
        assert!(["translate", "length-penalty"].iter().all(|word| script.contains(word)), "{shell}");
    }
    firelight(["completions", "tcsh"]).fails(USER, &["'tcsh'", "bash"]);

    let scratch = Model::scratch();
    let out = scratch.path().join("man1");
    let said = firelight(["man", "--out", &text(&out)]).succeeds().stderr;
    let pages = fs::read_dir(&out).unwrap().count();
    assert!(pages > 14 && said.starts_with(&format!("wrote {pages} manual pages")), "{said}");
    let page = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert!(page("firelight.1").contains("firelight\\-train") && page("firelight-train.1").contains("self\\-check"));
    assert!(page("firelight-visualize-schedule.1").contains("learning rate"));
    assert!(!out.join("firelight-help.1").exists());
}
