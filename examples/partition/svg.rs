//! Draws the partitions: a square for each SM, in the color of its partition.

use crate::show::Report;
use crate::support::svg::{COLOURS, begin, text};
use std::fmt::Write;

const SQUARE: u32 = 26;
const GAP: u32 = 4;
const COLUMNS: u32 = 16;
const MARGIN: u32 = 20;
const HEAD: u32 = 56;
const LEGEND_ROW: u32 = 22;

const UNUSED: &str = "#d9d9d9";

pub(crate) fn draw(report: &Report) -> String {
    let step = SQUARE + GAP;
    let rows = report.id_end().div_ceil(COLUMNS);
    let legend = HEAD + rows * step + MARGIN;
    let partitions = u32::try_from(report.groups.len()).unwrap_or(0);
    let (width, height) =
        ((2 * MARGIN + COLUMNS * step).max(520), legend + (partitions + 1) * LEGEND_ROW + MARGIN);

    let mut svg = begin(width, height);
    let title = format!("{}: {} SMs, CUDA {}", report.device, report.sms, report.driver);
    text(&mut svg, MARGIN, 32, 16, &title);
    for id in 0..report.id_end() {
        let (x, y) = (MARGIN + id % COLUMNS * step, HEAD + id / COLUMNS * step);
        let colour = report.owner(id).map_or(UNUSED, colour);
        square(&mut svg, x, y, colour);
        text(&mut svg, x + 4, y + SQUARE - 9, 10, &id.to_string());
    }
    for (index, group) in report.groups.iter().enumerate() {
        let y = legend + u32::try_from(index).unwrap_or(0) * LEGEND_ROW;
        let line = format!(
            "partition {}: asked {}, given {}, ran on {} SMs",
            index + 1,
            group.asked,
            group.given,
            group.sm_ids.len()
        );
        legend_line(&mut svg, y, colour(index), &line);
    }
    let line = format!("no partition: {} SMs", report.remaining);
    legend_line(&mut svg, legend + partitions * LEGEND_ROW, UNUSED, &line);
    svg.push_str("</svg>\n");
    svg
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

fn square(svg: &mut String, x: u32, y: u32, colour: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{SQUARE}\" height=\"{SQUARE}\" rx=\"4\" fill=\"{colour}\"/>"
    );
}

fn legend_line(svg: &mut String, y: u32, colour: &str, line: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{colour}\"/>"
    );
    text(svg, MARGIN + 24, y + 12, 13, line);
}
