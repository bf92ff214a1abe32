//! An explanation as one file of HTML that loads nothing, with the style and the policy of the page of attention maps.

use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::{Explanation, Step, Table, TableKind};
use crate::labels::shown_words;
use crate::page::{frame, json_in_html};

const OWN_STYLE: &str = include_str!("style.css");

const SCRIPT: &str = include_str!("script.js");

/// The most columns of a table that the page holds: vectors may be thousands of channels wide.
const COLUMNS: usize = 32;

/// What the script reads.
#[derive(Serialize)]
struct Data<'a> {
    steps: Vec<StepData<'a>>,
}

#[derive(Serialize)]
struct StepData<'a> {
    title: String,
    remark: &'a str,
    tables: Vec<TableData<'a>>,
}

/// A hidden score is null, which JSON makes of what is not finite.
#[derive(Serialize)]
struct TableData<'a> {
    name: &'a str,
    shape: &'a [usize],
    scores: bool,
    more: bool,
    rows: Vec<String>,
    columns: Vec<String>,
    values: Vec<&'a [f64]>,
}

pub(super) fn page(explanation: &Explanation) -> String {
    let data = Data { steps: explanation.steps.iter().map(step).collect() };
    let body = html! {
        noscript { p { "This page shows its numbers by a script: allow it to run." } }
        (views())
        script type="application/json" id="data" { (PreEscaped(json_in_html(&data))) }
        script { (PreEscaped(SCRIPT)) }
    };
    frame(&explanation.title, OWN_STYLE, &body)
}

/// The places that the script fills.
fn views() -> Markup {
    html! {
        div.controls {
            button #back type="button" { "Back" }
            button #next type="button" { "Next" }
            label { "Step " select #steps {} }
        }
        main {
            section aria-labelledby="step-title" {
                h2 #step-title {}
                p #remark {}
                div #tables {}
            }
            section #softmax aria-labelledby="softmax-title" hidden {
                h2 #softmax-title { "Softmax of one row" }
                p.hint { "Choose the token that reads by a click on its row. The scores are divided by the temperature first." }
                label { "Temperature " input #temperature type="range" min="0.1" max="5" step="0.1" value="1"; " " output #degrees {} }
                p #readout aria-live="polite" {}
                div #bars {}
            }
        }
    }
}

fn step(step: &Step) -> StepData<'_> {
    StepData { title: shown_words(&step.title), remark: &step.remark, tables: step.tables.iter().map(table).collect() }
}

fn table(table: &Table) -> TableData<'_> {
    let is_cut = table.kind == TableKind::Vectors && table.columns.len() > COLUMNS;
    let width = if is_cut { COLUMNS } else { table.columns.len() };
    TableData {
        name: &table.name,
        shape: &table.shape,
        scores: table.kind == TableKind::Scores,
        more: is_cut,
        rows: labels(&table.rows),
        columns: labels(&table.columns[..width]),
        values: table.values.iter().map(|row| &row[..width]).collect(),
    }
}

/// Names that can be seen; spaces within them stay.
fn labels(names: &[String]) -> Vec<String> {
    names.iter().map(|name| shown_words(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_and_keeps_its_markup_whatever_the_tokens_are() {
        let names = ["</script><img src=x>", "\u{0}\u{1b}"].map(String::from);
        let scores = vec![vec![0.5, f64::NEG_INFINITY], vec![1.0, 2.0]];
        let wide = Table::vectors("Q", &names, vec![vec![0.0625; 40]; 2]);
        let tables = vec![Table::pairs("masked scores", [&names, &names], scores).as_scores(), wide];
        let steps = vec![Step::new("mask", "<b>", tables)];
        let page = Explanation { title: "<title> & more".into(), steps }.to_page();
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<title>&lt;title&gt; &amp; more</title>"));
        assert_eq!((page.matches("<script").count(), page.matches("</script>").count()), (2, 2));
        for text in ["src=\"", "href=", "https://", "http://", "@import", "url(", "<img", "eval(", "innerHTML"] {
            assert!(!page.contains(text), "{text} is in the page");
        }
        assert!(page.contains("[0.5,null]") && page.contains("\"more\":true"));
        assert_eq!(page.matches("0.0625").count(), 64, "of forty channels 32 are kept");
        assert!(page.chars().all(|character| !character.is_control() || character == '\n'));
    }
}
