//! Pictures of experiments, as SVG.

use maud::html;

use super::{Axis, Grid, Summary};
use crate::plot::COLOURS;
use crate::theme::{INK, LINE, PAPER, styled, written};
use crate::{Chart, Series};

/// Height of a row, in pixels.
const ROW: usize = 24;

/// Width of the names of the rows.
const NAMES: f64 = 320.0;

/// Width of the values.
const VALUES: f64 = 440.0;

/// What stands beside the values on both sides.
const MARGIN: f64 = 24.0;

/// A line over the values of `axis`, for each combination of the other axes. Where all values are above 0 and the last is many times the
/// first, their logarithms are on the axis.
pub(super) fn draw_curves(grid: &Grid, axis: &Axis, summaries: &[Summary], metric: &str) -> String {
    let numbers = axis.numbers().unwrap_or_default();
    let (least, greatest) = numbers.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
    let is_log = least > 0.0 && greatest / least >= 8.0;
    let mut curves: Vec<Series> = Vec::new();
    for summary in summaries {
        let (own, others): (Vec<_>, Vec<_>) = summary.choices.iter().cloned().partition(|(key, _)| *key == axis.key);
        let index = own.first().and_then(|(_, value)| axis.values.iter().position(|one| one == value));
        let (Some(index), Some(mean)) = (index, summary.mean) else { continue };
        let x = if is_log { numbers[index].log10() } else { numbers[index] };
        let name = if others.is_empty() { metric.to_string() } else { grid.label(&others) };
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push((x, mean)),
            None => curves.push(Series { name, points: vec![(x, mean)] }),
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    let x_label = if is_log { format!("log10 of {}", axis.key) } else { axis.key.clone() };
    Chart { x_label, y_label: metric.into(), series: curves }.to_svg_of_points()
}

/// A row for each combination: its mean with a standard deviation on both sides, and the values of its seeds.
pub(super) fn draw_rows(summaries: &[Summary], metric: &str) -> String {
    let ends = |summary: &Summary| {
        let (mean, deviation) = (summary.mean.unwrap_or(f64::NAN), summary.deviation.unwrap_or(0.0));
        [mean - deviation, mean + deviation].into_iter().chain(summary.values.clone()).collect::<Vec<f64>>()
    };
    let all = summaries.iter().flat_map(ends).filter(|value| value.is_finite());
    let (least, greatest) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    let span = if greatest > least { greatest - least } else { 1.0 };
    let x = |value: f64| format!("{:.1}", NAMES + MARGIN + VALUES * ((value - least) / span));
    let (width, height) = (NAMES + VALUES + 2.0 * MARGIN, ROW * (summaries.len() + 2));
    let has_values = least.is_finite();
    let [paper, ink, line, mean_colour, seed] = [PAPER, INK, LINE, COLOURS[0], COLOURS[1]].map(written);
    let drawn = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height) font-family="sans-serif" font-size="14" fill=(ink) {
            rect width="100%" height="100%" fill=(paper) {}
            text x=(NAMES + MARGIN + VALUES / 2.0) y="16" text-anchor="middle" { (metric) }
            @for (index, summary) in summaries.iter().enumerate() {
                @let y = ROW * (index + 1) + ROW / 2;
                text x=(NAMES) y=(y + 5) text-anchor="end" { (summary.name) }
                line x1=(NAMES + MARGIN) x2=(NAMES + MARGIN + VALUES) y1=(y) y2=(y) stroke=(line) {}
                @if let Some(mean) = summary.mean {
                    @let deviation = summary.deviation.unwrap_or(0.0);
                    line x1=(x(mean - deviation)) x2=(x(mean + deviation)) y1=(y) y2=(y) stroke=(mean_colour) stroke-width="2" {}
                    @for value in &summary.values {
                        circle cx=(x(*value)) cy=(y) r="3" fill="none" stroke=(seed) {}
                    }
                    circle cx=(x(mean)) cy=(y) r="5" fill=(mean_colour) {}
                }
            }
            @if has_values {
                @let y = ROW * (summaries.len() + 1) + 18;
                text x=(NAMES + MARGIN) y=(y) text-anchor="middle" { (format!("{least:.4}")) }
                text x=(NAMES + MARGIN + VALUES) y=(y) text-anchor="middle" { (format!("{greatest:.4}")) }
            }
        }
    };
    styled(&drawn.into_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(key: &str, value: &str, values: &[f64]) -> Summary {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Summary {
            name: format!("{key}={value}"),
            choices: vec![(key.to_string(), value.to_string())],
            runs: values.len(),
            values: values.to_vec(),
            mean: (!values.is_empty()).then_some(mean),
            deviation: None,
            first: None,
        }
    }

    #[test]
    fn numbers_are_a_line() {
        let axis = Axis::parse("a.b=1,10,100").unwrap();
        let grid = Grid::new(vec![axis.clone()], false, 1).unwrap();
        let summaries = [("1", 3.0), ("10", 2.0), ("100", 1.5)].map(|(value, mean)| summary("a.b", value, &[mean]));
        let svg = draw_curves(&grid, &axis, &summaries, "validation loss");
        assert!(svg.starts_with("<svg") && svg.contains("log10 of a.b") && svg.contains("validation loss"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    }

    #[test]
    fn words_are_rows_and_what_has_no_value_is_named_too() {
        let rows = [summary("a.p", "x<y", &[1.0, 3.0]), summary("a.p", "z", &[])];
        let svg = draw_rows(&rows, "accuracy");
        assert!(svg.starts_with("<svg") && svg.contains("a.p=x&lt;y") && svg.contains("a.p=z"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3, "two seeds and their mean: {svg}");
        assert!(svg.contains(">1.0000<") && svg.contains(">3.0000<"), "{svg}");
        assert!(draw_rows(&[], "accuracy").starts_with("<svg"));
    }
}
