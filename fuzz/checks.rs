//! What holds for every input. The fuzz targets call it, and a test with the corpus.

#![allow(dead_code, reason = "each target calls one of them")]

use arbitrary::{Arbitrary, Unstructured};
use cuda_safe::Invalid;
use cuda_safe::interop::dlpack::raw::{
    DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion,
    DLTensor,
};
use cuda_safe::interop::dlpack::{ConsumerStream, DataType, Export, ManagedTensor};
use cuda_safe::interop::{
    ArrayInterface, ByteOrder, DescrEntry, DescrType, Dtype, Field, Index, Kind, Layout,
    RawInterface, ReadOptions, Record, TypeString,
};
use std::cell::Cell;

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
        Ok(ty) => {
            assert_eq!(ty.to_string().parse(), Ok(ty), "{text:?}");
            made_by_hand(ty);
        }
        Err(refusal) => names_a_key(&refusal),
    }
}

/// Of its kind and size another one is made, but for what only the string says.
fn made_by_hand(ty: TypeString) {
    let native = TypeString::native(ty.kind(), ty.item_size());
    if ty.bits().is_some_and(|bits| bits % 8 != 0) {
        return assert_ne!(native, Ok(ty));
    }
    let native = native.expect("there is one");
    assert_eq!(native.item_size(), ty.item_size());
    assert!(native.is_native());
    assert_eq!(native == ty, ty.is_native() && ty.unit().is_none());
    if let Some(unit) = ty.unit() {
        assert!(unit.count() > 0 && ty.to_string().contains(unit.name()));
    }
    if ty.byte_order() == ByteOrder::None {
        assert_eq!(native, ty);
    }
    let of_rust = [
        DataType::of::<u8>(),
        DataType::of::<i64>(),
        DataType::of::<f32>(),
        DataType::of::<[f64; 2]>(),
    ];
    for data in of_rust.into_iter().filter(|data| data.numpy() == Some(ty)) {
        assert_eq!(DataType::of_numpy(&ty.into()), Ok(data));
    }
    let halves = TypeString::native(Kind::Unicode, ty.item_size());
    assert_eq!(halves.is_ok(), ty.item_size() % 4 == 0);
}

/// An interface that is read is written as one that is read as the same; any other is refused.
pub(crate) fn array_interface(data: &[u8]) {
    let mut input = Unstructured::new(data);
    if let (Ok(raw), Ok(options)) = (Interface::arbitrary(&mut input), options(&mut input)) {
        interface(&raw.into(), options);
    }
}

/// The same of interfaces that are mostly right, with records and masks.
pub(crate) fn likely_interface(data: &[u8]) {
    let mut input = Unstructured::new(data);
    if let (Ok(raw), Ok(options)) = (Likely::arbitrary(&mut input), options(&mut input)) {
        by_hand(&raw);
        interface(&raw.into(), options);
    }
}

fn options(input: &mut Unstructured<'_>) -> arbitrary::Result<ReadOptions> {
    Ok(ReadOptions {
        masks: bool::arbitrary(input)?,
        ignore_stream: bool::arbitrary(input)?,
        ..ReadOptions::default()
    })
}

/// A record of fields that lie anywhere is written as one that is read as the same; any other is
/// refused.
fn by_hand(raw: &Likely) {
    let fields = raw.descr.iter().flatten().map(|(entry, gap)| Field {
        name: entry.name().to_owned(),
        title: entry.title.then(|| "title".to_owned()),
        // Behind one another, mostly.
        offset: usize::from(*gap),
        dtype: Dtype::Plain(entry.text().parse().expect("it is a type")),
        shape: entry
            .shape
            .iter()
            .map(|extent| usize::from(*extent))
            .collect(),
    });
    match Record::new(fields.collect(), usize::from(raw.item_size)) {
        Ok(record) => {
            assert_eq!(Record::from_descr(&record.to_descr()), Ok(record.clone()));
            assert_eq!(Dtype::from(record.clone()).descr(), Some(record.to_descr()));
            assert!(
                record
                    .fields()
                    .iter()
                    .all(|field| field.offset <= record.size())
            );
        }
        Err(refusal) => names_a_key(&refusal),
    }
}

