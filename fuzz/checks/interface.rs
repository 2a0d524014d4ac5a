//! Array interfaces with arbitrary contents.

use super::{Number, names_a_field, names_a_key};
use arbitrary::{Arbitrary, Unstructured};
use cuda_safe::interop::dlpack::DataType;
use cuda_safe::interop::{
    ArrayInterface, DescrEntry, DescrType, Dtype, Layout, RawInterface, ReadOptions,
};

/// An interface that is accepted can be written and read again with the same result; any other is
/// rejected.
pub(crate) fn array_interface(data: &[u8]) {
    let mut input = Unstructured::new(data);
    if let (Ok(raw), Ok(options)) = (Interface::arbitrary(&mut input), options(&mut input)) {
        interface(&raw.into(), options);
    }
}

pub(super) fn options(input: &mut Unstructured<'_>) -> arbitrary::Result<ReadOptions> {
    Ok(ReadOptions {
        masks: bool::arbitrary(input)?,
        ignore_stream: bool::arbitrary(input)?,
        ..ReadOptions::default()
    })
}

pub(super) fn interface(raw: &RawInterface, options: ReadOptions) {
    let array = match raw.check(options) {
        Ok(array) => array,
        Err(refusal) => return names_a_key(&refusal),
    };
    let written = array.to_raw();
    let again = written.check(options).expect("a written interface is valid");
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
    assert!(!layout.is_broadcast() || layout.may_overlap_itself());
    assert!(!layout.is_reversed() || range.start < 0 || layout.is_empty());
    assert!(!array.dtype().to_string().is_empty());
    let by_hand = ArrayInterface::new(array.dtype().clone(), layout.clone(), array.address());
    let by_hand = by_hand.expect("the parts of a valid interface are valid");
    let by_hand = by_hand.with_stream(array.stream()).with_mask(array.mask().cloned());
    let by_hand = match array.is_read_only() {
        true => by_hand.read_only(),
        false => by_hand,
    };
    assert_eq!(by_hand.to_raw(), written);
    assert_eq!(again.version(), 3);
    match DataType::from_numpy(array.dtype()) {
        Ok(ty) => assert_eq!(ty.numpy().map(Dtype::from).as_ref(), Some(array.dtype())),
        Err(refusal) => names_a_field(&refusal),
    }
    // A null address, and elements of another size.
    for (item_size, address) in [(layout.item_size(), 0), (layout.item_size() + 1, 64)] {
        let Ok(layout) = Layout::c_contiguous(layout.shape(), item_size) else {
            continue;
        };
        let is_right = item_size == array.dtype().item_size() && layout.is_empty();
        match ArrayInterface::new(array.dtype().clone(), layout, address) {
            Ok(_) => assert!(is_right),
            Err(refusal) => {
                names_a_key(&refusal);
                assert!(!is_right);
            }
        }
    }
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
            data: interface.data.map(|(address, read_only)| (address.into(), read_only)),
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
            shape: entry.shape.into_iter().map(usize::from).chain(vast).collect(),
        }
    }
}
