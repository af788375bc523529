//! Bar charts: for each group one SVG file, in it a panel for each row with a bar for each engine.

use crate::engine::Result;
use crate::report::{Clock, Results, number};
use crate::rows::{Group, ROWS, Row};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

const WIDTH: u32 = 720;
const BAR: i32 = 16;
const TITLE: i32 = 26;
const GAP: i32 = 14;
/// Where bars begin, behind the names of the engines.
const LEFT: i32 = 90;
/// Where the longest bar ends, before its figure.
const RIGHT: i32 = 620;

const ESKER: RGBColor = RGBColor(0x1b, 0x7f, 0x6b);
const LSM: RGBColor = RGBColor(0x8a, 0xa4, 0xc8);
const TREE: RGBColor = RGBColor(0xc9, 0xb4, 0x8a);

/// Draws `chart-<group>.svg` for each group that was measured.
pub(crate) fn draw(results: &Results, out: &Path) -> Result<()> {
    for &group in Group::all() {
        let rows: Vec<&Row> =
            ROWS.iter().filter(|row| row.group == group && bars(results, row) > 0).collect();
        if !rows.is_empty() {
            let file = out.join(format!("chart-{}.svg", format!("{group:?}").to_lowercase()));
            draw_group(results, &rows, &file)?;
        }
    }
    Ok(())
}

/// The engines that have a figure in a row.
fn bars(results: &Results, row: &Row) -> i32 {
    let there =
        results.engines().iter().filter(|engine| results.cell(row, &engine.name, Clock::Wall).is_some());
    i32::try_from(there.count()).expect("few engines")
}

fn draw_group(results: &Results, rows: &[&Row], file: &Path) -> Result<()> {
    let height: i32 = rows.iter().map(|row| TITLE + BAR * bars(results, row) + GAP).sum();
    let area = SVGBackend::new(file, (WIDTH, height.unsigned_abs())).into_drawing_area();
    area.fill(&WHITE)?;
    let title_style = ("sans-serif", 15).into_font().color(&BLACK);
    let name_style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Right, VPos::Center));
    let figure_style = ("sans-serif", 12).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut top = 0;
    for row in rows {
        area.draw_text(&format!("{} ({})", row.title, row.unit.sign()), &title_style, (8, top + 6))?;
        top += TITLE;
        let cells: Vec<_> = results
            .engines()
            .iter()
            .filter_map(|engine| Some((engine, results.cell(row, &engine.name, Clock::Wall)?.median)))
            .collect();
        let longest = cells.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
        for (engine, value) in cells {
            let end = LEFT + (f64::from(RIGHT - LEFT) * value / longest) as i32;
            let colour = match (engine.name.as_str(), engine.lsm) {
                ("esker", _) => ESKER,
                (_, true) => LSM,
                (_, false) => TREE,
            };
            let bar = [(LEFT, top + 1), (end.max(LEFT + 1), top + BAR - 2)];
            area.draw(&Rectangle::new(bar, colour.filled()))?;
            area.draw_text(&engine.name, &name_style, (LEFT - 6, top + BAR / 2))?;
            area.draw_text(&number(value), &figure_style, (end + 6, top + BAR / 2))?;
            top += BAR;
        }
        top += GAP;
    }
    area.present()?;
    Ok(())
}