fn interface(raw: &RawInterface, options: ReadOptions) {
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
    assert!(!layout.is_broadcast() || layout.may_overlap_itself());
    assert!(!layout.is_reversed() || range.start < 0 || layout.is_empty());
    assert!(!array.dtype().to_string().is_empty());
    let by_hand = ArrayInterface::new(array.dtype().clone(), layout.clone(), array.address());
    let by_hand = by_hand.expect("what was read once");
    let by_hand = by_hand
        .with_stream(array.stream())
        .with_mask(array.mask().cloned());
    let by_hand = match array.is_read_only() {
        true => by_hand.read_only(),
        false => by_hand,
    };
    assert_eq!(by_hand.to_raw(), written);
    assert!(array.version() <= 3);
    match DataType::of_numpy(array.dtype()) {
        Ok(ty) => assert_eq!(ty.numpy().map(Dtype::from).as_ref(), Some(array.dtype())),
        Err(refusal) => names_a_field(&refusal),
    }
    // No elements there, and elements of another size.
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

/// A tensor that is read is given out as one that is read as the same; any other is refused. Each
/// deleter is called once.
pub(crate) fn dlpack(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(mut tensor) = Tensor::arbitrary(&mut input) else {
        return;
    };
    let number = tensor.stream.take().map(i128::from);
    match ConsumerStream::from_number(number) {
        Ok(stream) => assert_eq!(stream.number(), number.unwrap_or(1)),
        Err(refusal) => names_a_field(&refusal),
    }
    let deleted = Cell::new(0);
    match tensor.read(&deleted) {
        Err(refusal) => {
            assert_eq!(deleted.get(), 1);
            names_a_field(&refusal);
        }
        Ok(tensor) => {
            assert_eq!(deleted.get(), 0);
            given_out(&tensor);
            drop(tensor);
            assert_eq!(deleted.get(), 1);
        }
    }
}

fn given_out(tensor: &ManagedTensor) {
    match tensor.array_interface() {
        Ok(array) => {
            assert_eq!(array.layout(), tensor.layout());
            assert_eq!(array.is_read_only(), tensor.is_read_only());
            assert_eq!(DataType::of_numpy(array.dtype()), Ok(tensor.dtype()));
        }
        Err(refusal) => {
            names_a_field(&refusal);
            let name = tensor.dtype().to_string();
            assert!(refusal.to_string().contains(&name), "{refusal}");
        }
    }
    let said = format!("{tensor:?} {:?}", tensor.version());
    assert!(said.contains(&tensor.dtype().to_string()), "{said}");
    assert!(!tensor.is_copied() || tensor.version().is_some());
    let (layout, address) = (tensor.layout().clone(), tensor.address());
    let (memory, device) = (tensor.memory(), tensor.device());
    let export = Export::new(tensor.dtype(), layout, address, memory, device, ());
    let Ok(mut export) = export else {
        // Of less than a byte each.
        return assert!(tensor.dtype().item_size().is_none());
    };
    if tensor.is_read_only() {
        export = export.read_only();
    }
    let raw = export.into_raw_versioned();
    // SAFETY: nobody else has it.
    let again = unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) };
    let again = again.expect("what was read once");
    assert_eq!(again.dtype(), tensor.dtype());
    assert_eq!(again.layout(), tensor.layout());
    assert_eq!(again.is_read_only(), tensor.is_read_only());
    if !tensor.layout().is_empty() {
        assert_eq!(again.address(), tensor.address());
    }
}

fn names_a_field(refusal: &Invalid) {
    let Invalid::Dlpack { field, problem } = refusal else {
        panic!("{refusal}");
    };
    assert!(FIELDS.contains(field) && !problem.is_empty(), "{refusal}");
    assert!(refusal.to_string().contains(field), "{refusal}");
}

