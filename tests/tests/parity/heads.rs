//! Poolers and the losses of whole texts against code that was written from the papers (`fixtures/stacks/heads.py`).

use burn::tensor::Tensor;
use firelight::classification::{PoolerConfig, SequenceLossConfig, SequenceTargets};
use firelight::nn::{Init, ParamBuilder};

use super::described::{assert_felt, config, paths};
use crate::support::device;
use crate::support::golden::Golden;

#[test]
fn poolers_agree() {
    let (mut cases, mut parameters) = (0, 0);
    for golden in Golden::load("poolers").cases() {
        let x = golden.input::<3>("x", &device());
        let pooler: PoolerConfig = config(&golden, "config");
        let pooler = golden.fill(pooler.init_with(6, Init::default(), &ParamBuilder::new(&x.device(), 0)));
        let padding = golden.flags::<2>("padding", &x.device());
        golden.agrees(pooler.forward(x.clone(), Some(&padding)), [("x", &x)], &pooler);
        let paths = paths(&pooler);
        if !paths.is_empty() {
            assert_felt(&golden, &paths);
        }
        cases += 1;
        parameters += paths.len();
    }
    assert_eq!((cases, parameters), (8, 14));
}

#[test]
fn losses_of_whole_texts_agree() {
    let mut kinds = [0; 3];
    for golden in Golden::load("sequence_losses").cases() {
        let logits = golden.input::<2>("logits", &device());
        let (kind, targets) = targets(&golden, &logits);
        let loss: SequenceLossConfig = config(&golden, "config");
        let loss = loss.init().forward(logits.clone(), targets);
        golden.check("plain", loss.plain.clone() / loss.count.clone().without_autodiff());
        golden.check("loss", loss.mean());
        golden.check_gradient("logits", &logits, &loss.mean().backward());
        kinds[kind] += 1;
    }
    assert_eq!(kinds, [4, 2, 1]);
}

/// The targets of a case, and which of the three kinds they are.
fn targets(golden: &Golden, logits: &Tensor<2>) -> (usize, SequenceTargets) {
    let device = logits.device();
    match ["classes", "labels"].map(|key| golden.has(key)) {
        [true, _] => (0, SequenceTargets::Class(golden.ints("classes", &device))),
        [_, true] => (1, SequenceTargets::Classes(golden.floats("labels", &device))),
        _ => (2, SequenceTargets::Numbers(golden.floats("numbers", &device))),
    }
}
