//! A picture of runs: throughput, latency and level 0 over time, a colour for each engine.

use super::recorder::Op;
use super::run::{Outcome, Sample};
use super::store::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

const COLOURS: [RGBColor; 8] = [
    RGBColor(0x1b, 0x7f, 0x6b),
    RGBColor(0xd0, 0x6a, 0x2c),
    RGBColor(0x4a, 0x6f, 0xb5),
    RGBColor(0xa8, 0x3c, 0x6e),
    RGBColor(0x8a, 0x8a, 0x2a),
    RGBColor(0x6a, 0x4c, 0x93),
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0x3a, 0x9a, 0xc9),
];

/// What is drawn of a sample; `None` leaves a gap.
type Series<'a> = &'a dyn Fn(&Sample) -> Option<f64>;

/// Draws an SVG file with four panels.
///
/// # Errors
///
/// When the file can't be written.
pub fn draw(outcomes: &[Outcome], file: &Path) -> Result<()> {
    let area = SVGBackend::new(file, (960, 1000)).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((4, 1));
    let main = main_op(outcomes);
    let title = |what: &str| format!("{what} of {}, us", main.name());
    panel(&panels[0], outcomes, "operations a second", &|sample| Some(sample.per_second()))?;
    let of = move |sample: &Sample| sample.ops[main as usize];
    panel(&panels[1], outcomes, &title("p99"), &|sample| (of(sample).count > 0).then(|| of(sample).p99))?;
    panel(&panels[2], outcomes, &title("longest"), &|sample| (of(sample).count > 0).then(|| of(sample).max))?;
    panel(&panels[3], outcomes, "tables of level 0", &|sample| {
        sample.inside.level0.map(|count| count as f64)
    })?;
    area.present()?;
    Ok(())
}

/// The operation whose latency is drawn: gets where there are any, else puts.
fn main_op(outcomes: &[Outcome]) -> Op {
    let gets = outcomes.iter().any(|outcome| outcome.ops[Op::Get as usize].count > 0);
    if gets { Op::Get } else { Op::Put }
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    outcomes: &[Outcome],
    title: &str,
    series: Series<'_>,
) -> Result<()> {
    let samples = || outcomes.iter().flat_map(|outcome| &outcome.samples);
    let end = samples().map(|sample| sample.at).fold(f64::MIN_POSITIVE, f64::max);
    let most = samples().filter_map(series).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..end, 0.0..most * 1.05)?;
    chart.configure_mesh().x_desc("s").max_light_lines(2).draw()?;
    for (outcome, colour) in outcomes.iter().zip(COLOURS.iter().cycle()) {
        let points = outcome.samples.iter().filter_map(|sample| Some((sample.at, series(sample)?)));
        chart
            .draw_series(LineSeries::new(points, colour))?
            .label(outcome.engine.clone())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}
