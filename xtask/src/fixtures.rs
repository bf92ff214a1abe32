//! `cargo xtask fixtures`: computes the golden values anew; needs python3 with torch, numpy, safetensors, transformers, sentence-transformers,
//! sacrebleu, rouge-score, scikit-learn, scipy, seqeval, tokenizers, sentencepiece, protobuf, pillow, timm, pyarrow and gguf.

use anyhow::Result;

use crate::command::{program, run};

pub(crate) fn regenerate() -> Result<()> {
    run("golden tensors", &mut program("python3", "tests/fixtures/generate.py"))?;
    run("golden scores of text", &mut program("python3", "tests/fixtures/text_metrics.py"))?;
    run("golden scores of classes", &mut program("python3", "tests/fixtures/class_metrics.py"))?;
    run("published models", &mut program("python3", "tests/fixtures/pretrained.py"))?;
    run("sentence models", &mut program("python3", "tests/fixtures/sentence_folders.py"))?;
    run("golden pixels", &mut program("python3", "tests/fixtures/image_processors.py"))?;
    run("golden decoding", &mut program("python3", "tests/fixtures/decoding.py"))?;
    run("golden ids of tokenizers", &mut program("python3", "tests/fixtures/tokenizer_files.py"))?;
    run("golden ids of hard strings", &mut program("python3", "tests/fixtures/tokenizer_strings.py"))?;
    run("records in Parquet", &mut program("python3", "tests/fixtures/records.py"))?;
    run("blocks of few bits", &mut program("python3", "tests/fixtures/block_formats.py"))
}
