//! Draws memory over time: the memory in use as a stack of size classes, the cached memory above it, and
//! its fragmentation.

use crate::support::svg::{COLOURS, anchored, begin, line, text};
use cuda_memory::{Sample, Timeline};
use std::fmt::Write;

const LEFT: u32 = 90;
const WIDTH: u32 = 760;
const TOP: u32 = 76;
const HEIGHT: u32 = 300;
const PIECES: u32 = 70;
const GRID: &str = "#dddddd";
const CACHED: &str = "#bbbbbb";

/// Groups of size classes: first, end (exclusive), label. Classes are powers of two.
const GROUPS: [(usize, usize, &str); 5] = [
    (0, 16, "below 64 KiB"),
    (16, 18, "to 256 KiB"),
    (18, 20, "to 1 MiB"),
    (20, 22, "to 4 MiB"),
    (22, 64, "above"),
];

/// Returns the bytes in use in a group.
fn of_group(sample: &Sample, (from, below, _): (usize, usize, &str)) -> u64 {
    sample.classes.iter().take(below).skip(from).sum()
}

struct Axes {
    end: f64,
    most: f64,
}

impl Axes {
    fn x(&self, sample: &Sample) -> f64 {
        f64::from(LEFT) + sample.time.as_secs_f64() / self.end * f64::from(WIDTH)
    }

    fn y(&self, bytes: u64) -> f64 {
        f64::from(TOP + HEIGHT) - bytes as f64 / self.most * f64::from(HEIGHT)
    }
}

pub(crate) fn draw(timeline: &Timeline, device: &str) -> String {
    let samples = timeline.samples();
    let end = samples.last().map_or(1e-9, |its| its.time.as_secs_f64());
    let all = samples.iter().map(|its| its.used() + its.cached);
    let axes = Axes { end: end.max(1e-9), most: all.max().unwrap_or(1).max(1) as f64 * 1.05 };
    let bottom = TOP + HEIGHT;
    let mut svg = begin(LEFT + WIDTH + 40, bottom + PIECES + 110);
    text(&mut svg, 20, 32, 18, "Device memory of a caching pool over time");
    let below = format!(
        "{device}; {} samples in {:.1} ms; in use, by allocation size, and cached",
        samples.len(),
        end * 1e3
    );
    text(&mut svg, 20, 54, 13, &below);

    let step = step_of(axes.most);
    for mark in (0..).map(|n| n * step).take_while(|mark| (*mark as f64) < axes.most) {
        let y = axes.y(mark) as u32;
        line(&mut svg, (LEFT, y), (LEFT + WIDTH, y), GRID, 1);
        let words = format!("{} MiB", mark >> 20);
        anchored(&mut svg, LEFT - 8, y + 4, 12, "end", &words);
    }
    // From the largest sum down, so that each area covers the lower part of the previous one.
    area(&mut svg, &axes, samples, CACHED, |its| its.used() + its.cached);
    for group in (0..GROUPS.len()).rev() {
        let upto = |its: &Sample| GROUPS[..=group].iter().map(|group| of_group(its, *group)).sum();
        area(&mut svg, &axes, samples, COLOURS[group], upto);
    }
    pieces(&mut svg, &axes, samples, bottom + 24);
    let names = GROUPS.iter().zip(COLOURS).map(|((.., name), colour)| (colour, *name));
    for (x, (colour, words)) in (20u32..).step_by(140).zip(names.chain([(CACHED, "kept, unused")]))
    {
        let y = bottom + PIECES + 76;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{colour}\"/>"
        );
        text(&mut svg, x + 20, y + 12, 12, words);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns a round number of bytes that divides the axis into a few steps.
fn step_of(most: f64) -> u64 {
    let mut step = 1u64 << 20;
    while most / step as f64 > 8.0 {
        step *= 2;
    }
    step
}

/// Draws the area below a step curve.
fn area(
    svg: &mut String,
    axes: &Axes,
    samples: &[Sample],
    colour: &str,
    bytes: impl Fn(&Sample) -> u64,
) {
    let base = TOP + HEIGHT;
    let mut path = format!("M{LEFT} {base}");
    let mut before = f64::from(base);
    for sample in samples {
        let (x, y) = (axes.x(sample), axes.y(bytes(sample)));
        let _ = write!(path, "L{x:.1} {before:.1}L{x:.1} {y:.1}");
        before = y;
    }
    let _ = writeln!(
        svg,
        "<path d=\"{path}L{} {before:.1}L{} {base}Z\" fill=\"{colour}\"/>",
        LEFT + WIDTH,
        LEFT + WIDTH
    );
}

/// Draws the fragmentation of the cached memory.
fn pieces(svg: &mut String, axes: &Axes, samples: &[Sample], top: u32) {
    let base = top + PIECES;
    line(svg, (LEFT, base), (LEFT + WIDTH, base), GRID, 1);
    line(svg, (LEFT, top), (LEFT + WIDTH, top), GRID, 1);
    anchored(svg, LEFT - 8, top + 4, 12, "end", "100 %");
    anchored(svg, LEFT - 8, base + 4, 12, "end", "0 %");
    let mut path = String::new();
    for sample in samples {
        let (x, y) = (axes.x(sample), f64::from(base) - sample.fragmentation * f64::from(PIECES));
        // The value is constant up to the sample.
        let _ = match path.is_empty() {
            true => write!(path, "M{x:.1} {y:.1}"),
            false => write!(path, "H{x:.1}V{y:.1}"),
        };
    }
    let _ =
        writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"#d55e00\" stroke-width=\"1.5\"/>");
    anchored(svg, LEFT + WIDTH, base + 18, 12, "end", "fragmentation of cached memory");
}
