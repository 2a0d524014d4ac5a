//! Array interfaces that are mostly valid.

use super::interface::{interface, options};
use super::names_a_key;
use arbitrary::{Arbitrary, Unstructured};
use cuda_safe::interop::{DescrEntry, DescrType, Dtype, Field, RawInterface, Record, TypeString};

/// The check of [`array_interface`](super::array_interface) for interfaces that are mostly valid, with
/// records and masks.
pub(crate) fn likely_interface(data: &[u8]) {
    let mut input = Unstructured::new(data);
    if let (Ok(raw), Ok(options)) = (Likely::arbitrary(&mut input), options(&mut input)) {
        by_hand(&raw);
        interface(&raw.into(), options);
    }
}

/// A record with fields at arbitrary offsets can be written and read again with the same result; any
/// other is rejected.
fn by_hand(raw: &Likely) {
    let fields = raw.descr.iter().flatten().map(|(entry, gap)| Field {
        name: entry.name().to_owned(),
        title: entry.title.then(|| "title".to_owned()),
        // In most cases the fields are adjacent.
        offset: usize::from(*gap),
        dtype: Dtype::Plain(entry.text().parse().expect("it is a type")),
        shape: entry.shape.iter().map(|extent| usize::from(*extent)).collect(),
    });
    match Record::new(fields.collect(), usize::from(raw.item_size)) {
        Ok(record) => {
            assert_eq!(Record::from_descr(&record.to_descr()), Ok(record.clone()));
            assert_eq!(Dtype::from(record.clone()).descr(), Some(record.to_descr()));
            assert!(record.fields().iter().all(|field| field.offset <= record.size()));
        }
        Err(refusal) => names_a_key(&refusal),
    }
}

/// An interface whose parts are valid and in most cases match each other.
#[derive(Arbitrary)]
struct Likely {
    version: u8,
    shape: Vec<u8>,
    strides: Option<Vec<i8>>,
    item_size: u8,
    /// The fields, with their offsets if they are not adjacent.
    descr: Option<Vec<(Simple, u8)>>,
    /// The depth of nested records.
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
    const TYPES: [&'static str; 10] =
        ["|V4", "|u1", "<i4", ">f8", "<c16", "|S3", "<U2", "<M8[25s]", "|t12", "|V0"];

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
        let fields: Option<Vec<Simple>> =
            likely.descr.map(|fields| fields.into_iter().map(|(field, _)| field).collect());
        // The size of the fields, except for an occasional wrong size.
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
            Box::new(Self { mask: masked.then(|| Box::new(mask.clone())), ..mask })
        });
        Self {
            version: Some((likely.version % 5).into()),
            shape: Some(wide(likely.shape)),
            typestr: Some(format!("|V{size}")),
            descr: fields.map(entries),
            data: Some((likely.data.0.into(), likely.data.1)),
            strides: likely.strides.map(|strides| strides.into_iter().map(i128::from).collect()),
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
