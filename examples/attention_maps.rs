//! What a model reads: the attention of all layers and heads over a text, as shaded blocks in the terminal and as a page that opens in a
//! browser without a network; and which heads look at the previous token, at the first one, or behind an earlier one that is the same.
//!
//! Command: cargo run --release -p firelight-examples --example attention_maps -- runs/stories-1 "Once upon a time" maps.html
//! (in the place of the run a published language model or text encoder, by its folder or its name on the hub)
//! Time: seconds.
//! Expect: the last layer's map, of which each row sums to 1, a table of the heads, and the page.

use std::path::Path;

use anyhow::Result;
use burn::tensor::Device;
use firelight::inspect::{Asked, AttentionMaps, HeadScore, HeadTable, TextModel, open, page, text};
use firelight::pretrained::{import_cache, run_folder};
use firelight::storage::{Checkpoint, write_atomic};

/// The maps of a text, layer by layer and head by head.
fn maps(model: &Path, words: &str, device: &Device) -> Result<Vec<AttentionMaps>> {
    Ok(open(model, &Checkpoint::Last, device)?.attention(&Asked::about(words))?)
}

/// What the last token reads most in the mean of the heads of the last layer: tokens with their weights, the largest first.
fn read_by_the_last(maps: &AttentionMaps) -> Vec<(&str, f32)> {
    let Some((_, mean)) = maps.summary() else { return Vec::new() };
    let weights = mean.row(maps.queries.len() - 1).to_vec();
    let mut read: Vec<(&str, f32)> = maps.keys.iter().map(String::as_str).zip(weights).collect();
    read.sort_by(|one, other| other.1.total_cmp(&one.1));
    read
}

/// All heads, the one that copies most as an induction head does first.
fn heads(model: &Path, words: &str, device: &Device) -> Result<HeadTable> {
    let model = TextModel::open(model, &Checkpoint::Last, device)?;
    Ok(HeadTable::measure(&model, &[words])?.ranked(HeadScore::Induction))
}

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let [model, words, out] = firelight_examples::words("MODEL TEXT PAGE.html")?;
    let device = firelight::device::select(None)?;
    let model = run_folder(model, &import_cache(), |line| eprintln!("{line}"))?;

    let maps = maps(&model, &words, &device)?;
    print!("{}", text(&maps));
    for (token, weight) in maps.iter().flat_map(read_by_the_last).take(3) {
        println!("the last token reads `{token}` with {weight:.3}");
    }
    println!("\n{}", heads(&model, &words, &device)?.first(8).to_text());
    write_atomic(&out, page(&words, &maps))?;
    println!("the page is in {out}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight::language::{Run, RunRequest};

    const SMALL: [(&str, &str); 6] = [
        ("data.stories", "20000"),
        ("model.d_model", "16"),
        ("model.n_heads", "2"),
        ("model.n_layers", "2"),
        ("model.max_seq_len", "32"),
        ("training.steps", "2"),
    ];

    #[test]
    fn a_small_model_shows_what_it_reads() {
        let (home, device) = (tempfile::tempdir().unwrap(), Device::flex());
        let request = RunRequest::new(&device).with_out(home.path().join("run"));
        let request = SMALL.iter().fold(request, |request, (key, value)| request.with_override(key, value));
        Run::prepare(&request).unwrap().fit().unwrap();

        let model = run_folder(home.path().join("run"), &home.path().join("cache"), |_| ()).unwrap();
        let found = maps(&model, "One day One day", &device).unwrap();
        assert_eq!((found.len(), found[0].layers.len(), found[0].queries.len()), (1, 2, 15));
        for map in found[0].maps() {
            assert!((0..15).all(|query| (map.row(query).iter().sum::<f32>() - 1.0).abs() < 1e-4));
            assert!(map.at(0, 1) < 1e-6, "no token reads a later one");
        }
        let read = read_by_the_last(&found[0]);
        assert!(read.len() == 15 && read[0].1 >= read[14].1, "{read:?}");
        assert_eq!(heads(&model, "One day One day", &device).unwrap().heads.len(), 4);
        assert!(text(&found).contains("layer 1") && page("a text", &found).starts_with("<!DOCTYPE html>"));
    }
}
