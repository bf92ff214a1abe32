//! Padding tokens that a family does not count in its positions.

use firelight_storage::TaskError;

use super::Arrays;
use super::arrays::unfit;
use crate::{PublishedModel, Structure};

impl Structure {
    /// Refuses arguments for which [`AutoModel::forward`](crate::AutoModel::forward) gives other outputs than `transformers`. RoBERTa, XLM-R,
    /// CamemBERT and MPNet give a token with the padding's id no position of its own, even where `attention_mask` does not hide it; the models
    /// here count every token that the mask shows. Of other families nothing is refused, nor of a run folder that does not say the id: one
    /// that was trained here, or imported before run folders kept it.
    ///
    /// ```no_run
    /// use firelight_pretrained::{Arrays, Structure};
    ///
    /// let structure = Structure::of_folder("runs/roberta-base")?;
    /// structure.check_padding(&Arrays::read("inputs.safetensors")?)?;
    /// # Ok::<(), firelight_storage::TaskError>(())
    /// ```
    ///
    /// # Errors
    /// If `input_ids` holds such a token that `attention_mask` does not hide, or one of them is not whole numbers of shape `[B, T]`.
    pub fn check_padding(&self, inputs: &Arrays) -> Result<(), TaskError> {
        let ids = inputs.integers("input_ids")?;
        let padding = self.encoder().and_then(|encoder| i64::try_from(encoder.uncounted_padding?).ok());
        let Some((padding, (_, ids))) = padding.zip(ids) else { return Ok(()) };
        let mask = inputs.integers("attention_mask")?.map(|(_, flags)| flags);
        let is_shown = |place: usize| mask.is_none_or(|flags| flags.get(place).is_some_and(|&flag| flag != 0));
        if !ids.iter().enumerate().any(|(place, &id)| id == padding && is_shown(place)) {
            return Ok(());
        }
        let found = if mask.is_some() { "does not hide" } else { "is missing, but `input_ids` holds" };
        let problem = format!("{found} the padding token {padding}, which this family does not count in its positions");
        Err(unfit("attention_mask", &problem, "0 at every padding token"))
    }
}

impl PublishedModel {
    /// As [`Structure::check_padding`], of what the checkpoint is.
    ///
    /// # Errors
    /// As [`Structure::check_padding`].
    pub fn check_padding(&self, inputs: &Arrays) -> Result<(), TaskError> {
        self.structure().check_padding(inputs)
    }
}
