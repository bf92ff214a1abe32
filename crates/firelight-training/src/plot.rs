//! Line charts as SVG: the curves of a run's report and of schedules. The drawing is plotters' own; here are the colours, the
//! axes and the bounds, so that every picture of this library looks alike.

use std::ops::Range;

use plotters::prelude::*;

use crate::ScheduleConfig;
use crate::theme::{INK, LINE as GRID, PAPER, SOFT, styled, written};

/// Width and height of a chart in pixels.
const SIZE: (u32, u32) = (760, 300);

/// Width of the column on the right in which the lines are named.
const LEGEND: u32 = 200;

/// Height of a name.
const LINE: u32 = 22;

/// Height of the letters, which plotters writes as 13 pixels.
const TEXT: u32 = 16;

/// The most numbers below a chart.
const TICKS: usize = 10;

/// More points than this on a line cannot be told apart.
const POINTS: usize = 1500;

/// Colours that also colour-blind readers tell apart (Okabe and Ito 2008).
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// By how much the dash of a line is shorter than that of the line below it, in pixels.
const DASH: usize = 4;

/// A line of so few points shows each of them.
const MARKED: usize = 40;

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// What a chart shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What stands below the horizontal axis.
    pub x_label: String,
    /// What stands beside the vertical axis, with its unit.
    pub y_label: String,
    /// The lines.
    pub series: Vec<Series>,
}

impl Chart {
    /// The chart as an SVG element; points that are no numbers are left out.
    ///
    /// # Example
    ///
    /// ```
    /// use firelight_training::{Chart, Series};
    ///
    /// let curve = Series { name: "loss".into(), points: vec![(1.0, 4.2), (2.0, 3.1)] };
    /// let chart = Chart { x_label: "step".into(), y_label: "nats".into(), series: vec![curve] };
    /// assert!(chart.to_svg().starts_with("<svg"));
    /// ```
    pub fn to_svg(&self) -> String {
        styled(&self.svg(true))
    }

    /// The same with a horizontal axis from the first point to the last, of numbers that count nothing.
    pub fn to_svg_of_points(&self) -> String {
        styled(&self.svg(false))
    }

    fn svg(&self, from_zero: bool) -> String {
        let curves = self.shown();
        let mut svg = String::new();
        // Drawing into a string fails only where a font is missing, and SVG leaves fonts to its reader.
        let _ = self.draw(&curves, from_zero, &mut svg);
        dashed(&svg, curves.len())
    }

    /// The lines that have points.
    fn shown(&self) -> Vec<Series> {
        self.series.iter().map(Series::thinned).filter(|curve| !curve.points.is_empty()).collect()
    }

    fn draw<'a>(
        &self,
        curves: &[Series],
        from_zero: bool,
        svg: &'a mut String,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        let area = SVGBackend::with_string(svg, (SIZE.0, height(curves.len()))).into_drawing_area();
        area.fill(&PAPER)?;
        let (left, right) = area.split_horizontally(SIZE.0 - LEGEND);
        let points = || curves.iter().flat_map(|curve| curve.points.iter());
        // Counts begin at 0, so that a single point stands where the run is and not in the middle of twice as long a one.
        let (zero, margin) = if from_zero { (Some(0.0), 0.0) } else { (None, 0.05) };
        let x = bounds(points().map(|point| point.0).chain(zero), margin);
        let y = bounds(points().map(|point| point.1), 0.05);
        let [across, up] = [&x, &y].map(|range| range.end - range.start);
        let mut chart =
            ChartBuilder::on(&left).margin(12).x_label_area_size(38).y_label_area_size(84).build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .x_labels(if from_zero { (across as usize).saturating_add(1).clamp(2, TICKS) } else { TICKS })
            .y_label_formatter(&|value| tick(*value, up))
            .x_label_formatter(&|value| tick(*value, across))
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(SOFT)
            .label_style(letters())
            .axis_desc_style(letters())
            .draw()?;
        for ((curve, colour), row) in curves.iter().zip(COLOURS.iter().cycle()).zip(0..) {
            chart.draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)))?;
            if curve.points.len() <= MARKED {
                chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
            }
            let y = 20 + LINE as i32 * row;
            right.draw(&PathElement::new([(0, y), (40, y)], colour.stroke_width(2)))?;
            right.draw(&Text::new(curve.name.clone(), (46, y - 7), letters()))?;
        }
        area.present()
    }
}

/// The letters of a chart.
fn letters() -> TextStyle<'static> {
    TextStyle::from(("sans-serif", TEXT).into_font()).color(&INK)
}

/// Height of a chart, whose lines all have their names beside it.
fn height(curves: usize) -> u32 {
    SIZE.1.max(40 + LINE * curves as u32)
}

