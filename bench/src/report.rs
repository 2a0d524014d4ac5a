//! Formats the results as a table and as JSON.

use crate::time::{Measured, Spread, Times};
use crate::work::Layer;
use serde_json::{Value, json};
use std::fmt::Write as _;

pub(crate) fn table(measured: &[Measured]) -> String {
    let mut rows = vec![head()];
    rows.extend(measured.iter().map(row));
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|{:-<1$}", "", width + 2);
            }
            text.push_str("|\n");
        }
    }
    text.push_str(
        "\nC: nanoseconds per operation. Other layers: multiple of C, median of the rounds (5 % .. 95 % \
         of the rounds).\n= level with C: within the spread of C against itself, 3 %, or 5 ns.\n",
    );
    for verdict in Verdict::ALL {
        let names: Vec<&str> = (measured.iter())
            .filter(|measured| measured.against_cudarc() == Some(verdict))
            .map(|measured| measured.name)
            .collect();
        if !names.is_empty() {
            let _ = writeln!(text, "cuda-safe is {} in: {}.", verdict.words(), names.join("; "));
        }
    }
    let of_nodes: Vec<String> = measured.iter().filter_map(ownership).collect();
    if !of_nodes.is_empty() {
        let list = of_nodes.join("; ");
        let _ = writeln!(text, "what ownership costs in graphs, per node: {list}.");
    }
    text
}

/// Returns the time that `cuda-safe` needs in addition to C for each node of a graph.
fn ownership(measured: &Measured) -> Option<String> {
    let median = |layer| Some(measured.of(layer)?.each.median);
    let more = median(Layer::Safe)? - median(Layer::C)?;
    let nodes = std::num::NonZero::new(measured.nodes)?.get() as f64;
    Some(format!("{} {:.1} ns", measured.name, more / nodes))
}

/// The comparison of `cuda-safe` with cudarc: with the faster of the two cudarc layers, if both exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ahead,
    Level,
    Behind,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Ahead, Self::Level, Self::Behind];

    fn words(self) -> &'static str {
        match self {
            Self::Ahead => "ahead of cudarc",
            Self::Level => "level with cudarc (within the spread of C against itself)",
            Self::Behind => "behind cudarc",
        }
    }
}

fn head() -> Vec<String> {
    let names = Layer::ALL.map(|layer| match layer {
        Layer::C => "C, ns".to_owned(),
        layer => layer.name().to_owned(),
    });
    std::iter::once("operation".to_owned()).chain(names).collect()
}

fn row(measured: &Measured) -> Vec<String> {
    let cells = Layer::ALL.map(|layer| match (layer, measured.of(layer)) {
        (_, None) => "-".to_owned(),
        (Layer::C, Some(times)) => format!("{:.1}", times.each.median),
        (layer, Some(times)) => {
            let Spread { low, median, high } = times.ratio;
            let level = layer != Layer::CAgain && measured.is_level(times);
            let mark = if level { " =" } else { "" };
            format!("{median:.2} ({low:.2} .. {high:.2}){mark}")
        }
    });
    std::iter::once(measured.name.to_owned()).chain(cells).collect()
}

impl Measured {
    pub(crate) fn of(&self, layer: Layer) -> Option<&Times> {
        let mut layers = self.layers.iter();
        layers.find(|(its, _)| *its == layer).map(|(_, times)| times)
    }

    /// Returns whether a layer is as fast as C, within the measured spread or by a negligible
    /// difference.
    fn is_level(&self, times: &Times) -> bool {
        let within = self.of(Layer::CAgain).map_or(1.0, |again| again.ratio.high);
        let slower = self.of(Layer::C).map_or(0.0, |c| times.each.median - c.each.median);
        times.ratio.median <= within.max(1.03) || slower <= 5.0
    }
}

impl Measured {
    fn against_cudarc(&self) -> Option<Verdict> {
        let ratio = |layer| Some(self.of(layer)?.ratio.median);
        let theirs = [Layer::Cudarc, Layer::CudarcStreams].into_iter();
        let theirs = theirs.filter_map(ratio).reduce(f64::min)?;
        let times = ratio(Layer::Safe)? / theirs;
        let spread = self.of(Layer::CAgain)?.ratio.high.max(1.0);
        Some(if times > spread {
            Verdict::Behind
        } else if times < 1.0 / spread {
            Verdict::Ahead
        } else {
            Verdict::Level
        })
    }
}

pub(crate) fn json(driver: &str, rounds: usize, measured: &[Measured]) -> String {
    let spread =
        |spread: &Spread| json!({ "median": spread.median, "p5": spread.low, "p95": spread.high });
    let operations: Vec<Value> = measured
        .iter()
        .map(|measured| {
            let layers: serde_json::Map<String, Value> = measured
                .layers
                .iter()
                .map(|(layer, times)| {
                    let value = json!({
                        "ns": spread(&times.each),
                        "ratio_to_c": spread(&times.ratio),
                        "level_with_c": measured.is_level(times),
                    });
                    (layer.name().to_owned(), value)
                })
                .collect();
            let verdict = measured.against_cudarc().map(Verdict::words);
            json!({
                "operation": measured.name,
                "c_calls": measured.calls,
                "layers": layers,
                "cuda_safe_is": verdict,
            })
        })
        .collect();
    let all = json!({ "driver": driver, "rounds": rounds, "operations": operations });
    format!("{all:#}\n")
}
