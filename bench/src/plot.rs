//! Draws the figure: a row for each operation and a dot for each layer, with C at 1.

use crate::time::Measured;
use crate::work::Layer;
use std::fmt::Write as _;

const LEFT: f64 = 322.0;
const WIDTH: f64 = 620.0;
const TOP: f64 = 92.0;
const ROW: f64 = 30.0;
/// The range of the axis, as multiples of C.
const FROM: f64 = 0.5;
const TO: f64 = 8.0;

const DRAWN: [(Layer, &str); 4] = [
    (Layer::Sys, "#1f77b4"),
    (Layer::Safe, "#2ca02c"),
    (Layer::Cudarc, "#ff9f40"),
    (Layer::CudarcStreams, "#d62728"),
];

fn x(ratio: f64) -> f64 {
    let part = (ratio.clamp(FROM, TO) / FROM).ln() / (TO / FROM).ln();
    LEFT + WIDTH * part
}

pub(crate) fn svg(driver: &str, measured: &[Measured]) -> String {
    let bottom = TOP + ROW * measured.len() as f64;
    let (width, height) = (LEFT + WIDTH + 30.0, bottom + 40.0);
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"16\" font-weight=\"bold\">\
         Time of a call, as a multiple of plain C (left is faster)</text>\n\
         <text x=\"16\" y=\"43\" fill=\"#555\">{}. Grey: C against itself. Dots: medians; bars: 5 to 95 % \
         of the rounds.</text>\n",
        escaped(driver)
    );
    let mut at = LEFT;
    for (layer, colour) in DRAWN {
        let name = layer.name();
        let text = at + 10.0;
        let _ = writeln!(
            s,
            "<circle cx=\"{at}\" cy=\"63\" r=\"5\" fill=\"{colour}\"/><text x=\"{text}\" y=\"67\">{name}</text>"
        );
        at += 30.0 + 8.0 * name.len() as f64;
    }
    for tick in [0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0] {
        let (at, is_c) = (x(tick), tick == 1.0);
        let (colour, stroke) = if is_c { ("#000", 1.5) } else { ("#ddd", 1.0) };
        let label = bottom + 18.0;
        let _ = writeln!(
            s,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"{colour}\" \
             stroke-width=\"{stroke}\"/><text x=\"{at:.1}\" y=\"{label}\" text-anchor=\"middle\">{tick}</text>"
        );
    }
    for (number, measured) in measured.iter().enumerate() {
        row(&mut s, TOP + ROW * number as f64, measured);
    }
    s.push_str("</svg>\n");
    s
}

fn row(s: &mut String, top: f64, measured: &Measured) {
    let base = top + ROW / 2.0 + 4.0;
    let right = LEFT + WIDTH;
    let _ =
        writeln!(s, "<line x1=\"16\" y1=\"{top}\" x2=\"{right}\" y2=\"{top}\" stroke=\"#eee\"/>");
    let (time_at, name_at) = (LEFT - 12.0, LEFT - 64.0);
    let ns = measured.of(Layer::C).map_or(f64::NAN, |times| times.each.median);
    let _ = writeln!(
        s,
        "<text x=\"{name_at}\" y=\"{base}\" text-anchor=\"end\">{}</text>\n\
         <text x=\"{time_at}\" y=\"{base}\" text-anchor=\"end\" fill=\"#888\">{}</text>",
        escaped(measured.name),
        human(ns)
    );
    if let Some(again) = measured.of(Layer::CAgain) {
        let (from, to) = (x(again.ratio.low), x(again.ratio.high));
        let (y, height) = (top + 3.0, ROW - 6.0);
        let _ = writeln!(
            s,
            "<rect x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{height}\" fill=\"#999\" \
             fill-opacity=\"0.3\"/>",
            (to - from).max(1.0)
        );
    }
    for (place, (layer, colour)) in DRAWN.into_iter().enumerate() {
        let Some(times) = measured.of(layer) else {
            continue;
        };
        let y = top + 6.0 + place as f64 * 6.0;
        let (low, at, high) = (x(times.ratio.low), x(times.ratio.median), x(times.ratio.high));
        let _ = writeln!(
            s,
            "<line x1=\"{low:.1}\" y1=\"{y}\" x2=\"{high:.1}\" y2=\"{y}\" stroke=\"{colour}\"/>\
             <circle cx=\"{at:.1}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>"
        );
        // A label with the value, for a dot beyond the axis.
        if times.ratio.median > TO {
            let (text, below) = (at + 7.0, y + 3.0);
            let _ = writeln!(
                s,
                "<text x=\"{text:.1}\" y=\"{below}\" font-size=\"8\" fill=\"{colour}\">{:.0}</text>",
                times.ratio.median
            );
        }
    }
}

fn human(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{:.1} ms", ns / 1e6),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
