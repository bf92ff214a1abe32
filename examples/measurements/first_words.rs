//! Scores the plainest summary of all: the first words of a text. What a model of headlines is worth shows beside it.
//!
//! Command: cargo run --release -p firelight-examples --example first_words -- test.csv 2 1 1000
//! (a file of records, the column of the texts, that of their summaries, and how many at the end of the file are measured)
//! Time: seconds.
//! Expect: a line of ROUGE-1, ROUGE-2 and ROUGE-L for each number of words.

use std::path::Path;

use anyhow::{Context, Result};
use firelight::data::{Pair, PairColumns, PairFiles};
use firelight::training::metrics::text::Rouge;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, source, target, measured] = arguments.as_slice() else {
        anyhow::bail!("expected FILE SOURCE_COLUMN TARGET_COLUMN COUNT");
    };
    let measured = measured.parse().with_context(|| format!("COUNT is `{measured}`"))?;
    let columns = PairColumns { source: source.clone(), target: target.clone() };
    let pairs = last(Path::new(path), columns, measured)?;
    for words in [6, 8, 10, 12] {
        let [one, two, longest] = scores(&pairs, words)?;
        println!("{words:2} words: ROUGE-1 {one:.1}, ROUGE-2 {two:.1}, ROUGE-L {longest:.1}");
    }
    Ok(())
}

/// The last pairs of a file, on which a run with `data.split.validation` is measured.
fn last(path: &Path, columns: PairColumns, measured: usize) -> Result<Vec<Pair>> {
    let mut pairs = PairFiles::Records { path: path.into(), columns }.read()?.pairs;
    Ok(pairs.split_off(pairs.len().saturating_sub(measured)))
}

fn scores(pairs: &[Pair], words: usize) -> Result<[f64; 3]> {
    let first = |text: &str| text.split_whitespace().take(words).collect::<Vec<_>>().join(" ");
    let summaries: Vec<String> = pairs.iter().map(|pair| first(&pair.source)).collect();
    let titles: Vec<&str> = pairs.iter().map(|pair| pair.target.as_str()).collect();
    let of = |rouge: Rouge| rouge.corpus(&summaries, &titles);
    Ok([of(Rouge::N(1))?, of(Rouge::N(2))?, of(Rouge::L)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_are_scored() -> Result<()> {
        let home = tempfile::tempdir()?;
        let path = home.path().join("news.csv");
        std::fs::write(&path, "old news,left out\nA dog bites a man in town,a dog bites a man\n")?;
        let pairs = last(&path, PairColumns { source: "0".into(), target: "1".into() }, 1)?;
        assert_eq!(scores(&pairs, 5)?, [100.0; 3]);
        assert!(scores(&pairs, 7)?[0] < 100.0);
        Ok(())
    }
}
