//! What several ranks make of a command: those of one process are refused, and others are shared.

use crate::USER;
use crate::support::{command, finish};

#[test]
fn a_command_of_one_process_is_refused_among_several() {
    let mut devices = command(["devices"]);
    devices.env("OMPI_COMM_WORLD_RANK", "0").env("OMPI_COMM_WORLD_SIZE", "4");
    finish(devices).fails(USER, &["this process is one of 4 (OMPI_COMM_WORLD_SIZE=4)", "start it by itself"]);
}

/// With an MPI and its `mpirun`.
#[cfg(feature = "mpi")]
mod by_mpi {
    use std::fs;
    use std::process::{Command, Stdio};

    use crate::support::{Finished, Model, finish, firelight, model, text};
    use crate::{USER, classification, translation};

    /// A command on several ranks.
    fn mpirun(world: usize, args: &[String]) -> Finished {
        let mut command = Command::new("mpirun");
        command.args(["-q", "--oversubscribe", "--allow-run-as-root", "-n", &world.to_string()]);
        command.arg(env!("CARGO_BIN_EXE_firelight")).args(args).env("HF_HUB_OFFLINE", "1").stdin(Stdio::null());
        finish(command)
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    /// More lines than ranks take at a time, of many lengths.
    fn many_lines(words: [&str; 2]) -> String {
        (0..1100).map(|line| format!("{}\n", words[line % 2].repeat(1 + line % 3))).collect()
    }

    #[test]
    fn answers_are_those_of_one_process_in_the_order_of_the_lines() {
        let home = Model::scratch();
        let [texts, sources, pairs] = ["texts.txt", "sources.txt", "pairs.txt"].map(|name| home.path().join(name));
        fs::write(&texts, many_lines(["a fine film ", "a dull film "])).unwrap();
        fs::write(&sources, many_lines(["abdc", "ab"])).unwrap();
        fs::write(&pairs, "abdc\tcdba\nabac\tcaba\n".repeat(20)).unwrap();
        let classifier = text(&classification::texts().run);
        let [texts, sources, pairs] = [texts, sources, pairs].map(|path| text(&path));
        for command in [
            words(&["classify", &classifier, "--file", &texts, "--json"]),
            words(&["embed", &classifier, "--file", &texts]),
            words(&["score", &text(&translation::pairs().run), "--file", &pairs, "--json"]),
            words(&["translate", &text(&translation::pairs().run), "--file", &sources, "--truncate", "--beams", "1"]),
            words(&["evaluate", &text(&model().dir), "--json"]),
        ] {
            let alone = firelight(&command);
            let found = mpirun(3, &command);
            assert_eq!((found.code, &found.stdout), (alone.code, &alone.stdout), "{command:?}: {}", found.stderr);
        }
    }

    #[test]
    fn a_line_that_is_wrong_is_told_once() {
        let home = Model::scratch();
        let file = home.path().join("pairs.txt");
        fs::write(&file, "abdc\tcdba\n".repeat(20) + "no tab\n").unwrap();
        let found = mpirun(2, &words(&["score", &text(&translation::pairs().run), "--file", &text(&file)]));
        let errors: Vec<&str> = found.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!((found.code, found.stdout.lines().count(), errors.len()), (USER, 21, 2), "{}", found.stderr);
        assert!(errors[0].contains("line 21: ") && errors[1].contains("1 of 21 lines"), "{errors:?}");

        fs::write(&file, [&b"abdc\tcdba\n".repeat(20)[..], b"\xff\n"].concat()).unwrap();
        let found = mpirun(2, &words(&["score", &text(&translation::pairs().run), "--file", &text(&file)]));
        assert_eq!((found.code, found.stderr.matches("error: ").count()), (USER, 1), "{}", found.stderr);
        assert!(found.stderr.contains("error: line 21 of `"), "{}", found.stderr);
    }

    #[test]
    fn what_cannot_be_shared_is_refused_once() {
        let found = mpirun(2, &words(&["translate", &text(&translation::pairs().run)]));
        assert_eq!(
            (found.code, found.stderr.matches("error: the standard input").count()),
            (USER, 1),
            "{}",
            found.stderr
        );
    }
}
