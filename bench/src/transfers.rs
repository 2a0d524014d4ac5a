//! The works on batches of copies and on tensor maps. A batch copies 4 KiB in 16 parts.

pub(crate) mod plain;
pub(crate) mod raw;
pub(crate) mod safe;

const PARTS: usize = 16;
const PART: usize = 4096 / PARTS;

const ON_DEVICE: &str = "batch: 16 copies of 256 B on the device";
const OF_SLICES: &str = "batch: 16 slices of 256 B to the device";
const ENCODE: &str = "tensor map: encode 2 dimensions";
const REPLACE: &str = "tensor map: replace the memory";
