//! Measures how fast data are read: text into packed batches, photographs into changed images, and the memory that a text takes
//! which is larger than it.
//!
//! Command: cargo run --release -p firelight-examples --example reading_speed -- text|images|stream [GIGABYTES]
//! Time: about a minute each; `stream` about a minute for each gigabyte, and five times the text in free disk space.
//! Expect: a line or two of rates; docs/results.md has those of our machines.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use burn::data::dataset::Dataset;
use burn::tensor::Device;
use firelight::data::{
    Augmentation, BatchPlan, Batching, DocumentDataset, Documents, Image, ImageDataset, ImageFiles, Normalization,
    PackedDataset, PackedRow, RandAugment, ReadOptions, Separator, Split, StepLoader, TokenBuilder, Tokenizer,
    TokenizerConfig, stories,
};
use firelight::language::{LmBatch, LmBatcher};

/// Tokens of a row, and rows of a batch.
const ROW: usize = 1024;
const BATCH: usize = 16;

/// Height and width of a photograph, and of what a model reads.
const PHOTO: [u32; 2] = [300, 400];
const MODEL_SIZE: [usize; 2] = [224, 224];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let home = tempfile::tempdir()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["text"] => text(20_000_000, home.path()),
        ["images"] => images(400, home.path()),
        ["stream"] => stream(1 << 30, home.path()),
        ["stream", gigabytes] => stream(gigabytes.parse::<usize>()? << 30, home.path()),
        _ => bail!("expected text, images or stream [GIGABYTES]"),
    }
}

/// A text of some bytes becomes ids, and these packed batches.
fn text(bytes: usize, home: &Path) -> Result<()> {
    let path = home.join("text.txt");
    fs::write(&path, stories(1, bytes))?;
    let sample = stories(1, bytes.min(1_000_000));
    let tokenizer = Tokenizer::train(&TokenizerConfig::Bpe { vocab_size: 2_000 }, &sample)?;
    let began = Instant::now();
    let mut builder = TokenBuilder::new(&tokenizer, Some(&Separator::BlankLine))?;
    builder.add_file(&path, "text")?;
    let (tokens, ends) = builder.finish()?;
    let count = tokens.len();
    say("encoded", count, "million tokens a minute", 60e-6, began.elapsed());

    let began = Instant::now();
    let rows = PackedDataset::new(DocumentDataset::new(&Documents::new(tokens, ends), ROW, Split::Training)?, ROW, 1);
    let plan = BatchPlan::new(Batching::Fixed, BATCH, rows.lengths())?;
    let steps = plan.num_batches();
    let loader: StepLoader<PackedRow, LmBatch> = StepLoader::planned(rows, LmBatcher, plan, &Device::default());
    let loader = loader.shuffled(1, 0..steps).with_workers(2);
    let mut cells = 0;
    for batch in burn::data::dataloader::DataLoader::iter(&loader) {
        cells += batch?.inputs.dims().iter().product::<usize>();
    }
    say("packed", count, "million tokens a minute", 60e-6, began.elapsed());
    println!("{:.1} % of the rows is padding", 100.0 * (1.0 - count as f64 / cells as f64));
    Ok(())
}

/// Photographs are decoded, brought to the size of a model and changed.
fn images(count: usize, home: &Path) -> Result<()> {
    for index in 0..count {
        let folder = home.join(format!("class {}", index % 2));
        fs::create_dir_all(&folder)?;
        photo(index as u32).save(folder.join(format!("{index}.jpg")))?;
    }
    let files: Vec<_> = (0..count).map(|index| home.join(format!("class {}/{index}.jpg", index % 2))).collect();
    let began = Instant::now();
    for file in &files {
        std::hint::black_box(Image::open(file)?);
    }
    say("decoded, on one thread", count, "images a second", 1.0, began.elapsed());

    let began = Instant::now();
    let options = ReadOptions { size: Some(MODEL_SIZE), ..ReadOptions::default() };
    let set = ImageFiles::split(home, "train")?.read(&options)?.set;
    let normalization = Normalization::of(&set);
    let augmentation = Augmentation { rand_augment: Some(RandAugment::default()), ..Augmentation::default() };
    let dataset = ImageDataset::for_training(set, normalization, augmentation, 1, [count, 1]);
    say("read at the size of a model", count, "images a second", 1.0, began.elapsed());
    let changed = Instant::now();
    for index in 0..count {
        std::hint::black_box(dataset.get(index)?);
    }
    say("changed by RandAugment, on one thread", count, "images a second", 1.0, changed.elapsed());
    say("all of it", count, "images a second", 1.0, began.elapsed());
    Ok(())
}

/// Something with edges, gradients and noise, as photographs have.
fn photo(seed: u32) -> image::RgbImage {
    let [height, width] = PHOTO;
    image::RgbImage::from_fn(width, height, |x, y| {
        let noise =
            (x.wrapping_mul(374_761_393) ^ y.wrapping_mul(668_265_263) ^ seed).wrapping_mul(2_246_822_519) >> 28;
        let edge = if (x / 40 + y / 30 + seed).is_multiple_of(2) { 60 } else { 0 };
        image::Rgb([
            (x * 160 / width + edge + noise) as u8,
            (y * 160 / height + edge + noise) as u8,
            (edge + 40 + noise) as u8,
        ])
    })
}

/// A text that is generated on the disk becomes ids; how much memory the process holds for itself.
fn stream(bytes: usize, home: &Path) -> Result<()> {
    let path = home.join("text.txt");
    let story = stories(1, 1 << 20);
    let mut writer = BufWriter::new(File::create(&path)?);
    for _ in 0..bytes.div_ceil(story.len()) {
        writer.write_all(story.as_bytes())?;
    }
    writer.flush()?;
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, &story)?;
    let (before, began) = (anonymous()?, Instant::now());
    let mut builder = TokenBuilder::new(&tokenizer, None)?;
    builder.add_file(&path, "text")?;
    let (tokens, _) = builder.finish()?;
    say("streamed", tokens.len(), "million tokens a minute", 60e-6, began.elapsed());
    println!("{} MiB of memory before, {} MiB behind {} MiB of text", before >> 10, anonymous()? >> 10, bytes >> 20);
    Ok(())
}

/// Kibibytes that the process holds beside what it maps of files.
fn anonymous() -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.map_or(Ok(0), str::parse)?)
}

fn say(what: &str, count: usize, unit: &str, scale: f64, time: Duration) {
    println!("{what}: {:.1} {unit}", count as f64 * scale / time.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_read_at_toy_size() -> Result<()> {
        let home = tempfile::tempdir()?;
        text(40_000, home.path())?;
        images(4, &home.path().join("photos"))?;
        stream(10_000, home.path())?;
        assert!(anonymous()? > 0);
        Ok(())
    }
}
