//! The weights of attention with the tokens that they are between, on the host.

use burn::tensor::Tensor;
use firelight_data::Image;
use firelight_storage::{InputError, TaskError};

/// Which attention of a model the maps are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttentionKind {
    /// Of a model of one stack, between the tokens of its text or image.
    SelfAttention,
    /// Of the encoder of two stacks, between the tokens of the source.
    Encoder,
    /// Of the decoder of two stacks, between the tokens of the target.
    Decoder,
    /// Of the decoder of two stacks, from the tokens of the target to those of the source.
    Cross,
    /// Of the tower of images of a model of images and texts, between the patches.
    Image,
    /// Of the tower of texts of a model of images and texts, between the tokens.
    Text,
}

impl AttentionKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::SelfAttention, Self::Encoder, Self::Decoder, Self::Cross, Self::Image, Self::Text];

    /// Its name in a command.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelfAttention => "self",
            Self::Encoder => "encoder",
            Self::Decoder => "decoder",
            Self::Cross => "cross",
            Self::Image => "image",
            Self::Text => "text",
        }
    }

    /// Its name in a heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::SelfAttention => "self-attention",
            Self::Encoder => "encoder self-attention",
            Self::Decoder => "decoder self-attention",
            Self::Cross => "cross-attention",
            Self::Image => "self-attention of the image",
            Self::Text => "self-attention of the text",
        }
    }
}

/// The weights of one head.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// The place of its layer in the stack, from 0.
    pub layer: usize,
    /// The place of its head in the layer, from 0.
    pub head: usize,
    shape: [usize; 2],
    weights: Vec<f32>,
}

impl Map {
    /// A map of `[T, S]` weights, those of each query in a row.
    ///
    /// # Panics
    /// If there are other than `T * S` weights.
    pub fn new(layer: usize, head: usize, shape: [usize; 2], weights: Vec<f32>) -> Self {
        assert_eq!(weights.len(), shape[0] * shape[1], "a weight for each of {shape:?} pairs");
        Self { layer, head, shape, weights }
    }

    /// The number of queries `T` and of keys `S`.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The weights `[T, S]`, those of each query in a row.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The weight with which a query reads a key.
    ///
    /// # Panics
    /// If there is no such query or key.
    pub fn at(&self, query: usize, key: usize) -> f32 {
        self.row(query)[key]
    }

    /// The weights of a query, `[S]`.
    ///
    /// # Panics
    /// If there is no such query.
    pub fn row(&self, query: usize) -> &[f32] {
        &self.weights[query * self.shape[1]..][..self.shape[1]]
    }

    /// The largest weight; 0 where there is none.
    pub fn largest(&self) -> f32 {
        self.weights.iter().copied().fold(0.0, f32::max)
    }

    /// The square roots of the weights in steps of 1/255, so that small ones differ, too.
    pub fn bytes(&self) -> Vec<u8> {
        self.weights.iter().map(|weight| (255.0 * weight.clamp(0.0, 1.0).sqrt()).round() as u8).collect()
    }

    /// The map of the last queries alone.
    pub(crate) fn last_queries(mut self, count: usize) -> Self {
        let [queries, keys] = self.shape;
        let kept = count.min(queries);
        self.weights.drain(..(queries - kept) * keys);
        Self { shape: [kept, keys], ..self }
    }
}

/// An image that the keys are patches of.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The part of the image that the model sees.
    pub image: Image,
    /// Rows and columns of patches.
    pub grid: [usize; 2],
    /// How many keys stand before the patches, such as a class token.
    pub first: usize,
    /// The share of each patch in the answer by attention rollout, row by row, where that is known.
    pub rollout: Option<Vec<f64>>,
}

impl Picture {
    /// The weights of a row of keys that are those of patches.
    pub fn patches<'a>(&self, row: &'a [f32]) -> &'a [f32] {
        &row[self.first..]
    }

    /// What the keys are called: the trained tokens, then the row and the column of each patch, from 1.
    pub fn labels(&self) -> Vec<String> {
        let trained = ["[class]", "[distillation]"].into_iter().map(String::from);
        let [rows, columns] = self.grid;
        let patches = (1..=rows).flat_map(|row| (1..=columns).map(move |column| format!("{row},{column}")));
        trained.take(self.first).chain(patches).collect()
    }
}

/// The attention of all layers and heads of a stack between the same tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMaps {
    /// Which attention it is.
    pub kind: AttentionKind,
    /// The `T` tokens that read.
    pub queries: Vec<String>,
    /// The `S` tokens that are read.
    pub keys: Vec<String>,
    /// The maps of each layer, head by head. A layer without attention weights, such as a recurrence, has none.
    pub layers: Vec<Vec<Map>>,
    /// The image that the keys are patches of, if they are.
    pub picture: Option<Picture>,
}

impl AttentionMaps {
    /// Puts maps and tokens together.
    ///
    /// # Panics
    /// If a map is not of as many queries and keys as there are tokens.
    pub fn new(kind: AttentionKind, queries: Vec<String>, keys: Vec<String>, layers: Vec<Vec<Map>>) -> Self {
        let shape = [queries.len(), keys.len()];
        let fits = layers.iter().flatten().all(|map| map.shape == shape);
        assert!(fits, "maps of {} queries and {} keys", shape[0], shape[1]);
        Self { kind, queries, keys, layers, picture: None }
    }

