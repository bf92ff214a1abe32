//! What a model is asked about.

use firelight_data::Image;
use firelight_storage::{InputError, TaskError};

/// What the maps are of: a text, an image, and what a model writes about them.
///
/// ```
/// use firelight_inspect::Asked;
///
/// let asked = Asked { target: Some("1997-03-03".into()), ..Asked::about("3 March 1997") };
/// assert_eq!((asked.text.as_deref(), asked.generate), (Some("3 March 1997"), 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// The text that is read: the prompt of a language model, the source of a translator. A tab parts the two texts of a pair.
    pub text: Option<String>,
    /// What a translator or a captioner writes. By default its greedy output.
    pub target: Option<String>,
    /// The image that is read.
    pub image: Option<Image>,
    /// How many tokens a language model adds, the most probable one at every step; their maps are shown, and those of the text not.
    pub generate: usize,
}

/// What a model may be asked with, by the names of [`Asked`]'s fields.
const GIVEN: [&str; 4] = ["text", "target", "image", "generate"];

impl Asked {
    /// About a text.
    pub fn about(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Refuses what a model has no use for; `taken` is what it reads, and the first of it what it cannot do without.
    pub(crate) fn fits(&self, model: &str, taken: &[&str]) -> Result<(), InputError> {
        let given = [self.text.is_some(), self.target.is_some(), self.image.is_some(), self.generate > 0];
        let given = || GIVEN.into_iter().zip(given).filter(|(_, is_given)| *is_given).map(|(name, _)| name);
        if let Some(name) = given().find(|name| !taken.contains(name)) {
            let reason = if name == "target" { ", which has no cross-attention" } else { "" };
            let problem = format!("--{name} is not for {model}{reason}");
            let is_enough = given().any(|name| name == taken[0]);
            let besides = if is_enough { String::new() } else { format!(", and give --{}", taken[0]) };
            return Err(InputError::new(problem).advise(format!("leave it out{besides}")));
        }
        match given().any(|name| name == taken[0]) {
            true => Ok(()),
            false => Err(InputError::new(format!("{model} needs --{}", taken[0]))),
        }
    }

    /// The text, which was [asked for](Self::fits).
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// The image.
    pub(crate) fn image(&self) -> Result<&Image, InputError> {
        self.image.as_ref().ok_or_else(|| InputError::new("a model of images needs --image"))
    }
}

/// The most tokens that maps are drawn of: all layers and heads of more would not fit into memory, nor on a page.
const LONGEST: usize = 1024;

/// Refuses a text of no token, one of more than the model reads, and one whose maps are too large.
pub(crate) fn check_length(what: &str, tokens: usize, max_seq_len: usize) -> Result<(), TaskError> {
    match tokens {
        0 => Err(InputError::new(format!("the {what} is empty")).advise("give at least one token").into()),
        _ if tokens <= max_seq_len && tokens <= LONGEST => Ok(()),
        _ if tokens <= max_seq_len => {
            let problem = format!("the {what} has {tokens} tokens, and maps are drawn of {LONGEST} at most");
            Err(InputError::new(problem).advise("shorten it").into())
        }
        _ => {
            let problem = format!("the {what} has {tokens} tokens, but the model reads {max_seq_len} at most");
            Err(InputError::new(problem).advise("shorten it").into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_asked_with_what_it_reads() {
        let text = Asked::about("a");
        assert!(text.fits("a language model", &["text", "generate"]).is_ok());
        let image = text.fits("an image model", &["image"]).unwrap_err().to_string();
        assert_eq!(image, "--text is not for an image model; leave it out, and give --image");
        let target = Asked { target: Some("b".into()), ..text }.fits("an encoder", &["text"]).unwrap_err().to_string();
        assert!(target.contains("which has no cross-attention"), "{target}");
        assert!(Asked::default().fits("an encoder", &["text"]).unwrap_err().to_string().contains("needs --text"));
    }

    #[test]
    fn a_text_has_at_least_one_token_and_at_most_the_context() {
        assert!(check_length("text", 8, 8).is_ok());
        let long = check_length("text", 9, 8).unwrap_err();
        assert!(long.is_user_error() && long.to_string().contains("9 tokens, but the model reads 8"), "{long}");
        let large = check_length("text", 1025, 4096).unwrap_err().to_string();
        assert!(large.contains("1025 tokens, and maps are drawn of 1024 at most"), "{large}");
        assert!(check_length("text", 0, 8).unwrap_err().to_string().contains("is empty"));
    }
}
