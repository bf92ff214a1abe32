//! A language model without some of its heads, as a run folder of its own.

use std::path::Path;

use burn::tensor::Device;
use firelight_core::inspect;
use firelight_language::{LanguageModelConfig, TextGenerator};
use firelight_storage::{Checkpoint, InputError, ModelFolder, TaskError, save_weights};

use crate::models::of_task;

/// Writes the run folder of a language model without some heads, `[layer, head]` each, by [`inspect::prune_heads`]: its matrices are smaller, and
/// it computes what the model does with zeros in the place of these heads. Recipe, tokenizer and data are handed on. The folder cannot be
/// resumed, because its model is not the one that its recipe describes. A training can begin from it: it takes the stack from `config.json`.
///
/// # Errors
/// If the folder holds no language model, or one with adapters or with matrices in blocks; if a layer or head does not exist, is named twice, or
/// cannot be taken out; if `out` is not empty, or a file cannot be read or written.
///
/// ```no_run
/// use burn::tensor::Device;
/// use firelight_inspect::prune_heads;
/// use firelight_storage::{Checkpoint, ModelFolder};
///
/// let run = ModelFolder::open("runs/stories-1")?;
/// prune_heads(&run, &Checkpoint::Last, &[[0, 1], [2, 0]], "runs/fewer-heads", &Device::default())?;
/// # Ok::<(), firelight_storage::TaskError>(())
/// ```
pub fn prune_heads(
    run: &ModelFolder,
    checkpoint: &Checkpoint,
    heads: &[[usize; 2]],
    out: impl AsRef<Path>,
    device: &Device,
) -> Result<ModelFolder, TaskError> {
    let prune = of_task(run.path(), |entry| entry.prune, ["whose heads cannot be pruned", "give a language model"])?;
    prune(run, checkpoint, heads, out.as_ref(), device)
}

/// What [`prune_heads`] does with a language model.
pub(crate) fn prune_language_model(
    run: &ModelFolder,
    checkpoint: &Checkpoint,
    heads: &[[usize; 2]],
    out: &Path,
    device: &Device,
) -> Result<ModelFolder, TaskError> {
    let mut config = config(run)?;
    let pruned = by_layer(heads, config.transformer.n_layers)?;
    let mut model = TextGenerator::load_from(run.path(), checkpoint, device)?.model().clone();
    let (stack, transformer) =
        inspect::prune_heads(model.transformer, &config.transformer, &pruned).map_err(|error| {
            let problems = error.problems().to_vec();
            TaskError::from(InputError::new(problems.join("; "))).listing(problems)
        })?;
    (model.transformer, config.transformer) = (stack, transformer);
    ModelFolder::create_whole(out, |folder| {
        run.hand_on(folder)?;
        save_weights(&model, folder.weights_path(&Checkpoint::Last))?;
        Ok(folder.write_config(firelight_language::TASK, &config)?)
    })
}

/// The configuration of a model whose matrices can be cut.
fn config(run: &ModelFolder) -> Result<LanguageModelConfig, TaskError> {
    if run.quantization().is_file() {
        let problem = "says that the matrices are in blocks, which cannot be cut";
        return Err(InputError::in_file(&run.quantization(), problem)
            .advise("prune the model that it was made from")
            .into());
    }
    let config: LanguageModelConfig = run.read_config(firelight_language::TASK)?;
    if config.adapters.is_some() {
        let problem = "describes a model with adapters";
        return Err(InputError::in_file(&run.config(), problem).advise("merge them first: firelight merge").into());
    }
    Ok(config)
}

/// The heads of each layer.
fn by_layer(heads: &[[usize; 2]], layers: usize) -> Result<Vec<Vec<usize>>, InputError> {
    let mut pruned = vec![Vec::new(); layers];
    for &[layer, head] in heads {
        let Some(of_layer) = pruned.get_mut(layer) else {
            let last = layers.saturating_sub(1);
            return Err(InputError::new(format!("there is no layer {layer} in the model: choose from 0 to {last}")));
        };
        if of_layer.contains(&head) {
            return Err(InputError::new(format!("head {layer}:{head} is named twice")).advise("name it once"));
        }
        of_layer.push(head);
    }
    match heads.is_empty() {
        true => Err(InputError::new("no head is to be pruned").advise("name at least one")),
        false => Ok(pruned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_sorted_by_layer() {
        assert_eq!(by_layer(&[[2, 0], [0, 1], [0, 3]], 3), Ok(vec![vec![1, 3], vec![], vec![0]]));
        let message = |heads: &[[usize; 2]]| by_layer(heads, 3).unwrap_err().to_string();
        assert!(message(&[[3, 0]]).contains("no layer 3 in the model: choose from 0 to 2"));
        assert!(message(&[[1, 0], [1, 0]]).contains("1:0 is named twice"));
        assert!(message(&[]).contains("no head is to be pruned"));
    }
}