    /// Takes the maps from the weights that the layers of a pass noted, `[1, H, T, S]` each: those of
    /// [`LayerTrace`](firelight_core::LayerTrace).
    ///
    /// # Errors
    /// If no layer has weights, the device fails, or the weights are not finite.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn of_weights(
        kind: AttentionKind,
        queries: Vec<String>,
        keys: Vec<String>,
        weights: impl IntoIterator<Item = Option<Tensor<4>>>,
    ) -> Result<Self, TaskError> {
        let of_layer = |(layer, weights): (usize, Option<Tensor<4>>)| match weights {
            Some(weights) => heads(layer, weights),
            None => Ok(Vec::new()),
        };
        let layers: Vec<Vec<Map>> = weights.into_iter().enumerate().map(of_layer).collect::<Result<_, _>>()?;
        if layers.iter().all(Vec::is_empty) {
            let problem = format!("no layer of the model has weights of {}", kind.title());
            return Err(InputError::new(problem).advise("choose a model with attention").into());
        }
        Ok(Self::new(kind, queries, keys, layers))
    }

    /// Says which image the keys are patches of.
    pub fn with_picture(mut self, picture: Picture) -> Self {
        self.picture = Some(picture);
        self
    }

    /// Keeps the rows of the last queries alone.
    pub(crate) fn last_queries(mut self, count: usize) -> Self {
        let kept = count.min(self.queries.len());
        self.queries.drain(..self.queries.len() - kept);
        let cut = |layer: Vec<Map>| layer.into_iter().map(|map| map.last_queries(kept)).collect();
        self.layers = self.layers.into_iter().map(cut).collect();
        self
    }

    /// All maps, layer by layer.
    pub fn maps(&self) -> impl Iterator<Item = &Map> {
        self.layers.iter().flatten()
    }

    /// The last layer that has maps, and the mean of its heads, `[T, S]`: what is shown where there is room for one map. The head of the
    /// mean is that of the first.
    pub fn summary(&self) -> Option<(&[Map], Map)> {
        let heads: &[Map] = self.layers.iter().rev().find(|heads| !heads.is_empty())?;
        let share = 1.0 / heads.len() as f32;
        let mut mean = Map { weights: vec![0.0; heads[0].weights.len()], ..heads[0].clone() };
        for head in heads {
            mean.weights.iter_mut().zip(&head.weights).for_each(|(sum, weight)| *sum += share * weight);
        }
        Some((heads, mean))
    }
}

/// The maps of a layer, out of `[1, H, T, S]`.
fn heads(layer: usize, weights: Tensor<4>) -> Result<Vec<Map>, TaskError> {
    let [_, _, queries, keys] = weights.dims();
    let numbers: Vec<f32> = weights.try_into_vec_as().map_err(TaskError::device("the weights of attention"))?;
    TaskError::require_finite(numbers.iter().all(|weight| weight.is_finite()))?;
    let heads = numbers.chunks(queries * keys).enumerate();
    Ok(heads.map(|(head, weights)| Map::new(layer, head, [queries, keys], weights.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use proptest::prelude::*;

    fn tokens(count: usize) -> Vec<String> {
        (0..count).map(|token| format!("t{token}")).collect()
    }

    #[test]
    fn weights_become_maps_layer_by_layer_and_head_by_head() {
        let device = Device::default();
        let weights = Tensor::<4>::from_floats([[[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [0.0, 1.0]]]], &device);
        let found =
            AttentionMaps::of_weights(AttentionKind::Cross, tokens(2), tokens(2), [None, Some(weights)]).unwrap();
        assert_eq!((found.layers[0].len(), found.layers[1].len(), found.maps().count()), (0, 2, 2));
        let second = &found.layers[1][1];
        assert_eq!((second.layer, second.head, second.at(0, 1), second.row(1)), (1, 1, 0.75, &[0.0, 1.0][..]));
        // By hand: the means of both heads.
        let (heads, mean) = found.summary().unwrap();
        assert_eq!((heads.len(), mean.weights()), (2, &[0.625, 0.375, 0.25, 0.75][..]));
        let last = found.last_queries(1);
        assert_eq!((last.queries, last.layers[1][0].weights()), (vec!["t1".to_string()], &[0.5, 0.5][..]));
    }

    #[test]
    fn a_model_without_attention_and_damaged_weights_are_refused() {
        let of = |weights| AttentionMaps::of_weights(AttentionKind::SelfAttention, tokens(1), tokens(1), weights);
        let error = of(vec![None, None]).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("no layer of the model has weights"), "{error}");
        let damaged = Tensor::<4>::full([1, 1, 1, 1], f32::NAN, &Device::default());
        assert!(of(vec![Some(damaged)]).unwrap_err().to_string().contains("not finite"));
    }

    #[test]
    fn patches_are_called_by_row_and_column() {
        let image = Image::new(firelight_data::ImageShape::new(1, [1, 2]), vec![0, 9]);
        let picture = Picture { image, grid: [1, 2], first: 1, rollout: None };
        assert_eq!(picture.labels(), ["[class]", "1,1", "1,2"]);
        assert_eq!(picture.patches(&[0.5, 0.25, 0.125]), [0.25, 0.125]);
    }

    proptest! {
        #[test]
        fn bytes_are_the_weights_within_a_step(weights in prop::collection::vec(0.0f32..=1.0, 1..50)) {
            let map = Map::new(0, 0, [1, weights.len()], weights.clone());
            for (byte, weight) in map.bytes().iter().zip(&weights) {
                prop_assert!(((f32::from(*byte) / 255.0).powi(2) - weight).abs() <= 1.0 / 255.0);
            }
        }
    }
}
