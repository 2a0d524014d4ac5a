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
use crate::call::Invalid;

impl TryFrom<String> for TypeString {
    type Error = Invalid;

    #[inline]
    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<TypeString> for String {
    #[inline]
    fn from(ty: TypeString) -> Self {
        ty.to_string()
    }
}

impl TryFrom<DescrType> for Dtype {
    type Error = Invalid;

    #[inline]
    fn try_from(ty: DescrType) -> Result<Self, Invalid> {
        Ok(match ty {
            DescrType::Text(text) => Self::Plain(text.parse()?),
            DescrType::Nested(entries) => Self::Record(Record::from_descr(&entries)?),
        })
    }
}

impl From<Dtype> for DescrType {
    #[inline]
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Plain(ty) => Self::Text(ty.to_string()),
            Dtype::Record(record) => Self::Nested(record.to_descr()),
        }
    }
}

impl TryFrom<Vec<DescrEntry>> for Record {
    type Error = Invalid;

    #[inline]
    fn try_from(entries: Vec<DescrEntry>) -> Result<Self, Invalid> {
        Self::from_descr(&entries)
    }
}

impl From<Record> for Vec<DescrEntry> {
    #[inline]
    fn from(record: Record) -> Self {
        record.to_descr()
    }
}

/// The unchecked fields of a layout.
#[derive(serde::Deserialize)]
pub(super) struct LayoutFields {
    shape: Vec<usize>,
    strides: Vec<isize>,
    item_size: usize,
}

impl TryFrom<LayoutFields> for Layout {
    type Error = Invalid;

    #[inline]
    fn try_from(fields: LayoutFields) -> Result<Self, Invalid> {
        Self::strided(&fields.shape, &fields.strides, fields.item_size)
    }
}

impl TryFrom<i128> for ExportedStream {
    type Error = Invalid;

    #[inline]
    fn try_from(number: i128) -> Result<Self, Invalid> {
        Self::from_number(number)
    }
}

impl From<ExportedStream> for i128 {
    #[inline]
    fn from(stream: ExportedStream) -> Self {
        stream.number().into()
    }
}

impl TryFrom<RawInterface> for ArrayInterface {
    type Error = Invalid;

    #[inline]
    fn try_from(raw: RawInterface) -> Result<Self, Invalid> {
        raw.check(ReadOptions { masks: true, ..ReadOptions::default() })
    }
}

impl From<ArrayInterface> for RawInterface {
    #[inline]
    fn from(array: ArrayInterface) -> Self {
        array.to_raw()
    }
}
