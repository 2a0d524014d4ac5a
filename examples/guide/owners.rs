//! The objects and their owners.

use crate::support::svg::{COLOURS, anchored, begin, line, text};
use std::fmt::Write;

const WIDTH: u32 = 118;
const HEIGHT: u32 = 34;

/// The objects, with the centers of their upper edges.
const OBJECTS: [(&str, u32, u32); 10] = [
    ("ExecutableGraph", 370, 44),
    ("DeviceBuffer", 160, 114),
    ("Pending copy", 370, 114),
    ("TypedKernel", 510, 114),
    ("Stream", 160, 184),
    ("PinnedBuffer", 370, 184),
    ("Module", 510, 184),
    ("Event", 650, 184),
    ("GreenContext", 160, 254),
    ("Context", 370, 324),
];

/// Which object keeps which one alive.
const KEEPS: [(&str, &str); 12] = [
    ("ExecutableGraph", "DeviceBuffer"),
    ("ExecutableGraph", "TypedKernel"),
    ("DeviceBuffer", "Stream"),
    ("Pending copy", "Stream"),
    ("Pending copy", "PinnedBuffer"),
    ("TypedKernel", "Module"),
    ("Stream", "GreenContext"),
    ("Stream", "Context"),
    ("GreenContext", "Context"),
    ("PinnedBuffer", "Context"),
    ("Module", "Context"),
    ("Event", "Context"),
];

pub(crate) fn draw() -> String {
    let mut svg = begin(730, 374);
    text(
        &mut svg,
        16,
        26,
        14,
        "A line leads from each object down to the objects that it keeps alive",
    );
    for (owner, owned) in KEEPS {
        let ((x, y), (to_x, to_y)) = (place(owner), place(owned));
        line(&mut svg, (x, y + HEIGHT), (to_x, to_y), "#888", 1);
    }
    for (name, x, y) in OBJECTS {
        let (left, colour) =
            (x - WIDTH / 2, if name == "Context" { COLOURS[0] } else { COLOURS[2] });
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"white\" \
             stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        anchored(&mut svg, x, y + 21, 12, "middle", name);
    }
    svg.push_str("</svg>\n");
    svg
}

fn place(object: &str) -> (u32, u32) {
    let found = OBJECTS.iter().find(|(name, ..)| *name == object);
    found.map_or((0, 0), |(_, x, y)| (*x, *y))
}
