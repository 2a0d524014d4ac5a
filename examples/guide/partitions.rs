//! The partitions of the chapter about green contexts: a square for each SM, in the color of the service whose
//! work ran there.

use crate::support::svg::{COLOURS, begin, text};
use cuda_safe::green::{PartitionRequest, PartitionSize, SmProbe, SmResource};
use cuda_safe::{Device, Result};
use std::fmt::Write;

const NAMES: [&str; 2] = ["the short requests", "the long requests"];
const SQUARE: u32 = 26;
const STEP: u32 = SQUARE + 4;
const COLUMNS: u32 = 22;
const MARGIN: u32 = 20;

/// Partitions the device as the chapter does, and draws the SMs on which the work of each partition runs.
pub(crate) fn draw() -> Result<String> {
    let device = Device::get(0)?;
    let resource = SmResource::of_device(&device)?;
    let partitions = resource.partition(&PartitionRequest {
        sizes: vec![PartitionSize::Sms(16), PartitionSize::Rest],
        ..Default::default()
    })?;
    let count = resource.sm_count();
    let rows = count.div_ceil(COLUMNS);
    let legend = 2 * MARGIN + rows * STEP;
    let mut svg = begin(2 * MARGIN + COLUMNS * STEP, legend + 2 * 24 + MARGIN / 2);
    for ((part, name), (colour, line)) in
        partitions.parts.into_iter().zip(NAMES).zip(COLOURS.iter().zip(0..))
    {
        let partition = part.create()?;
        let sms = SmProbe::new(partition.context())?.sms(&partition.stream()?)?;
        for sm in &sms {
            square(
                &mut svg,
                MARGIN + sm % COLUMNS * STEP,
                MARGIN + sm / COLUMNS * STEP,
                SQUARE,
                colour,
            );
        }
        let y = legend + line * 24;
        square(&mut svg, MARGIN, y, 14, colour);
        let words = format!("{name}: {} SMs of {count}", sms.len());
        text(&mut svg, MARGIN + 24, y + 12, 13, &words);
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn square(svg: &mut String, x: u32, y: u32, size: u32, colour: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{size}\" height=\"{size}\" rx=\"4\" fill=\"{colour}\"/>"
    );
}
