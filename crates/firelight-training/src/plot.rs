//! Line charts as SVG: the curves of a run's report and of schedules. The drawing is plotters' own; here are the colours, the
//! axes and the bounds, so that every picture of this library looks alike.

use std::ops::Range;

use plotters::prelude::*;

/// Width and height of a chart in pixels.
const SIZE: (u32, u32) = (760, 300);

/// More points than this on a line cannot be told apart.
const POINTS: usize = 1500;

/// Colours that also colour-blind readers tell apart (Okabe and Ito 2008).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
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
    pub curves: Vec<Curve>,
}

impl Chart {
    /// The chart as an SVG element; points that are no numbers are left out.
    ///
    /// # Example
    ///
    /// ```
    /// use firelight_training::{Chart, Curve};
    ///
    /// let curve = Curve { name: "loss".into(), points: vec![(1.0, 4.2), (2.0, 3.1)] };
    /// let chart = Chart { x_label: "step".into(), y_label: "nats".into(), curves: vec![curve] };
    /// assert!(chart.to_svg().starts_with("<svg"));
    /// ```
    pub fn to_svg(&self) -> String {
        let curves: Vec<Curve> =
            self.curves.iter().map(Curve::thinned).filter(|curve| !curve.points.is_empty()).collect();
        let mut svg = String::new();
        // Drawing into a string fails only where a font is missing, and SVG leaves fonts to its reader.
        let _ = self.draw(&curves, &mut svg);
        svg
    }

    fn draw<'a>(
        &self,
        curves: &[Curve],
        svg: &'a mut String,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let points = || curves.iter().flat_map(|curve| curve.points.iter());
        let (x, y) = (bounds(points().map(|point| point.0), 0.0), bounds(points().map(|point| point.1), 0.05));
        let mut chart =
            ChartBuilder::on(&area).margin(12).x_label_area_size(38).y_label_area_size(64).build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .y_label_formatter(&|value| tick(*value))
            .x_label_formatter(&|value| tick(*value))
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(226, 226, 226))
            .axis_style(RGBColor(120, 120, 120))
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
            let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2));
            let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
            chart.draw_series(line)?.label(&curve.name).legend(key);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(TRANSPARENT)
            .label_font(("sans-serif", 13))
            .draw()?;
        area.present()
    }
}

impl Curve {
    /// The finite points, as many as an eye can follow; the last one always.
    fn thinned(&self) -> Self {
        let finite: Vec<_> = self.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        let every = finite.len().div_ceil(POINTS).max(1);
        let mut points: Vec<_> = finite.iter().copied().step_by(every).collect();
        points.extend(finite.last().filter(|last| points.last() != Some(*last)));
        Self { name: self.name.clone(), points }
    }
}

/// From the least to the greatest value, with a `margin` on both sides; never empty.
fn bounds(values: impl Iterator<Item = f64>, margin: f64) -> Range<f64> {
    let (least, greatest) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), value| (least.min(value), greatest.max(value)));
    match greatest - least {
        span if span.is_finite() && span > 0.0 => least - margin * span..greatest + margin * span,
        _ if least.is_finite() => least - 0.5..least + 0.5,
        _ => 0.0..1.0,
    }
}

/// A number on an axis, in few characters.
fn tick(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if !(1e-3..1e6).contains(&size) {
        format!("{value:.1e}")
    } else if size >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> String {
        let curve = Curve { name: "loss & more".into(), points };
        Chart { x_label: "step".into(), y_label: "nats".into(), curves: vec![curve] }.to_svg()
    }

    #[test]
    fn a_chart_names_its_axes_and_lines() {
        let svg = chart(vec![(0.0, 4.0), (10.0, 1.0)]);
        for text in ["step", "nats", "loss &amp; more", "<polyline"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(svg.ends_with("</svg>\n") && !svg.contains("http://localhost"));
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
    fn long_lines_are_thinned_to_their_ends() {
        let curve = Curve { name: String::new(), points: (0..100_000).map(|x| (f64::from(x), 1.0)).collect() };
        let thin = curve.thinned().points;
        assert!(thin.len() <= POINTS + 1 && thin[0].0 == 0.0 && thin[thin.len() - 1].0 == 99_999.0);
    }

    #[test]
    fn ticks_are_short() {
        let ticks = [0.0, 1500.0, 0.25, 3e-4, 2e7, 2.5].map(tick);
        assert_eq!(ticks, ["0", "1500", "0.25", "3.0e-4", "2.0e7", "2.5"]);
    }
}
