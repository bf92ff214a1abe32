//! The end-to-end tests live in `tests/main.rs`; this library holds the programs of the README and of the documentation,
//! which are compiled and run with the documentation examples, what those tests share with `examples/`, the readers
//! that `inputs` and `fuzz` try with damaged input, and the allocator that tells tests how much memory is held.

mod counting;
pub mod inputs;
mod path;

pub use counting::CountingAllocator;
pub use path::ParameterPath;

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// Numbers to check by hand.
#[cfg(doctest)]
#[doc = include_str!("../../docs/worked-numbers.md")]
pub struct WorkedNumbers;

/// What a run draws and how it counts.
#[cfg(doctest)]
#[doc = include_str!("../../docs/reproduce.md")]
pub struct Reproduce;

/// Published models.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/published.md")]
pub struct Published;

/// Attention and blocks of one's own.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/attention.md")]
pub struct OwnAttention;

/// Stacks whose layers differ.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/layers.md")]
pub struct Layers;

/// What a model reads.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/inspect.md")]
pub struct Inspection;
/// Activations by their paths.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/hooks.md")]
pub struct Activations;

/// Masks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/mask.md")]
pub struct Masks;

/// Processors of logits.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/sampler.md")]
pub struct Samplers;

/// Five minutes to a first model.
#[cfg(doctest)]
#[doc = include_str!("../../docs/start.md")]
pub struct FirstSteps;

/// The tour: attention.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/attention.md")]
pub struct TourAttention;

/// The tour: heads.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/heads.md")]
pub struct TourHeads;

/// The tour: masks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/masks.md")]
pub struct TourMasks;

/// The tour: positions.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/positions.md")]
pub struct TourPositions;

/// The tour: blocks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/blocks.md")]
pub struct TourBlocks;

/// The tour: stacks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/stacks.md")]
pub struct TourStacks;

/// The tour: training.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/training.md")]
pub struct TourTraining;

/// The tour: a translator.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/translator.md")]
pub struct TourTranslator;

/// The tour: writing.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/writing.md")]
pub struct TourWriting;

/// The tour: long texts.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/long.md")]
pub struct TourLong;

/// The tour: seeing inside.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/inside.md")]
pub struct TourInside;

/// The tour: published models.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/pretrained.md")]
pub struct TourPretrained;

/// The tour: experiments.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tour/experiments.md")]
pub struct TourExperiments;

/// Coming from PyTorch.
#[cfg(doctest)]
#[doc = include_str!("../../docs/migrate/pytorch.md")]
pub struct FromPyTorch;

/// Coming from Hugging Face.
#[cfg(doctest)]
#[doc = include_str!("../../docs/migrate/hugging-face.md")]
pub struct FromHuggingFace;

/// Coming from burn-nn.
#[cfg(doctest)]
#[doc = include_str!("../../docs/migrate/burn-nn.md")]
pub struct FromBurnNn;

/// Captions of images.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/captions.md")]
pub struct Captions;

/// Conversations.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/chat.md")]
pub struct Chat;

/// Classes of texts.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/classify.md")]
pub struct Classify;

/// Classes of images.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/images.md")]
pub struct Images;

/// Pairs of texts.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/pairs.md")]
pub struct Pairs;

/// Records.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/records.md")]
pub struct Records;

/// What more ranks bring.
#[cfg(doctest)]
#[doc = include_str!("../../docs/scaling.md")]
pub struct Scaling;

/// Scores of texts.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/score.md")]
pub struct Scores;

/// Translation.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/translate.md")]
pub struct Translate;

/// Models of one's own.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/own-model.md")]
pub struct OwnModel;

/// Several ranks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/distributed.md")]
pub struct Distributed;

/// Tasks.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/task.md")]
pub struct Tasks;

/// Families of published models.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/family.md")]
pub struct Families;

/// Training.
#[cfg(doctest)]
#[doc = include_str!("../../docs/how-to/train.md")]
pub struct Training;
