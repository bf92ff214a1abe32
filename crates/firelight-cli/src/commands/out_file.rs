//! Files that commands write: their formats by their endings, and nothing replaced unasked.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::failure::Mistake;

/// The ending of a file that may be written, one of `known`, before anything is loaded.
pub(super) fn ending(out: &Path, force: bool, known: &[&str]) -> Result<String> {
    let ending = out.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    let dotted: Vec<String> = known.iter().map(|ending| format!(".{ending}")).collect();
    let list = match &dotted[..] {
        [several @ .., last] if !several.is_empty() => format!("{} or {last}", several.join(", ")),
        one => one.concat(),
    };
    let unknown = format!("`{}` is of no known format: give --out a name that ends in {list}", out.display());
    ensure!(known.contains(&ending.as_str()), Mistake(unknown));
    let taken = format!("`{}` exists: choose another file with --out, or replace it with --force", out.display());
    ensure!(force || !out.exists(), Mistake(taken));
    Ok(ending)
}
