//! Where a command shows what it found: text on stdout, or a file whose ending names its format; nothing is replaced unasked.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use firelight::data::Image;
use firelight::inspect::Figure;
use firelight::storage::write_atomic;

use crate::failure::Mistake;
use crate::output;

/// The file of a drawing.
#[derive(clap::Args)]
pub(super) struct Drawing {
    /// File to write, whose ending names the format; without it, text is printed
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    force: bool,
}

/// How something is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// On stdout.
    Text,
    Page,
    Svg,
    Png,
}

/// What is drawn.
pub(super) enum Drawn {
    Words(String),
    Pixels(Image),
}

impl From<String> for Drawn {
    fn from(words: String) -> Self {
        Self::Words(words)
    }
}

impl From<Image> for Drawn {
    fn from(pixels: Image) -> Self {
        Self::Pixels(pixels)
    }
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Page => "html",
            Self::Svg => "svg",
            Self::Png => "png",
        }
    }
}

impl Drawing {
    /// The file that was asked for.
    pub(super) fn out(&self) -> Option<&Path> {
        self.out.as_deref()
    }

    /// The format that was asked for, one of `known` where it is a file, which may be written: before anything is loaded.
    pub(super) fn format(&self, known: &[Format]) -> Result<Format> {
        self.out.as_ref().map_or(Ok(Format::Text), |out| format_of(out, self.force, known))
    }

    /// Prints what was drawn, or writes it into the file.
    pub(super) fn show(&self, drawn: Drawn) -> Result<()> {
        let Some(out) = &self.out else {
            if let Drawn::Words(words) = drawn {
                output::print(&words)?;
            }
            return Ok(());
        };
        match drawn {
            Drawn::Words(words) => write_atomic(out, words)?,
            Drawn::Pixels(pixels) => pixels.write_png(out)?,
        }
        output::note(format_args!("wrote {}", out.display()));
        Ok(())
    }

    /// Finds a figure and shows it in any format.
    pub(super) fn show_figure(&self, figure: impl FnOnce() -> Result<Figure>) -> Result<()> {
        let format = self.format(&[Format::Page, Format::Svg, Format::Png])?;
        let figure = figure()?;
        self.show(match format {
            Format::Text => figure.to_text().into(),
            Format::Page => figure.to_page().into(),
            Format::Svg => figure.to_svg().into(),
            Format::Png => figure.to_image().into(),
        })
    }
}

/// The format that the ending of a file names, one of `known`. What exists is replaced by `force` alone, and the folder must be there.
pub(super) fn format_of(out: &Path, force: bool, known: &[Format]) -> Result<Format> {
    let shown = out.display();
    let ending = out.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    let Some(format) = known.iter().find(|format| format.ending() == ending) else {
        let problem = format!("`{shown}` is of no known format: give --out a name that ends in {}", listed(known));
        return Err(Mistake(problem).into());
    };
    let taken = format!("`{shown}` exists: choose another file with --out, or replace it with --force");
    ensure!(force || !out.exists(), Mistake(taken));
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lacking = || format!("`{}` is no folder, so that `{shown}` cannot be written: make it first", folder.display());
    ensure!(folder.is_dir(), Mistake(lacking()));
    Ok(*format)
}

/// The endings of formats: `.html, .svg or .png`.
fn listed(known: &[Format]) -> String {
    let dotted: Vec<String> = known.iter().map(|format| format!(".{}", format.ending())).collect();
    match &dotted[..] {
        [several @ .., last] if !several.is_empty() => format!("{} or {last}", several.join(", ")),
        one => one.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(out: Option<&str>, known: &[Format]) -> Result<Format, String> {
        let drawing = Drawing { out: out.map(PathBuf::from), force: false };
        drawing.format(known).map_err(|error| error.to_string())
    }

    #[test]
    fn the_ending_names_the_format() {
        let known = [Format::Page, Format::Svg, Format::Png];
        assert_eq!(format(None, &known), Ok(Format::Text));
        assert_eq!(format(Some("a.SVG"), &known), Ok(Format::Svg));
        let fails = |out, known| format(Some(out), known).unwrap_err();
        assert!(fails("a.pdf", &known).contains("ends in .html, .svg or .png"));
        assert!(fails("a", &known[..1]).ends_with("ends in .html"));
        assert!(fails("a.txt", &known).contains("no known format"));
        assert!(fails("nowhere/a.svg", &known).starts_with("`nowhere` is no folder"));
    }
}
