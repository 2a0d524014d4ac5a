//! Helpers for drawing SVG figures.

use std::fmt::Write;

/// Colors that are distinguishable with color blindness (after Okabe and Ito).
pub(crate) const COLOURS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442"];

/// Returns the start of a figure of the given size, with a white background.
pub(crate) fn begin(width: u32, height: u32) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

pub(crate) fn text(svg: &mut String, x: u32, y: u32, size: u32, words: &str) {
    anchored(svg, x, y, size, "start", words);
}

/// Draws text that is anchored at its start, middle or end.
pub(crate) fn anchored(svg: &mut String, x: u32, y: u32, size: u32, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

pub(crate) fn line(svg: &mut String, from: (u32, u32), to: (u32, u32), colour: &str, width: u32) {
    let _ = writeln!(
        svg,
        "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
        from.0, from.1, to.0, to.1
    );
}
