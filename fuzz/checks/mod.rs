//! Properties that hold for every input, with a file for each parser. The fuzz targets check them, and a
//! test checks them with the corpus.

#![allow(dead_code, unused_imports, reason = "each target calls one of them")]

mod dlpack;
mod image;
mod interface;
mod likely;
mod ptx;
mod type_string;
mod view;

pub(crate) use dlpack::dlpack;
pub(crate) use image::image;
pub(crate) use interface::array_interface;
pub(crate) use likely::likely_interface;
pub(crate) use ptx::ptx;
pub(crate) use type_string::type_string;
pub(crate) use view::view;

use arbitrary::Arbitrary;
use cuda_safe::Invalid;

/// The keys of an array interface.
const KEYS: [&str; 8] =
    ["version", "shape", "typestr", "descr", "data", "strides", "mask", "stream"];

/// The fields of a tensor, and the argument of its protocol.
const FIELDS: [&str; 10] = [
    "tensor",
    "version",
    "device",
    "ndim",
    "dtype",
    "shape",
    "strides",
    "byte_offset",
    "data",
    "stream",
];

/// Checks that an error names a key of an array interface and a problem.
fn names_a_key(refusal: &Invalid) {
    let Invalid::ArrayInterface { key, problem } = refusal else {
        panic!("{refusal}");
    };
    assert!(KEYS.contains(key) && !problem.is_empty(), "{refusal}");
    assert!(refusal.to_string().contains(key), "{refusal}");
}

/// Checks that an error names a field of a tensor and a problem.
fn names_a_field(refusal: &Invalid) {
    let Invalid::Dlpack { field, problem } = refusal else {
        panic!("{refusal}");
    };
    assert!(FIELDS.contains(field) && !problem.is_empty(), "{refusal}");
    assert!(refusal.to_string().contains(field), "{refusal}");
}

/// A number that is small in most cases, because most valid inputs contain small numbers.
#[derive(Arbitrary)]
enum Number {
    Small(i8),
    Medium(i32),
    Address(u64),
    Any(i128),
}

impl From<Number> for i128 {
    fn from(number: Number) -> Self {
        match number {
            Number::Small(number) => number.into(),
            Number::Medium(number) => number.into(),
            Number::Address(number) => number.into(),
            Number::Any(number) => number,
        }
    }
}
