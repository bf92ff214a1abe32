//! `cargo xtask book`: the book of docs/ with mdBook, its links checked before, its pictures made anew on demand.

mod links;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::command::{cargo, needs, program, run, target, workspace_root};

/// The pages of the book, from the root of the workspace.
const DOCS: &str = "docs";

/// The script that names the command of each picture.
const PICTURES: &str = "docs/pictures/make.sh";

const ADVICE: &str = "cargo install --locked mdbook";

#[derive(Args)]
pub(crate) struct Options {
    /// Make the pictures anew before: builds `firelight` and trains two small models, which takes some minutes
    #[arg(long)]
    pictures: bool,
}

/// Checks the links, makes the pictures if asked, and builds the book where mdBook is installed.
pub(crate) fn make(options: &Options) -> Result<()> {
    check_links()?;
    if options.pictures {
        run("firelight", &mut cargo("build --release -p firelight-cli"))?;
        let firelight = target().join("release/firelight");
        run("pictures", program("bash", PICTURES).arg(firelight).arg(target().join("pictures")))?;
    }
    build()
}

/// A moment's work: whether every relative link of the documents leads somewhere, and the book has every page.
pub(crate) fn check_links() -> Result<()> {
    let root = workspace_root();
    let mut pages = pages_below(&root.join(DOCS))?;
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    let mut problems = Vec::new();
    for page in &pages {
        problems.extend(links::problems(root, page, &read(page)?));
    }
    problems.extend(pages_left_out(root, &pages)?);
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    ensure!(problems.is_empty(), "{} of the links and pages of the documents are wrong, listed above", problems.len());
    eprintln!("\n==> links: those of {} pages lead somewhere", pages.len());
    Ok(())
}

/// mdBook shows the pages of SUMMARY.md alone.
fn pages_left_out(root: &Path, pages: &[PathBuf]) -> Result<Vec<String>> {
    let docs = root.join(DOCS);
    let summary = read(&docs.join("SUMMARY.md"))?;
    let shown: Vec<_> = links::links(&summary).into_iter().map(|link| docs.join(link.target)).collect();
    let left_out = pages.iter().filter(|page| page.starts_with(&docs) && !page.ends_with("SUMMARY.md"));
    let left_out = left_out.filter(|page| !shown.contains(page));
    let problem = |page: &PathBuf| {
        let name = page.strip_prefix(root).unwrap_or(page).display();
        format!("docs/SUMMARY.md does not list {name}: the book would lack it")
    };
    Ok(left_out.map(problem).collect())
}

/// Builds a copy of the pages in which links out of the book lead into the repository on the web.
pub(crate) fn build() -> Result<()> {
    if !needs("book", "mdbook", ADVICE)? {
        return Ok(());
    }
    let (source, book) = (target().join("book-source"), target().join("book"));
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| format!("cannot remove {}", source.display()))?;
    }
    copy(&workspace_root().join(DOCS), &source, &repository()?)?;
    run("book", program("mdbook", "build").arg(&source).arg("--dest-dir").arg(&book))?;
    eprintln!("open {}", book.join("index.html").display());
    Ok(())
}

/// The address of the repository, as the manifest of the workspace has it.
fn repository() -> Result<String> {
    let manifest = read(&workspace_root().join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = \""));
    let address = line.and_then(|rest| rest.strip_suffix('"')).context("Cargo.toml names no repository")?;
    Ok(format!("{address}/blob/main"))
}

fn copy(from: &Path, to: &Path, repository: &str) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for path in entries(from)? {
        let Some(name) = path.file_name() else { continue };
        let copied = to.join(name);
        if path.is_dir() {
            copy(&path, &copied, repository)?;
        } else if is_page(&path) {
            let text = links::outward(workspace_root(), DOCS, &path, &read(&path)?, repository);
            fs::write(&copied, text).with_context(|| format!("cannot write {}", copied.display()))?;
        } else {
            fs::copy(&path, &copied).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// All pages below a folder, sorted.
fn pages_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            pages.extend(pages_below(&path)?);
        } else if is_page(&path) {
            pages.push(path);
        }
    }
    Ok(pages)
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || format!("cannot read {}", folder.display());
    let entries = fs::read_dir(folder).with_context(read)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().with_context(read)?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_of_the_documents_leads_somewhere() {
        check_links().unwrap();
    }

    #[test]
    fn the_glossary_is_in_alphabetical_order() {
        let text = read(&workspace_root().join(DOCS).join("glossary.md")).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| ")).skip(1);
        let terms: Vec<_> = rows.map(|row| row.split('|').nth(1).unwrap_or_default().trim().to_lowercase()).collect();
        let misplaced = terms.windows(2).find(|terms| terms[0] > terms[1]);
        assert!(terms.len() > 50 && misplaced.is_none(), "{misplaced:?}");
    }

    #[test]
    fn a_page_that_the_summary_lacks_is_named() {
        let root = tempfile::tempdir().unwrap();
        let docs = root.path().join(DOCS);
        fs::create_dir(&docs).unwrap();
        fs::write(docs.join("SUMMARY.md"), "- [One](one.md)\n").unwrap();
        let pages = ["SUMMARY.md", "one.md", "two.md"].map(|name| docs.join(name));
        let left_out = pages_left_out(root.path(), &pages).unwrap();
        assert!(left_out.len() == 1 && left_out[0].contains("two.md"), "{left_out:?}");
    }

    #[test]
    fn every_picture_has_its_command_and_a_page_that_shows_it() {
        let root = workspace_root();
        let script = read(&root.join(PICTURES)).unwrap();
        let docs = pages_below(&root.join(DOCS)).unwrap();
        let shown: String = docs.iter().map(|page| read(page).unwrap()).collect();
        let pictures = entries(&root.join("docs/pictures")).unwrap();
        assert!(pictures.len() > 1);
        for path in pictures.iter().filter(|path| !path.ends_with("make.sh")) {
            let name = path.file_name().unwrap().to_string_lossy();
            assert!(script.contains(&*name), "{PICTURES} does not make {name}");
            assert!(shown.contains(&format!("pictures/{name})")), "no page shows {name}");
        }
    }

    #[test]
    fn a_copy_leads_into_the_repository_where_it_leaves_the_book() {
        let to = tempfile::tempdir().unwrap();
        copy(&workspace_root().join(DOCS), to.path(), "https://example.org/blob/main").unwrap();
        let text = read(&to.path().join("how-to/train.md")).unwrap();
        assert!(text.contains("(https://example.org/blob/main/examples/plain_burn.rs)"));
        assert!(text.contains("(../reproduce.md)"));
        assert!(repository().unwrap().starts_with("https://"));
    }
}
