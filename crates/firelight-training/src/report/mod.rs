//! The report of a run: one HTML page that needs nothing beside it, with the curves, the recipe, the parameters and what the
//! model writes. It is made from the run folder, so it can be made again at any time.

mod curves;
mod sample;
mod scale;

use std::time::Duration;

use firelight_storage::palette::page_style;
use firelight_storage::{InputError, ModelFolder, read_text_file, write_atomic};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::recipe;
use crate::sessions::{Session, read_sessions};
use crate::theme::{bare, dark_style};
use crate::words::{grouped, lasting};
use crate::{Series, TrainingError, ValidationLoss};
use curves::{Curves, chart};
pub use sample::Sample;

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
    /// The step at which the run is to end.
    pub steps: usize,
    /// What is known in one line each, such as the size of the data: a name and a value.
    pub facts: Vec<(String, String)>,
    /// The parameters by part.
    pub parameters: Vec<(String, usize)>,
    /// What else is shown of the model, such as its confusion matrix: a heading and an SVG element.
    pub figures: Vec<(String, String)>,
    /// What the model made of what.
    pub samples: Vec<Sample>,
}

/// The losses of runs by step as one picture, of each run those of the training, smoothed, and those of the validation. Of several runs, each
/// line has the name of its run in front.
///
/// # Errors
/// If the `metrics.jsonl` of a run cannot be read or holds no loss.
///
/// # Example
///
/// ```
/// use firelight_storage::ModelFolder;
/// use firelight_training::draw_losses;
///
/// # let home = tempfile::tempdir().unwrap();
/// # std::fs::write(home.path().join("config.json"), "{}").unwrap();
/// # std::fs::write(home.path().join("metrics.jsonl"), "{\"step\":1,\"loss\":2.5}\n{\"step\":1,\"validation_loss\":2.0}\n").unwrap();
/// # let path = home.path();
/// let runs = [("stories".to_string(), ModelFolder::open(path)?)];
/// assert!(draw_losses(&runs)?.contains("validation"));
/// # Ok::<(), firelight_training::TrainingError>(())
/// ```
pub fn draw_losses(runs: &[(String, ModelFolder)]) -> Result<String, TrainingError> {
    let mut curves = Vec::new();
    for (name, folder) in runs {
        let path = folder.metrics();
        let found = Curves::read(&path)?.losses();
        if found.iter().all(|curve| curve.points.is_empty()) {
            return Err(InputError::in_file(&path, "holds no loss").advise("train the run for a step or more").into());
        }
        let front = if runs.len() > 1 { format!("{name}: ") } else { String::new() };
        curves.extend(found.into_iter().map(|curve| Series { name: format!("{front}{}", curve.name), ..curve }));
    }
    Ok(chart("loss, nats", curves).to_svg())
}

impl Report {
    /// Writes `report.html` into the run folder, with the curves of its `metrics.jsonl`, its recipe if it has one, and the dates,
    /// wall time and commands of its `sessions.json`.
    ///
    /// # Errors
    /// Fails if a file of the folder cannot be read or the page cannot be written; an older page then stays.
    pub fn write(&self, folder: &ModelFolder) -> Result<(), TrainingError> {
        let curves = Curves::read(&folder.metrics())?;
        let recipe = match read_text_file(folder.recipe(), recipe::LIMIT) {
            Err(error) if error.is_not_found() => None,
            recipe => Some(recipe?),
        };
        let facts = [self.progress(&curves), self.facts.clone(), history(&read_sessions(&folder.sessions())?)].concat();
        Ok(write_atomic(folder.report(), self.page(&facts, &curves, recipe.as_deref()).into_string())?)
    }

    /// How far the run has come.
    fn progress(&self, curves: &Curves) -> Vec<(String, String)> {
        let done = curves.last_step().unwrap_or(0);
        let steps = match done >= self.steps {
            true => done.to_string(),
            false => format!("{done} of {}", self.steps),
        };
        let validation = curves.validation().map(|(step, loss)| {
            let loss = format!("{loss:.4} {} at step {step}", self.loss_unit);
            ("validation loss".to_string(), loss)
        });
        [("steps".to_string(), steps)].into_iter().chain(validation).collect()
    }

    fn page(&self, facts: &[(String, String)], curves: &Curves, recipe: Option<&str>) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(page_style(&[]))) (PreEscaped(dark_style())) (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    (table(facts))
                    @for (heading, chart) in curves.charts(self.target, &self.loss_unit) { (figure(&heading, &chart.to_svg())) }
                    @for (heading, svg) in &self.figures { (figure(heading, svg)) }
                    @if !self.samples.is_empty() { h2 { "Samples" } }
                    @for sample in &self.samples { (sample.to_html()) }
                    @if let Some(recipe) = recipe { h2 { "Recipe" } pre { (recipe) } }
                    @if !self.parameters.is_empty() { h2 { "Parameters" } (parameters(&self.parameters)) }
                }
            }
        }
    }
}

