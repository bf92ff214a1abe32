//! A text is printed while it is written.

use std::io::Read;
#[cfg(unix)]
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::{command, generate, model};

/// Nobody waits so long but for a text that is printed at its end, of which the first token takes milliseconds.
const IN_VAIN: Duration = Duration::from_secs(300);

#[test]
fn pieces_are_printed_long_before_the_end() {
    let endless =
        generate(&model().dir, &[]).into_iter().map(|arg| if arg == "30" { "1000000000".into() } else { arg });
    let mut child = command(endless).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut first = [0; 20];
        let read = stdout.read_exact(&mut first);
        let _ = sender.send(read.map(|()| (first, stdout))); // A program whose reader is gone would end.
    });
    let first = receiver.recv_timeout(IN_VAIN);
    let is_writing = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    child.wait().unwrap();
    let (first, _) = first.expect("nothing was printed").expect("the text ended within 20 bytes");
    assert!(is_writing && first.starts_with(b"The fox"), "{}", String::from_utf8_lossy(&first));
}

#[cfg(unix)]
#[test]
fn ctrl_c_completes_a_constrained_text() {
    // Without the last character it never ends.
    let endless = generate(&model().dir, &["--regex", "[a-z ]*[.]", "--ban", "."]);
    let endless = endless.into_iter().map(|arg| if arg == "30" { "100000".into() } else { arg });
    let mut child = command(endless).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 20];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(130) && !stderr.contains("error"), "{stderr}");
    let found = String::from_utf8([&first[..], &output.stdout].concat()).unwrap();
    let words = found.strip_suffix(".\n").unwrap();
    assert!(words.chars().all(|c| c.is_ascii_lowercase() || c == ' ') && words.len() < 99_000, "{words}");
}
