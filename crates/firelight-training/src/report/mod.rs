//! The report of a run: one HTML page that needs nothing beside it, with the curves, the recipe, the parameters and what the
//! model writes. It is made from the run folder, so it can be made again at any time.

mod curves;

use std::path::Path;

use firelight_storage::{ModelFolder, StorageError, write_atomic};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::TrainingError;
use curves::Curves;

/// The look of the page: one column of text, and nothing that is loaded from elsewhere.
const STYLE: &str = include_str!("style.css");

/// What a report says beside what the run folder holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The name of the run.
    pub title: String,
    /// What a loss is the mean over: `token`, `text`, `image`.
    pub target: &'static str,
    /// What a loss counts: `nats per token`.
    pub loss_unit: String,
    /// What is known in one line each, such as the device: a name and a value.
    pub facts: Vec<(String, String)>,
    /// The parameters by part.
    pub parameters: Vec<(String, usize)>,
    /// What else is shown of the model, such as its confusion matrix: a heading and an SVG element.
    pub figures: Vec<(String, String)>,
    /// What the model made of what: a heading and a text.
    pub samples: Vec<(String, String)>,
}

impl Report {
    /// Writes `report.html` into the run folder, with the curves of its `metrics.jsonl` and its recipe.
    ///
    /// # Errors
    /// Fails if a file of the folder cannot be read or the page cannot be written; an older page then stays.
    pub fn write(&self, folder: &ModelFolder) -> Result<(), TrainingError> {
        let curves = Curves::read(&folder.metrics())?;
        let recipe = read(&folder.recipe())?;
        Ok(write_atomic(folder.report(), self.page(&curves, &recipe).into_string())?)
    }

    fn page(&self, curves: &Curves, recipe: &str) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    (table(&self.facts))
                    @for (heading, chart) in curves.charts(self.target, &self.loss_unit) { (figure(heading, &chart.to_svg())) }
                    @for (heading, svg) in &self.figures { (figure(heading, svg)) }
                    @if !self.samples.is_empty() { h2 { "Samples" } }
                    @for (heading, text) in &self.samples { h3 { (heading) } pre.sample { (text) } }
                    h2 { "Recipe" }
                    pre { (recipe) }
                    h2 { "Parameters" }
                    (parameters(&self.parameters))
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<String, StorageError> {
    std::fs::read_to_string(path).map_err(StorageError::io("read", path))
}

fn figure(heading: &str, svg: &str) -> Markup {
    html! { figure { figcaption { (heading) } (PreEscaped(svg)) } }
}

fn table(facts: &[(String, String)]) -> Markup {
    html! { table.facts { @for (name, value) in facts { tr { th { (name) } td { (value) } } } } }
}

fn parameters(parts: &[(String, usize)]) -> Markup {
    let total: usize = parts.iter().map(|(_, count)| count).sum();
    html! {
        table.parameters {
            @for (part, count) in parts { tr { td { (part) } td.number { (count) } } }
            tr.total { td { "together" } td.number { (total) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::classes::draw_confusion;
    use firelight_storage::Existing;

    fn report() -> Report {
        Report {
            title: "stories-1 <test>".into(),
            target: "token",
            loss_unit: "nats per token".into(),
            facts: vec![("device".into(), "flex".into())],
            parameters: vec![("embedding".into(), 30), ("blocks".into(), 12)],
            figures: vec![(
                "Confusion".into(),
                draw_confusion(&[vec![3, 1], vec![0, 2]], &["no".into(), "yes".into()]),
            )],
            samples: vec![("after \"Once\"".into(), "Once <upon> a time & so on".into())],
        }
    }

    fn folder() -> (tempfile::TempDir, ModelFolder) {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        std::fs::write(folder.recipe(), "task = \"language\"\n").unwrap();
        (home, folder)
    }

    #[test]
    fn the_page_holds_everything_and_loads_nothing() {
        let (_home, folder) = folder();
        let lines = "{\"step\":1,\"loss\":4.5,\"learning_rate\":0.001,\"gradient_norm\":2.0,\"tokens_per_second\":100.0}\n\
                     {\"step\":1,\"validation_loss\":4.0}\n";
        std::fs::write(folder.metrics(), lines).unwrap();
        report().write(&folder).unwrap();
        let page = std::fs::read_to_string(folder.report()).unwrap();
        for text in [
            "stories-1 &lt;test&gt;",
            "flex",
            "Once &lt;upon&gt; a time &amp; so on",
            "task = &quot;language&quot;",
            ">42<",
            "<figcaption>Confusion</figcaption><svg",
        ] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        assert_eq!(page.matches("<svg").count(), 5);
        assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("@import"));
    }

    #[test]
    fn metrics_that_cannot_be_read_are_named() {
        let (_home, folder) = folder();
        let error = report().write(&folder).unwrap_err();
        assert!(error.to_string().contains("cannot read") && error.to_string().contains("metrics.jsonl"), "{error}");
        std::fs::write(folder.metrics(), "{\"step\":1,\"loss\":4.5}\nnot JSON\n{\"step\":2,\"loss\":4.0}\n").unwrap();
        let error = report().write(&folder).unwrap_err();
        assert!(error.to_string().contains("metrics.jsonl` is damaged: line 2"), "{error}");
        assert!(!folder.report().exists());
    }
}
