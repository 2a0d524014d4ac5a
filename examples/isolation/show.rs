//! The results as text and as JSON.

use crate::measure::{BLOCKS, Measured, Series, THREADS, Way};
use crate::neighbour::Kind;
use crate::support::stats::{Bounds, microseconds};
use serde::Serialize;
use std::fmt::Write;

pub(crate) struct Report {
    pub(crate) driver: String,
    pub(crate) device: String,
    pub(crate) simulated: bool,
    pub(crate) measured: Measured,
}

#[derive(Serialize)]
struct Json<'a> {
    driver: &'a str,
    device: &'a str,
    /// Whether this ran on the software driver, where latencies are meaningless.
    simulated: bool,
    rounds: u32,
    launches: u32,
    partition_sms: [u32; 2],
    partitions_disjoint: bool,
    series: Vec<JsonSeries>,
}

#[derive(Serialize)]
struct JsonSeries {
    name: &'static str,
    neighbour: Option<Kind>,
    way: Way,
    launches: usize,
    min_us: f64,
    /// Percentiles with 95 % bounds from a bootstrap over the rounds.
    p50_us: Bounds,
    p90_us: Bounds,
    p99_us: Bounds,
    max_us: f64,
    /// The ratio of the p99 to the p99 of the short kernel alone.
    p99_ratio: Bounds,
}

impl Report {
    fn alone(&self) -> &Series {
        &self.measured.series[0]
    }

    pub(crate) fn p99_alone(&self) -> u64 {
        self.alone().rounds.percentile(99.0)
    }

    pub(crate) fn json(&self) -> Result<String, serde_json::Error> {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        let in_us = |bounds: Bounds| Bounds {
            value: bounds.value / 1000.0,
            lower: bounds.lower / 1000.0,
            upper: bounds.upper / 1000.0,
        };
        let series = self.measured.series.iter().map(|series| JsonSeries {
            name: series.name(),
            neighbour: series.neighbour,
            way: series.way,
            launches: series.rounds.count(),
            min_us: us(series.rounds.min()),
            p50_us: in_us(series.rounds.bounds(50.0)),
            p90_us: in_us(series.rounds.bounds(90.0)),
            p99_us: in_us(series.rounds.bounds(99.0)),
            max_us: us(series.rounds.max()),
            p99_ratio: series.rounds.ratio(&self.alone().rounds, 99.0),
        });
        serde_json::to_string(&Json {
            driver: &self.driver,
            device: &self.device,
            simulated: self.simulated,
            rounds: self.measured.plan.rounds,
            launches: self.measured.plan.launches,
            partition_sms: self.measured.sms,
            partitions_disjoint: self.measured.overlap.shared.is_empty(),
            series: series.collect(),
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let [urgent, other] = self.measured.sms;
        let plan = self.measured.plan;
        let _ = writeln!(
            text,
            "{}, driver for CUDA {}: a kernel of {BLOCKS} blocks of {THREADS} threads, from before its \
             launch to after the wait for it, in microseconds",
            self.device, self.driver
        );
        let _ = writeln!(
            text,
            "{urgent} SMs for it, {other} for the neighbor: {}; {} rounds of {} launches\n",
            self.measured.overlap, plan.rounds, plan.launches
        );
        let _ = writeln!(
            text,
            "{:36}{:>8}{:>24}{:>24}{:>24}{:>10}   p99 / p99 alone",
            "", "n", "p50 (95 % bounds)", "p90 (95 % bounds)", "p99 (95 % bounds)", "max"
        );
        for series in &self.measured.series {
            let rounds = &series.rounds;
            let _ = write!(text, "{:36}{:>8}", series.name(), rounds.count());
            for percent in [50.0, 90.0, 99.0] {
                let Bounds { value, lower, upper } = rounds.bounds(percent);
                let [value, lower, upper] = [value, lower, upper].map(|ns| microseconds(ns as u64));
                let _ = write!(text, "{:>24}", format!("{value} ({lower} to {upper})"));
            }
            let ratio = rounds.ratio(&self.alone().rounds, 99.0);
            let _ = writeln!(
                text,
                "{:>10}   {:.2} ({:.2} to {:.2})",
                microseconds(rounds.max()),
                ratio.value,
                ratio.lower,
                ratio.upper
            );
        }
        if self.simulated {
            text.push_str(
                "\nthe software driver does not model time, so these latencies are meaningless\n",
            );
        }
        text
    }
}