/// Charts of points, one below the other, as one SVG element.
///
/// # Example
///
/// ```
/// use firelight_training::{Chart, Series, draw_charts};
///
/// let chart = |y_label: &str| {
///     let curve = Series { name: "a".into(), points: vec![(1.0, 4.2), (2.0, 3.1)] };
///     Chart { x_label: "size".into(), y_label: y_label.into(), series: vec![curve] }
/// };
/// let svg = draw_charts(&[chart("time"), chart("memory")]);
/// assert!(svg.starts_with("<svg") && svg.contains("time") && svg.contains("memory"));
/// ```
pub fn draw_charts(charts: &[Chart]) -> String {
    let (mut drawn, mut below) = (String::new(), 0);
    for chart in charts {
        drawn += &chart.svg(false).replacen("<svg ", &format!("<svg y=\"{below}\" "), 1);
        below += height(chart.shown().len());
    }
    let width = SIZE.0;
    styled(&format!("<svg width=\"{width}\" height=\"{below}\" xmlns=\"http://www.w3.org/2000/svg\">\n{drawn}</svg>\n"))
}

/// The drawing with each of its lines in their dashes, which the SVG of plotters has no words for.
fn dashed(svg: &str, curves: usize) -> String {
    let polylines =
        COLOURS.map(|colour| format!("<polyline fill=\"none\" opacity=\"1\" stroke=\"{}\"", written(colour)));
    let (mut drawn, mut found) = ([0; COLOURS.len()], String::with_capacity(svg.len()));
    for line in svg.split_inclusive('\n') {
        let colour = polylines.iter().position(|polyline| line.starts_with(polyline.as_str()));
        let dashes = colour.and_then(|colour| {
            // A line is drawn twice: in the chart, and beside its name.
            let turn = drawn[colour] / 2;
            drawn[colour] += 1;
            Some((&polylines[colour], dashes(colour + COLOURS.len() * turn, curves)?))
        });
        match dashes {
            Some((begin, dashes)) => {
                found += &format!("{begin} stroke-dasharray=\"{dashes}\"{}", &line[begin.len()..]);
            }
            None => found += line,
        }
    }
    found
}

/// The dashes of one of several lines; the first one has none. In each period the dash of a line ends before those of the lines below it,
/// so that all of them show even where they have the same points. Twice as many lines as there are colours differ.
fn dashes(line: usize, lines: usize) -> Option<String> {
    let several = if lines > COLOURS.len() { 2 * COLOURS.len() } else { COLOURS.len() };
    let gap = DASH * (line % several);
    (gap > 0).then(|| format!("{} {gap}", DASH * several - gap))
}

impl Series {
    /// The finite points, as many as an eye can follow; the last one always.
    fn thinned(&self) -> Self {
        let finite: Vec<_> = self.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        let every = finite.len().div_ceil(POINTS).max(1);
        let mut points: Vec<_> = finite.iter().copied().step_by(every).collect();
        points.extend(finite.last().filter(|last| points.last() != Some(*last)));
        Self { name: self.name.clone(), points }
    }
}

/// From the least to the greatest value, with a `margin` on both sides; a value that is alone is seen beside 0. Never empty.
fn bounds(values: impl Iterator<Item = f64>, margin: f64) -> Range<f64> {
    let (least, greatest) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), value| (least.min(value), greatest.max(value)));
    match greatest - least {
        span if span.is_finite() && span > 0.0 => least - margin * span..greatest + margin * span,
        _ if least.is_finite() && least != 0.0 => {
            let end = (1.0 + margin) * least;
            end.min(0.0)..end.max(0.0)
        }
        _ => 0.0..1.0,
    }
}

/// A number on an axis of this length, to a thousandth of it; all numbers of an axis that begins at 0 are written alike.
fn tick(value: f64, length: f64) -> String {
    let places = (3.0 - length.log10().floor()).clamp(0.0, 12.0) as usize;
    let rounded: f64 = format!("{value:.places$}").parse().unwrap_or(value);
    match rounded.abs().max(length) {
        _ if rounded == 0.0 => "0".into(),
        1e-4..2e6 => rounded.to_string(),
        _ => format!("{:e}", format!("{value:.2e}").parse().unwrap_or(value)),
    }
}

