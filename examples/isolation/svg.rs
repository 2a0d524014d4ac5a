//! Draws the distributions: a histogram for each series, on a common time axis.

use crate::measure::{Series, Way};
use crate::show::Report;
use crate::support::stats::microseconds;
use crate::support::svg::{anchored, begin, line, text};
use std::fmt::Write;

const LEFT: u32 = 290;
const WIDTH: u32 = 600;
const RIGHT: u32 = 130;
const HEAD: u32 = 84;
const ROW: u32 = 74;
const HILL: u32 = 52;
/// Number of bars in a histogram.
const BARS: u32 = 200;

const ALONE: &str = "#7f7f7f";
const PRIORITY: &str = "#d55e00";
const GREEN: &str = "#009e73";
const GRID: &str = "#dddddd";

/// A logarithmic time axis.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn of(series: &[Series]) -> Self {
        let min = series.iter().map(|its| its.rounds.min()).min();
        let max = series.iter().map(|its| its.rounds.max()).max();
        let log = |nanoseconds: Option<u64>| (nanoseconds.unwrap_or(1).max(1) as f64).log10();
        let (from, to) = (log(min) - 0.05, log(max) + 0.05);
        Self { from, to }
    }

    /// Returns the position from 0 to 1.
    fn part(&self, nanoseconds: u64) -> f64 {
        let log = (nanoseconds.max(1) as f64).log10();
        ((log - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    fn x(&self, nanoseconds: u64) -> u32 {
        LEFT + (self.part(nanoseconds) * f64::from(WIDTH)) as u32
    }
}

pub(crate) fn draw(report: &Report) -> String {
    let series = &report.measured.series;
    let axis = Axis::of(series);
    let rows = u32::try_from(series.len()).unwrap_or(0);
    let bottom = HEAD + rows * ROW;
    let mut svg = begin(LEFT + WIDTH + RIGHT, bottom + 96);
    let title = "Latency of a short kernel, and the effect of a neighbor";
    text(&mut svg, 20, 32, 18, title);
    let [urgent, other] = report.measured.sms;
    let below = format!(
        "{}, CUDA {}; green contexts: {urgent} SMs for the kernel, {other} for the neighbor{}",
        report.device,
        report.driver,
        if report.simulated { "; SOFTWARE DRIVER, times are meaningless" } else { "" }
    );
    text(&mut svg, 20, 54, 13, &below);

    grid(&mut svg, &axis, bottom);
    for (row, its) in (0u32..).zip(series) {
        draw_row(&mut svg, &axis, HEAD + row * ROW + ROW - 8, its);
    }
    let alone = axis.x(report.p99_alone());
    let _ = writeln!(
        svg,
        "<line x1=\"{alone}\" y1=\"{HEAD}\" x2=\"{alone}\" y2=\"{bottom}\" stroke=\"black\" \
         stroke-dasharray=\"4 4\"/>"
    );
    let legend = "dashed: p99 alone; bar in a histogram: its p99; tick at its end: slowest \
                  launch; height: number of launches (logarithmic)";
    text(&mut svg, 20, bottom + 56, 12, legend);
    let keys =
        [(ALONE, "alone"), (PRIORITY, "a higher stream priority only"), (GREEN, "green contexts")];
    for (x, (colour, words)) in (20u32..).step_by(240).zip(keys) {
        let y = bottom + 70;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{colour}\"/>"
        );
        text(&mut svg, x + 22, y + 12, 13, words);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws a line for each power of ten, and lines for its double and fivefold if there is room.
fn grid(svg: &mut String, axis: &Axis, bottom: u32) {
    let few = axis.to - axis.from < 4.0;
    for power in 2..11u32 {
        for factor in [1u64, 2, 5] {
            let time = factor * 10u64.pow(power);
            let log = (time as f64).log10();
            let shown = factor == 1 || few;
            if !shown || log < axis.from || log > axis.to {
                continue;
            }
            let x = axis.x(time);
            line(svg, (x, HEAD), (x, bottom), GRID, 1);
            let words = match time {
                0..1_000 => format!("{time} ns"),
                1_000..1_000_000 => format!("{} µs", time / 1_000),
                1_000_000..1_000_000_000 => format!("{} ms", time / 1_000_000),
                _ => format!("{} s", time / 1_000_000_000),
            };
            anchored(svg, x, bottom + 20, 12, "middle", &words);
        }
    }
}

fn draw_row(svg: &mut String, axis: &Axis, base: u32, series: &Series) {
    let rounds = &series.rounds;
    let colour = match (series.neighbour, series.way) {
        (None, _) => ALONE,
        (_, Way::Priority) => PRIORITY,
        (_, Way::Green) => GREEN,
    };
    let mut counts = vec![0u32; BARS as usize];
    for time in rounds.all() {
        let bar = (axis.part(time) * f64::from(BARS)) as usize;
        counts[bar.min(BARS as usize - 1)] += 1;
    }
    // Logarithmic, so that one percent of the launches is still visible.
    let height = |count: u32| f64::from(count).ln_1p();
    let most = counts.iter().copied().map(height).fold(1.0, f64::max);
    let mut path = format!("M{LEFT} {base}");
    for (bar, count) in (0u32..).zip(counts) {
        let (left, right) = (LEFT + bar * WIDTH / BARS, LEFT + (bar + 1) * WIDTH / BARS);
        let y = f64::from(base) - height(count) / most * f64::from(HILL);
        let _ = write!(path, "L{left} {y:.1}L{right} {y:.1}");
    }
    let _ = writeln!(
        svg,
        "<path d=\"{path}L{} {base}Z\" fill=\"{colour}\" fill-opacity=\"0.55\"/>",
        LEFT + WIDTH
    );
    line(svg, (LEFT, base), (LEFT + WIDTH, base), colour, 1);
    let (p50, p99) = (rounds.percentile(50.0), rounds.percentile(99.0));
    let (bar, end) = (axis.x(p99), axis.x(rounds.max()));
    line(svg, (bar, base - HILL), (bar, base), colour, 4);
    line(svg, (end, base - 8), (end, base), colour, 2);
    text(svg, 20, base - 26, 14, series.name());
    let half = format!("p50 {} µs", microseconds(p50));
    text(svg, 20, base - 8, 12, &half);
    let words = format!("p99 {} µs", microseconds(p99));
    text(svg, LEFT + WIDTH + 12, base - 16, 14, &words);
}