/// A view of an array is within the array, and has the elements that it says; any other is refused.
pub(crate) fn view(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let Ok(array) = Array::arbitrary(&mut input) else {
        return;
    };
    let (shape, item_size) = (array.shape(), usize::from(array.item_size));
    let layout = match array.strides {
        None => Layout::c_contiguous(&shape, item_size),
        Some(strides) => {
            let near = |stride: Number| isize::try_from(i128::from(stride)).unwrap_or(8);
            let strides: Vec<isize> = strides.into_iter().map(near).collect();
            Layout::strided(&shape, &strides, item_size)
        }
    };
    let Ok(mut layout) = layout else {
        return;
    };
    let mut start = 0isize;
    for look in array.looks {
        let view = match look {
            Look::Index(by) => {
                let by: Vec<Index> = by.into_iter().map(Index::from).collect();
                layout.index(&by)
            }
            Look::Permute(order) => {
                let order: Vec<usize> = order.into_iter().map(usize::from).collect();
                layout.permuted(&order).map(|layout| (0, layout))
            }
            Look::Transpose => Ok((0, layout.clone().transposed())),
            Look::Broadcast(shape) => layout
                .broadcast_to(&extents(shape))
                .map(|layout| (0, layout)),
            Look::Reshape(shape) => {
                let shape = extents(shape);
                let view = layout.reshaped(&shape);
                if let Ok(view) = &view {
                    assert_eq!((view.len(), view.shape()), (layout.len(), &shape[..]));
                    assert_eq!(view.byte_range(), layout.byte_range());
                }
                view.map(|layout| (0, layout))
            }
        };
        let (offset, view) = match view {
            Ok(view) => view,
            Err(Invalid::View { what, problem }) => {
                assert!(!what.is_empty() && !problem.is_empty());
                continue;
            }
            Err(other) => panic!("{other}"),
        };
        if !view.is_empty() {
            let (part, whole) = (view.byte_range(), layout.byte_range());
            assert!(part.start + offset >= whole.start && part.end + offset <= whole.end);
        }
        start = start.checked_add(offset).expect("within the array");
        layout = view;
    }
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

/// An interface whose parts are right, and mostly fit.
#[derive(Arbitrary)]
struct Likely {
    version: u8,
    shape: Vec<u8>,
    strides: Option<Vec<i8>>,
    item_size: u8,
    /// The fields, and where each begins if they are not just behind one another.
    descr: Option<Vec<(Simple, u8)>>,
    /// Records within each other, so many.
    depth: u8,
    data: (u16, bool),
    mask: Option<(Vec<u8>, bool)>,
    stream: Option<i8>,
}

#[derive(Arbitrary)]
struct Simple {
    name: u8,
    title: bool,
    ty: u8,
    shape: Vec<u8>,
}

impl Simple {
    const NAMES: [&'static str; 6] = ["", "a", "b", "c", "title", "f1"];
    const TYPES: [&'static str; 10] = [
        "|V4", "|u1", "<i4", ">f8", "<c16", "|S3", "<U2", "<M8[25s]", "|t12", "|V0",
    ];

    fn name(&self) -> &'static str {
        Self::NAMES[usize::from(self.name) % Self::NAMES.len()]
    }

    fn text(&self) -> &'static str {
        Self::TYPES[usize::from(self.ty) % Self::TYPES.len()]
    }

    fn size(&self) -> usize {
        let ty: TypeString = self.text().parse().expect("it is a type");
        let extents = self.shape.iter().map(|extent| usize::from(*extent));
        extents.fold(ty.item_size(), usize::saturating_mul)
    }
}

