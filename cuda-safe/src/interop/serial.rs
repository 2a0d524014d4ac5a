//! Serialization with serde. Deserialized values go through the same checks as others.
//!
//! | | written as |
//! |---|---|
//! | [`TypeString`] | the string |
//! | [`Dtype`] | the string, or the entries of `descr` |
//! | [`Record`] | the entries of `descr` |
//! | [`Layout`] | its three fields |
//! | [`ExportedStream`] | the number |
//! | [`ArrayInterface`] | the dict, in version 3: [`ArrayInterface::to_raw`] |

use super::{
    ArrayInterface, DescrEntry, DescrType, Dtype, ExportedStream, Layout, RawInterface,
    ReadOptions, Record, TypeString,
};
use crate::call::{Invalid, convert};

/// The unchecked fields of a layout.
#[derive(serde::Deserialize)]
pub(super) struct LayoutFields {
    shape: Vec<usize>,
    strides: Vec<isize>,
    item_size: usize,
}

convert! {
    |ty: TypeString| -> String { ty.to_string() }
    |dtype: Dtype| -> DescrType {
        match dtype {
            Dtype::Plain(ty) => Self::Text(ty.to_string()),
            Dtype::Record(record) => Self::Nested(record.to_descr()),
        }
    }
    |record: Record| -> Vec<DescrEntry> { record.to_descr() }
    |stream: ExportedStream| -> i128 { stream.number().into() }
    |array: ArrayInterface| -> RawInterface { array.to_raw() }
}

/// Implements `TryFrom` by an expression for each row, as [`convert!`](convert) implements `From`.
macro_rules! check {
    ($(|$its:ident: $from:ty| -> $to:ty { $value:expr })*) => {$(
        impl TryFrom<$from> for $to {
            type Error = Invalid;

            #[inline]
            fn try_from($its: $from) -> Result<Self, Invalid> {
                $value
            }
        }
    )*};
}

check! {
    |text: String| -> TypeString { text.parse() }
    |ty: DescrType| -> Dtype {
        Ok(match ty {
            DescrType::Text(text) => Self::Plain(text.parse()?),
            DescrType::Nested(entries) => Self::Record(Record::from_descr(&entries)?),
        })
    }
    |entries: Vec<DescrEntry>| -> Record { Self::from_descr(&entries) }
    |fields: LayoutFields| -> Layout { Self::strided(&fields.shape, &fields.strides, fields.item_size) }
    |number: i128| -> ExportedStream { Self::from_number(number) }
    |raw: RawInterface| -> ArrayInterface { raw.check(ReadOptions { masks: true, ..ReadOptions::default() }) }
}
