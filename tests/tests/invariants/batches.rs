//! What stands beside a sequence: padding, other rows, other documents, a memory.

use burn::tensor::{Bool, Int, Tensor};
use firelight::nn::invariants::{batch_independence, padding, parts_equal_whole};
use firelight::nn::{Cache, EncoderOutput, Pass, SequenceInput, Transformer};

use super::{assert_close, each, forward, moves_with_the_tokens, tolerance};
use crate::support::grid::{cross_decoder_pairs, decoders, encoder_pairs};
use crate::support::{Noise, device, distance};

#[test]
fn padding_on_either_side_changes_nothing() {
    let mut noise = Noise::new(3);
    each(decoders().into_iter().chain(encoder_pairs()), |config, model| {
        let forward = |x, flags| model.forward(x, &SequenceInput::default().with_padding(flags), &mut Pass::default());
        let left = if moves_with_the_tokens(config) { 3 } else { 0 };
        let x = noise.tensor([1, 5, 16]);
        [[left, 0], [0, 3]].into_iter().try_for_each(|sides| padding(forward, x.clone(), sides, tolerance(model)))
    });
}

#[test]
fn batch_mates_change_nothing() {
    let mut noise = Noise::new(9);
    each(decoders().into_iter().chain(encoder_pairs()), |_, model| {
        batch_independence(|x| forward(model, x), noise.tensor([3, 5, 16]), tolerance(model))
    });
}

#[test]
fn a_padded_prompt_continues_in_the_cache_as_without_padding() {
    let mut noise = Noise::new(4);
    each(decoders().into_iter().filter(moves_with_the_tokens), |config, model| {
        let (prompt, next) = (noise.tensor([1, 4, 16]), noise.tensor([1, 1, 16]));
        let run = |prompt: Tensor<3>, padding: Option<Tensor<2, Bool>>| {
            let mut cache = model.full_cache(16);
            let input = SequenceInput { padding, ..SequenceInput::default() };
            model.forward(prompt, &input, &mut Pass::cached(&mut cache));
            model.forward(next.clone(), &SequenceInput::default(), &mut Pass::cached(&mut cache))
        };
        let padding = Tensor::<2, Bool>::from_bool([[true, true, false, false, false, false]], &device());
        let padded = run(Tensor::cat(vec![noise.tensor([1, 2, 16]), prompt.clone()], 1), Some(padding));
        assert_close(padded, run(prompt, None), config);
        Ok(())
    });
}

#[test]
fn rows_that_join_a_batch_go_on_as_they_would_alone() {
    let mut noise = Noise::new(9);
    each(decoders().into_iter().filter(moves_with_the_tokens), |config, model| {
        let (long, short, next) = (noise.tensor([2, 6, 16]), noise.tensor([1, 3, 16]), noise.tensor([3, 2, 16]));
        let step =
            |x: Tensor<3>, cache: &mut Cache| model.forward(x, &SequenceInput::default(), &mut Pass::cached(cache));
        for make in [Transformer::cache, Transformer::full_cache] {
            let read = |x: &Tensor<3>| {
                let mut cache = make(model, 16);
                step(x.clone(), &mut cache);
                cache
            };
            for rows in [[&long, &short], [&short, &long]] {
                let mut joined = read(rows[0]);
                joined.join(read(rows[1]));
                assert_eq!(joined.len(), 6);
                let found = step(next.clone(), &mut joined);
                let first = rows[0].dims()[0];
                let parts = [(rows[0], 0, first), (rows[1], first, 3 - first)];
                let alone = parts.map(|(x, start, count)| step(next.clone().narrow(0, start, count), &mut read(x)));
                assert_close(found, Tensor::cat(alone.to_vec(), 0), config);
            }
        }
        Ok(())
    });
}

#[test]
fn packed_documents_are_as_if_alone() {
    let mut noise = Noise::new(8);
    let documents = Tensor::<2, Int>::from_ints([[4, 4, 4, 9, 9, 9, 9]], &device());
    let input = |start, len| SequenceInput::default().with_documents(documents.clone().narrow(1, start, len));
    each(decoders().into_iter().filter(moves_with_the_tokens), |config, model| {
        let x = noise.tensor([1, 7, 16]);
        let part = |start, len| x.clone().narrow(1, start, len);
        let alone = Tensor::cat(vec![forward(model, part(0, 3)), forward(model, part(3, 4))], 1);
        let mut cache = model.full_cache(16);
        let mut step = |start, len| model.forward(part(start, len), &input(start, len), &mut Pass::cached(&mut cache));
        let cached = Tensor::cat(vec![step(0, 2), step(2, 3), step(5, 1), step(6, 1)], 1);
        let whole = model.forward(x.clone(), &input(0, 7), &mut Pass::default());
        assert_close(whole, alone.clone(), config);
        assert_close(cached, alone, config);
        Ok(())
    });
}

#[test]
fn a_decoder_reads_its_memory_once_and_never_its_padding() {
    let mut noise = Noise::new(5);
    let plain = |hidden| SequenceInput::default().with_encoder_output(EncoderOutput::new(hidden));
    let padding = Tensor::<2, Bool>::from_bool([[false, false, false, true, true]], &device());
    let padded = |hidden| {
        SequenceInput::default().with_encoder_output(EncoderOutput::new(hidden).with_padding(Some(padding.clone())))
    };
    each(cross_decoder_pairs(), |config, model| {
        let (x, source) = (noise.tensor([1, 4, 16]), noise.tensor([1, 3, 16]));
        let whole = model.forward(x.clone(), &plain(source.clone()), &mut Pass::default());
        let other = model.forward(x.clone(), &plain(noise.tensor([1, 3, 16])), &mut Pass::default());
        assert!(distance(&whole, &other) > 1e-2, "the memory matters: {config:?}");

        // The padded memory is there at the first step; what is handed in later must not be read.
        let first = padded(Tensor::cat(vec![source, noise.tensor([1, 2, 16])], 1));
        let later = padded(noise.tensor([1, 5, 16]));
        let mut cache = model.full_cache(8);
        let step = |x| {
            let input = if cache.is_empty() { &first } else { &later };
            model.forward(x, input, &mut Pass::cached(&mut cache))
        };
        parts_equal_whole(|_| whole, step, x, 1, tolerance(model))
    });
}