impl From<Likely> for RawInterface {
    fn from(likely: Likely) -> Self {
        let fields: Option<Vec<Simple>> = likely
            .descr
            .map(|fields| fields.into_iter().map(|(field, _)| field).collect());
        // What the fields have, or now and then not.
        let sum = |fields: &Vec<Simple>| {
            let sizes = fields.iter().map(Simple::size);
            sizes.fold(0, usize::saturating_add)
        };
        let size = match likely.item_size {
            255 => 7,
            own => fields.as_ref().map_or(usize::from(own), sum),
        };
        let entries = |fields: Vec<Simple>| {
            let mut entries: Vec<DescrEntry> = fields.into_iter().map(DescrEntry::from).collect();
            for _ in 0..likely.depth % 40 {
                entries = vec![DescrEntry {
                    name: "x".to_owned(),
                    title: None,
                    ty: DescrType::Nested(entries),
                    shape: Vec::new(),
                }];
            }
            entries
        };
        let wide = |numbers: Vec<u8>| numbers.into_iter().map(i128::from).collect();
        let mask = likely.mask.map(|(shape, masked)| {
            let mask = Self {
                version: Some(3),
                shape: Some(wide(shape)),
                typestr: Some("|b1".to_owned()),
                data: Some((64, true)),
                ..Self::default()
            };
            Box::new(Self {
                mask: masked.then(|| Box::new(mask.clone())),
                ..mask
            })
        });
        Self {
            version: Some((likely.version % 5).into()),
            shape: Some(wide(likely.shape)),
            typestr: Some(format!("|V{size}")),
            descr: fields.map(entries),
            data: Some((likely.data.0.into(), likely.data.1)),
            strides: likely
                .strides
                .map(|strides| strides.into_iter().map(i128::from).collect()),
            mask,
            stream: likely.stream.map(i128::from),
        }
    }
}

impl From<Simple> for DescrEntry {
    fn from(entry: Simple) -> Self {
        Self {
            name: entry.name().to_owned(),
            title: entry.title.then(|| "title".to_owned()),
            ty: DescrType::Text(entry.text().to_owned()),
            shape: entry.shape.into_iter().map(usize::from).collect(),
        }
    }
}

/// Mostly small, as those that something can be done with are.
#[derive(Arbitrary)]
enum Number {
    Small(i8),
    Medium(i32),
    Address(u64),
    Any(i128),
}

/// A tensor as somebody gives it out, whose shape and strides have as many entries as they should.
#[derive(Arbitrary)]
struct Tensor {
    is_legacy: bool,
    version: Option<(u32, u32)>,
    stream: Option<Number>,
    device: (Device, i8),
    dtype: (u8, Bits, u8),
    flags: u8,
    data: Option<u64>,
    byte_offset: Option<Number>,
    dimensions: Dimensions,
}

#[derive(Arbitrary)]
enum Device {
    Cuda,
    Pinned,
    Managed,
    Other(i8),
}

#[derive(Arbitrary)]
enum Bits {
    Some(Power),
    Other(u8),
}

#[derive(Arbitrary)]
enum Power {
    Eight,
    Sixteen,
    ThirtyTwo,
    SixtyFour,
}

#[derive(Arbitrary)]
enum Dimensions {
    Strided(Vec<(Number, Number)>),
    Contiguous(Vec<Number>),
    /// A number, and no shape.
    Of(i8),
}

struct Held<'a> {
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    deleted: &'a Cell<u32>,
}

unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: the tensor is of `Tensor::read`, and this is called once.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: likewise.
    let held = unsafe { Box::from_raw(tensor.manager_ctx.cast::<Held<'_>>()) };
    held.deleted.set(held.deleted.get() + 1);
}

unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor is of `Tensor::read`, and this is called once.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY: likewise.
    let held = unsafe { Box::from_raw(tensor.manager_ctx.cast::<Held<'_>>()) };
    held.deleted.set(held.deleted.get() + 1);
}

impl Tensor {
    fn read(self, deleted: &Cell<u32>) -> Result<ManagedTensor, Invalid> {
        let small = |number: Number| i64::try_from(i128::from(number)).unwrap_or(i64::MAX);
        let (ndim, mut shape, mut strides) = match self.dimensions {
            Dimensions::Of(ndim) => (ndim.into(), Vec::new(), Vec::new()),
            Dimensions::Contiguous(shape) => {
                let shape: Vec<i64> = shape.into_iter().map(small).collect();
                (shape.len() as i32, shape, Vec::new())
            }
            Dimensions::Strided(both) => {
                let both = both.into_iter().map(|(n, s)| (small(n), small(s)));
                let (shape, strides): (Vec<i64>, Vec<i64>) = both.unzip();
                (shape.len() as i32, shape, strides)
            }
        };
        let start = |numbers: &mut Vec<i64>| match numbers.is_empty() {
            true => std::ptr::null_mut(),
            false => numbers.as_mut_ptr(),
        };
        let kind = match self.device.0 {
            Device::Cuda => 2,
            Device::Pinned => 3,
            Device::Managed => 13,
            Device::Other(kind) => kind.into(),
        };
        let (code, bits, lanes) = self.dtype;
        let data = self.data.and_then(|data| usize::try_from(data).ok());
        let dl_tensor = DLTensor {
            data: std::ptr::without_provenance_mut(data.unwrap_or(0x7000_0000)),
            device: DLDevice {
                device_type: DLDeviceType(kind),
                device_id: self.device.1.into(),
            },
            ndim,
            dtype: DLDataType {
                code,
                bits: match bits {
                    Bits::Some(Power::Eight) => 8,
                    Bits::Some(Power::Sixteen) => 16,
                    Bits::Some(Power::ThirtyTwo) => 32,
                    Bits::Some(Power::SixtyFour) => 64,
                    Bits::Other(bits) => bits,
                },
                // Mostly one.
                lanes: if lanes < 200 {
                    1
                } else {
                    u16::from(lanes) - 200
                },
            },
            shape: start(&mut shape),
            strides: start(&mut strides),
            byte_offset: match self.byte_offset {
                None => 0,
                Some(offset) => u64::try_from(i128::from(offset)).unwrap_or(u64::MAX),
            },
        };
        let held = Held {
            _shape: shape,
            _strides: strides,
            deleted,
        };
        let manager_ctx = Box::into_raw(Box::new(held)).cast();
        if self.is_legacy {
            let raw = Box::into_raw(Box::new(DLManagedTensor {
                dl_tensor,
                manager_ctx,
                deleter: Some(delete_legacy),
            }));
            // SAFETY: it is right for as far as it is read, and nobody else has it.
            return unsafe { ManagedTensor::from_raw(raw) };
        }
        let (major, minor) = self.version.unwrap_or((1, 0));
        let raw = Box::into_raw(Box::new(DLManagedTensorVersioned {
            version: DLPackVersion { major, minor },
            manager_ctx,
            deleter: Some(delete_versioned),
            flags: self.flags.into(),
            dl_tensor,
        }));
        // SAFETY: as above.
        unsafe { ManagedTensor::from_raw_versioned(raw) }
    }
}

/// An array, and views of views of it.
#[derive(Arbitrary)]
struct Array {
    item_size: u8,
    shape: Vec<u8>,
    /// One that is not small.
    vast: Option<usize>,
    strides: Option<Vec<Number>>,
    looks: Vec<Look>,
}

#[derive(Arbitrary)]
enum Look {
    Index(Vec<At>),
    Permute(Vec<u8>),
    Transpose,
    Broadcast(Vec<u8>),
    Reshape(Vec<u8>),
}

#[derive(Arbitrary)]
enum At {
    One(i8),
    Range(Option<i8>, Option<i8>, i8),
    Far(Option<isize>, Option<isize>, isize),
    NewAxis,
    Rest,
}

impl From<At> for Index {
    fn from(at: At) -> Self {
        match at {
            At::One(at) => isize::from(at).into(),
            At::Range(None, None, 1) => (..).into(),
            At::Range(Some(start), None, 1) => (isize::from(start)..).into(),
            At::Range(None, Some(end), 1) => (..isize::from(end)).into(),
            At::Range(Some(start), Some(end), 1) => (start.into()..end.into()).into(),
            At::Range(None, None, step) if step < 0 => Self::backwards(-isize::from(step)),
            At::Range(start, end, step) => Self::Range {
                start: start.map(isize::from),
                end: end.map(isize::from),
                step: step.into(),
            },
            At::Far(start, end, step) => Self::Range { start, end, step },
            At::NewAxis => Self::NewAxis,
            At::Rest => Self::Rest,
        }
    }
}

impl Array {
    fn shape(&self) -> Vec<usize> {
        let shape = self.shape.iter().map(|extent| usize::from(*extent));
        shape.chain(self.vast).collect()
    }
}

fn extents(shape: Vec<u8>) -> Vec<usize> {
    shape.into_iter().map(usize::from).collect()
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
