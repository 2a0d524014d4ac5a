//! What holds for every input. The fuzz targets call it, and a test with the corpus.

#![allow(dead_code, reason = "each target calls one of them")]

use arbitrary::{Arbitrary, Unstructured};
use cuda_safe::Invalid;
use cuda_safe::interop::{DescrEntry, DescrType, RawInterface, ReadOptions, TypeString};

/// The keys of an array interface.
const KEYS: [&str; 8] = [
    "version", "shape", "typestr", "descr", "data", "strides", "mask", "stream",
];

/// A type string that is read is written as one that is read as the same; any other is refused.
pub(crate) fn type_string(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<TypeString>() {
        Ok(ty) => assert_eq!(ty.to_string().parse(), Ok(ty), "{text:?}"),
        Err(refusal) => names_a_key(&refusal),
    }
}

/// An interface that is read is written as one that is read as the same; any other is refused.
pub(crate) fn array_interface(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let (Ok(raw), Ok(masks), Ok(ignore_stream)) = (
        Interface::arbitrary(&mut input),
        bool::arbitrary(&mut input),
        bool::arbitrary(&mut input),
    ) else {
        return;
    };
    let raw = RawInterface::from(raw);
    let options = ReadOptions {
        masks,
        ignore_stream,
        ..ReadOptions::default()
    };
    let array = match raw.check(options) {
        Ok(array) => array,
        Err(refusal) => return names_a_key(&refusal),
    };
    let written = array.to_raw();
    let again = written.check(options).expect("what was read once");
    assert_eq!(again.to_raw(), written);
    assert_eq!(again.dtype(), array.dtype());
    let (layout, other) = (array.layout(), again.layout());
    assert_eq!(layout.shape(), other.shape());
    assert_eq!(layout.byte_range(), other.byte_range());
    assert_eq!(layout.is_f_contiguous(), other.is_f_contiguous());
    assert_eq!(layout.may_overlap_itself(), other.may_overlap_itself());
    let overlap = layout.ranges_overlap(array.address(), other, again.address());
    let range = layout.byte_range();
    assert_eq!(overlap, range.start < range.end);
}

fn names_a_key(refusal: &Invalid) {
    let Invalid::ArrayInterface { key, problem } = refusal else {
        panic!("{refusal}");
    };
    assert!(KEYS.contains(key) && !problem.is_empty(), "{refusal}");
    assert!(refusal.to_string().contains(key), "{refusal}");
}

#[derive(Arbitrary)]
struct Interface {
    version: Option<Number>,
    shape: Option<Vec<Number>>,
    typestr: Option<String>,
    descr: Option<Vec<Entry>>,
    data: Option<(Number, bool)>,
    strides: Option<Vec<Number>>,
    mask: Option<Box<Self>>,
    stream: Option<Number>,
}

/// Mostly small, as those that something can be done with are.
#[derive(Arbitrary)]
enum Number {
    Small(i8),
    Medium(i32),
    Address(u64),
    Any(i128),
}

#[derive(Arbitrary)]
struct Entry {
    name: String,
    title: Option<String>,
    ty: Type,
    shape: Vec<u16>,
    vast: Option<u64>,
}

#[derive(Arbitrary)]
enum Type {
    Text(String),
    Nested(Vec<Entry>),
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

fn numbers(numbers: Vec<Number>) -> Vec<i128> {
    numbers.into_iter().map(i128::from).collect()
}

impl From<Interface> for RawInterface {
    fn from(interface: Interface) -> Self {
        Self {
            version: interface.version.map(i128::from),
            shape: interface.shape.map(numbers),
            typestr: interface.typestr,
            descr: interface.descr.map(entries),
            data: interface
                .data
                .map(|(address, read_only)| (address.into(), read_only)),
            strides: interface.strides.map(numbers),
            mask: interface.mask.map(|mask| Box::new(Self::from(*mask))),
            stream: interface.stream.map(i128::from),
        }
    }
}

fn entries(entries: Vec<Entry>) -> Vec<DescrEntry> {
    entries.into_iter().map(DescrEntry::from).collect()
}

impl From<Entry> for DescrEntry {
    fn from(entry: Entry) -> Self {
        let vast = entry.vast.and_then(|extent| usize::try_from(extent).ok());
        Self {
            name: entry.name,
            title: entry.title,
            ty: match entry.ty {
                Type::Text(text) => DescrType::Text(text),
                Type::Nested(nested) => DescrType::Nested(entries(nested)),
            },
            shape: entry
                .shape
                .into_iter()
                .map(usize::from)
                .chain(vast)
                .collect(),
        }
    }
}
