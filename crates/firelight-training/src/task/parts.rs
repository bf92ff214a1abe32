//! The parameters of a model by part, counted by a walk through the module.

use burn::module::Module;

use crate::path::{Parameter, distinct_parameters_of};

/// Numbers of each part: the path up to the first number, or its first two names. A parameter that stands in several places counts once,
/// and none is drawn for it.
pub(super) fn of<M: Module>(model: &M) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for Parameter { path, shape, .. } in distinct_parameters_of(model) {
        let (part, count) = (part_of(&path), shape.iter().product());
        match found.iter_mut().find(|(name, _)| *name == part) {
            Some((_, sum)) => *sum += count,
            None => found.push((part, count)),
        }
    }
    found
}

/// `encoder.blocks.0.norm.gamma -> encoder.blocks`, `embedding.weight -> embedding`.
fn part_of(path: &str) -> String {
    let names: Vec<&str> = path.split('.').collect();
    let end = names.iter().position(|name| name.parse::<usize>().is_ok()).unwrap_or((names.len() - 1).clamp(1, 2));
    names[..end].join(".")
}

#[cfg(test)]
mod tests {
    use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;

    #[derive(Module, Debug)]
    struct Stack {
        embedding: Embedding,
        inner: Inner,
        again: Linear,
    }

    #[derive(Module, Debug)]
    struct Inner {
        layers: Vec<Linear>,
        head: Linear,
    }

    #[test]
    fn layers_are_one_part_and_what_stands_twice_counts_once() {
        let device = Device::flex();
        let linear = |from, to| LinearConfig::new(from, to).init(&device);
        let inner = Inner { layers: vec![linear(2, 2), linear(2, 2)], head: linear(2, 3) };
        let (embedding, again) = (EmbeddingConfig::new(5, 2).init(&device), inner.head.clone());
        let parts = of(&Stack { embedding, inner, again });
        let expected = [("embedding", 10), ("inner.layers", 2 * 6), ("inner.head", 9)];
        assert_eq!(parts, expected.map(|(name, count)| (name.to_string(), count)));
    }
}
