//! Writes the valid inputs of every reader as the corpus that fuzzing begins with: `inputs FOLDER`, then `FOLDER/<reader>/valid-<n>`.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

use firelight_tests::inputs::{Harness, readers};

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::args_os().nth(1).expect("the folder of the corpus"));
    for reader in readers() {
        let home = tempfile::tempdir()?;
        let corpus = folder.join(reader.name);
        fs::create_dir_all(&corpus)?;
        for (number, bytes) in Harness::new(reader, home.path()).map_err(io::Error::other)?.valid.iter().enumerate() {
            fs::write(corpus.join(format!("valid-{number}")), bytes)?;
        }
    }
    Ok(())
}