/// When, for how long, where and how a run was trained.
fn history(sessions: &[Session]) -> Vec<(String, String)> {
    let Some(first) = sessions.first() else { return Vec::new() };
    let total =
        lasting(Duration::try_from_secs_f64(sessions.iter().map(|session| session.seconds).sum()).unwrap_or_default());
    let time = match sessions.len() {
        1 => total,
        count => format!("{total} in {count} sessions"),
    };
    let each = |value: fn(&Session) -> &str| {
        let mut values: Vec<&str> = sessions.iter().map(value).filter(|value| !value.is_empty()).collect();
        values.dedup();
        values.join(", ")
    };
    let facts = [
        ("date", first.began.clone()),
        ("wall time", time),
        ("device", each(|session| &session.device)),
        ("version", format!("firelight {}", each(|session| &session.version))),
    ];
    let commands = sessions.iter().map(|session| ("command", session.command_line()));
    let named = facts.into_iter().chain(commands).filter(|(_, value)| !value.is_empty());
    named.map(|(name, value)| (name.to_string(), value)).collect()
}

/// The newest evaluation in a run's metrics.
pub(crate) fn newest_evaluation(folder: &ModelFolder) -> Result<Option<ValidationLoss>, TrainingError> {
    Ok(Curves::read(&folder.metrics())?.validation().map(|(step, loss)| ValidationLoss { step, loss }))
}

fn figure(heading: &str, svg: &str) -> Markup {
    html! { figure { figcaption { (heading) } (PreEscaped(bare(svg))) } }
}

fn table(facts: &[(String, String)]) -> Markup {
    html! { table.facts { @for (name, value) in facts { tr { th { (name) } td { (value) } } } } }
}

fn parameters(parts: &[(String, usize)]) -> Markup {
    let total: usize = parts.iter().map(|(_, count)| count).sum();
    html! {
        table.parameters {
            @for (part, count) in parts { tr { td { (part) } td.number { (grouped(*count)) } } }
            tr.total { td { "total" } td.number { (grouped(total)) } }
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
            steps: 2000,
            facts: vec![("data".into(), "90 tokens".into())],
            parameters: vec![("embedding".into(), 30), ("blocks".into(), 1200)],
            figures: vec![(
                "Confusion".into(),
                draw_confusion(&[vec![3, 1], vec![0, 2]], &["no".into(), "yes".into()]),
            )],
            samples: vec![Sample::new("\"Once\"", "Once <upon> a time & so on").expecting("<end>")],
        }
    }

    fn folder() -> (tempfile::TempDir, ModelFolder) {
        let home = tempfile::tempdir().unwrap();
        let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
        std::fs::write(folder.recipe(), "task = \"language\"\n").unwrap();
        (home, folder)
    }

    /// A run of two processes, the first of which was stopped.
    const SESSIONS: &str = r#"[
        {"began": "2026-11-23 20:24:06 UTC", "seconds": 4000.5, "from_step": 0, "to_step": 1200, "version": "0.1.0",
         "device": "flex", "command": ["firelight", "train", "my recipe.toml"]},
        {"began": "2026-11-24 08:00:00 UTC", "seconds": 320.0, "from_step": 1000, "to_step": 1354, "version": "0.1.0",
         "device": "flex", "command": ["firelight", "train", "--resume"]}]"#;

    #[test]
    fn the_page_holds_everything_and_loads_nothing() {
        let (_home, folder) = folder();
        let lines = "{\"step\":1250,\"validation_loss\":4.0}\n\
                     {\"step\":1354,\"loss\":4.5,\"learning_rate\":0.001,\"gradient_norm\":2.0,\"tokens_per_second\":100.0}\n";
        std::fs::write(folder.metrics(), lines).unwrap();
        std::fs::write(folder.sessions(), SESSIONS).unwrap();
        report().write(&folder).unwrap();
        let page = std::fs::read_to_string(folder.report()).unwrap();
        for text in [
            "stories-1 &lt;test&gt;",
            "<th>steps</th><td>1354 of 2000</td>",
            "<th>validation loss</th><td>4.0000 nats per token at step 1250</td>",
            "<th>data</th><td>90 tokens</td>",
            "<th>date</th><td>2026-11-23 20:24:06 UTC</td>",
            "<th>wall time</th><td>1 h 12 min in 2 sessions</td>", // 4320.5 seconds
            "<th>device</th><td>flex</td>",
            "<th>version</th><td>firelight 0.1.0</td>",
            "<th>command</th><td>firelight train 'my recipe.toml'</td>",
            "<th>command</th><td>firelight train --resume</td>",
            "Once &lt;upon&gt; a time &amp; so on",
            "&lt;end&gt;",
            "task = &quot;language&quot;",
            ">1,230<",
            "<figcaption>Confusion</figcaption><svg",
        ] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        assert_eq!(page.matches("<svg").count(), 5);
        // One palette for the words and all pictures.
        assert_eq!(["<style", "color-scheme: dark)", "--paper: #"].map(|text| page.matches(text).count()), [1, 2, 2]);
        assert!(!STYLE.contains('#'), "a colour that is not of the palette");
        assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("@import"));
    }

    #[test]
    fn a_run_of_an_older_version_and_one_without_a_step_have_a_report_too() {
        let (_home, folder) = folder();
        std::fs::write(folder.metrics(), "").unwrap();
        Report { steps: 10, ..Report::default() }.write(&folder).unwrap();
        let page = std::fs::read_to_string(folder.report()).unwrap();
        assert!(
            page.contains("<td>0 of 10</td>") && !page.contains("wall time") && !page.contains("Parameters"),
            "{page}"
        );
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
