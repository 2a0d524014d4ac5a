//! Time lines of copies and kernels: on one stream, and on two.

use crate::support::svg::{COLOURS, anchored, begin, line, text};
use std::fmt::Write;

const CHUNKS: usize = 5;
/// The lengths of a copy and of a kernel.
const COPY: u32 = 50;
const KERNEL: u32 = 60;
const LEFT: u32 = 120;
const LANE: u32 = 34;
const BAR: u32 = 26;

pub(crate) fn draw() -> String {
    let mut svg = begin(LEFT + (COPY + KERNEL) * CHUNKS as u32 + 24, 196);

    text(&mut svg, 16, 24, 14, "One stream: each copy waits for the kernel before it");
    text(&mut svg, 16, 55, 12, "stream");
    let mut now = LEFT;
    for chunk in 0..CHUNKS {
        bar(&mut svg, now, 38, COPY, COLOURS[5], &format!("copy {chunk}"));
        bar(&mut svg, now + COPY, 38, KERNEL, COLOURS[1], &format!("kernel {chunk}"));
        now += COPY + KERNEL;
    }

    let (top, below) = (114, 114 + LANE);
    text(&mut svg, 16, top - 14, 14, "Two streams: a kernel waits only for its own chunk (rebind)");
    text(&mut svg, 16, top + 17, 12, "copies");
    text(&mut svg, 16, below + 17, 12, "compute");
    let mut idle_from = LEFT;
    for chunk in 0..CHUNKS {
        let start = LEFT + chunk as u32 * COPY;
        let copied = start + COPY;
        bar(&mut svg, start, top, COPY, COLOURS[5], &format!("copy {chunk}"));
        let launched = copied.max(idle_from);
        bar(&mut svg, launched, below, KERNEL, COLOURS[1], &format!("kernel {chunk}"));
        line(&mut svg, (copied - 2, top + BAR), (launched + 4, below), "#444", 1);
        idle_from = launched + KERNEL;
    }
    svg.push_str("</svg>\n");
    svg
}

fn bar(svg: &mut String, x: u32, y: u32, width: u32, colour: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{BAR}\" rx=\"4\" fill=\"{colour}\"/>",
        width - 2
    );
    anchored(svg, x + width / 2 - 1, y + 17, 11, "middle", words);
}