/// The learning rates of `schedules`, each with its name, over the first `steps` steps, where `peak` is the highest. Those
/// that are the same have one line with all their names.
pub fn draw_schedules(schedules: &[(String, ScheduleConfig)], peak: f64, steps: usize) -> String {
    let mut curves: Vec<Series> = Vec::new();
    for (name, schedule) in schedules {
        let samples = POINTS.min(steps).max(1);
        let done = (0..=samples).map(|i| (i as u128 * steps as u128 / samples as u128) as usize);
        let points: Vec<_> = done.map(|done| (done as f64, schedule.learning_rate(peak, done))).collect();
        match curves.iter_mut().find(|curve| curve.points == points) {
            Some(same) => same.name = format!("{}, {name}", same.name),
            None => curves.push(Series { name: name.clone(), points }),
        }
    }
    Chart { x_label: "steps done".into(), y_label: "learning rate of the next step".into(), series: curves }.to_svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScheduleKind;

    fn chart(points: Vec<(f64, f64)>) -> String {
        let curve = Series { name: "loss & more".into(), points };
        Chart { x_label: "step".into(), y_label: "nats".into(), series: vec![curve] }.to_svg()
    }

    #[test]
    fn a_chart_names_its_axes_and_lines() {
        let svg = chart(vec![(0.0, 4.0), (10.0, 1.0)]);
        for text in ["step", "nats", "loss &amp; more", "<polyline"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(svg.ends_with("</svg>\n") && !svg.contains("http://localhost"));
    }

    /// WCAG 2.2 asks for 3 to 1 of lines; on white the two lightest of these are below it, and have dashes.
    #[test]
    fn a_chart_is_drawn_in_the_palette_and_its_lines_are_seen_on_a_dark_screen() {
        use firelight_storage::palette::{Theme, contrast};
        let svg = chart(vec![(0.0, 4.0), (10.0, 1.0)]);
        let (style, drawn) = svg.split_once("</style>").unwrap();
        assert_eq!(style.matches("@media").count(), 1);
        let known = [PAPER, INK, SOFT, GRID, COLOURS[0]].map(written);
        for part in drawn.split("=\"#").skip(1) {
            let colour = format!("#{}", &part[..6]);
            assert!(known.contains(&colour), "{colour} in {svg}");
        }
        let dark = Theme::Dark.palette().paper;
        let ratios = COLOURS.map(|RGBColor(r, g, b)| (10.0 * contrast([r, g, b], dark)).round() / 10.0);
        assert_eq!(ratios, [3.5, 4.7, 5.3, 5.9, 8.1, 7.9]);
    }

    #[test]
    fn numbers_that_count_nothing_begin_where_the_points_do() {
        let curve = Series { name: "loss".into(), points: vec![(100.0, 2.0), (101.0, 1.0)] };
        let chart = Chart { x_label: "size".into(), y_label: "nats".into(), series: vec![curve] };
        let first_x = |svg: &str| -> f64 {
            let circle = svg.split("<circle cx=\"").nth(1).unwrap();
            circle.split('"').next().unwrap().parse().unwrap()
        };
        assert!(first_x(&chart.to_svg_of_points()) + 200.0 < first_x(&chart.to_svg()));
        assert!(Chart { series: Vec::new(), ..chart }.to_svg_of_points().ends_with("</svg>\n"));
    }

    #[test]
    fn charts_stand_one_below_the_other() {
        let curve = |name: &str| Series { name: name.into(), points: vec![(1.0, 1.0), (2.0, 2.0)] };
        let chart = |lines: usize, y_label: &str| {
            let curves = (0..lines).map(|line| curve(&format!("{y_label}{line}"))).collect();
            Chart { x_label: "size".into(), y_label: y_label.into(), series: curves }
        };
        // The first chart has so many names that it is higher: 40 + 22 times 13.
        let svg = draw_charts(&[chart(13, "time"), chart(1, "memory")]);
        assert!(svg.starts_with("<svg width=\"760\" height=\"626\" "), "{svg}");
        assert!(svg.contains("<svg y=\"0\" width") && svg.contains("<svg y=\"326\" width"), "{svg}");
        assert_eq!([svg.matches("<svg ").count(), svg.matches("</svg>").count()], [3, 3]);
        assert!(svg.ends_with("</svg>\n") && svg.contains("memory0"));
    }

    #[test]
    fn nothing_one_point_and_no_numbers_are_drawn_too() {
        for points in
            [vec![], vec![(1.0, 2.0)], vec![(0.0, f64::NAN), (1.0, f64::INFINITY)], vec![(3.0, 1.0), (4.0, 1.0)]]
        {
            assert!(chart(points).ends_with("</svg>\n"));
        }
    }

    #[test]
    fn lines_that_cover_each_other_differ_in_colour_and_dashes() {
        let curve = |name: &str| Series { name: name.into(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let curves = ["a", "b", "c"].map(curve).to_vec();
        let svg = Chart { x_label: "step".into(), y_label: "share".into(), series: curves }.to_svg();
        // Each line once in the chart and once in the legend.
        let lines =
            |stroke: &str| svg.lines().filter(|line| line.starts_with("<polyline") && line.contains(stroke)).count();
        assert_eq!(
            ["\"#0072B2\" stroke-width", "\"#D55E00\" stroke-dasharray=\"20 4\"", "\"16 8\""].map(lines),
            [2, 2, 2]
        );
        assert_eq!(lines("stroke-dasharray"), 4);
        assert_eq!(svg.matches("<circle").count(), 6);
    }

    #[test]
    fn lines_of_one_colour_differ_in_their_dashes() {
        let curve = |number: usize| Series { name: format!("{number}"), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let chart = |count: usize| Chart {
            x_label: String::new(),
            y_label: String::new(),
            series: (0..count).map(curve).collect(),
        };
        let strokes = |count: usize| {
            let svg = chart(count).to_svg();
            let lines =
                svg.lines().filter(|line| line.starts_with("<polyline") && !line.contains("stroke-width=\"1\""));
            let mut found: Vec<String> = lines
                .filter_map(|line| Some(line.split_once("stroke=")?.1.split_once(" stroke-width")?.0.into()))
                .collect();
            found.sort();
            found.dedup();
            found
        };
        for count in [6, 7, 12] {
            assert_eq!(strokes(count).len(), count, "{:?}", strokes(count));
        }
        // The first and the seventh line have one colour.
        let first: Vec<String> = strokes(7).into_iter().filter(|stroke| stroke.starts_with("\"#0072B2\"")).collect();
        assert_eq!(first, ["\"#0072B2\"", "\"#0072B2\" stroke-dasharray=\"24 24\""]);
        assert_eq!([dashes(0, 9), dashes(5, 6), dashes(12, 13)], [None, Some("4 20".into()), None]);
    }

    #[test]
    fn the_axis_of_a_single_point_ends_with_it() {
        let svg = chart(vec![(2000.0, 2.0)]);
        assert!(svg.contains("\n2000\n") && !svg.contains("\n4000\n"), "{svg}");
    }

    #[test]
    fn long_lines_are_thinned_to_their_ends() {
        let curve = Series { name: String::new(), points: (0..100_000).map(|x| (f64::from(x), 1.0)).collect() };
        let thin = curve.thinned().points;
        assert!(thin.len() <= POINTS + 1 && thin[0].0 == 0.0 && thin[thin.len() - 1].0 == 99_999.0);
    }

    #[test]
    fn a_line_at_one_height_is_seen_beside_zero() {
        assert_eq!(bounds([0.5, 0.5].into_iter(), 0.5), 0.0..0.75);
        assert_eq!(bounds([-2.0].into_iter(), 0.0), -2.0..0.0);
        assert_eq!(bounds([0.0].into_iter(), 0.0), 0.0..1.0);
        assert_eq!(bounds([1.0, 3.0].into_iter(), 0.5), 0.0..4.0);
    }

    #[test]
    fn schedules_are_drawn_each_and_equal_ones_once() {
        let schedules = ScheduleKind::ALL
            .map(|kind| (kind.name().to_string(), ScheduleConfig::default().with_kind(kind).over(2000)));
        let svg = draw_schedules(&schedules, 3e-3, 2000);
        for text in ["steps done", "learning rate", "cosine", "wsd", "noam, inverse_sqrt", "2000", "0.003"] {
            assert!(svg.contains(text), "{text}");
        }
        let curves =
            svg.lines().filter(|line| line.starts_with("<polyline") && line.matches(',').count() > 200).count();
        assert_eq!(curves, 5);
        assert!(draw_schedules(&schedules, 3e-3, 0).starts_with("<svg"));
        assert!(draw_schedules(&schedules[..1], 1.0, usize::MAX).starts_with("<svg"));
    }

    #[test]
    fn ticks_are_short() {
        let ticks = [0.0, 1500.0, 0.25, 3e-4, 2e7, 2.5].map(|value| tick(value, 2.0 * value.max(0.5)));
        assert_eq!(ticks, ["0", "1500", "0.25", "0", "2e7", "2.5"]);
        assert_eq!([3e-4, -6.78e-21, 2.5e-5].map(|value| tick(value, 1e-3)), ["0.0003", "0", "0.000025"]);
        assert_eq!([1e-5, 2.5e-5].map(|value| tick(value, 5e-5)), ["1e-5", "2.5e-5"]);
        assert_eq!([5e5, 1e6, 1e7].map(|value| tick(value, 1e7)), ["5e5", "1e6", "1e7"]);
        assert_eq!([2.31, 2.3125, 2.315].map(|value| tick(value, 0.03)), ["2.31", "2.3125", "2.315"]);
    }
}
