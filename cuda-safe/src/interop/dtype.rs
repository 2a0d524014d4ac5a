//! Structured elements: NumPy's records, as described by `descr`.

use super::typestr::{Kind, TypeString};
use crate::call::Invalid;
use std::collections::BTreeSet;
use std::fmt;

/// The type of the elements of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "DescrType", into = "DescrType"))]
pub enum Dtype {
    /// Elements of a plain type.
    Plain(TypeString),
    /// Elements with fields.
    Record(Record),
}

/// An element type with fields that do not overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Vec<DescrEntry>", into = "Vec<DescrEntry>"))]
pub struct Record {
    fields: Vec<Field>,
    size: usize,
}

/// A field of a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The name.
    pub name: String,
    /// NumPy's title, an alternative name.
    pub title: Option<String>,
    /// The offset in bytes.
    pub offset: usize,
    /// The type.
    pub dtype: Dtype,
    /// The shape, if the field is an array; otherwise empty.
    pub shape: Vec<usize>,
}

/// An entry of `descr`: `(name, type)` or `(name, type, shape)`; a name may be `(title, name)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DescrEntry {
    /// The name. It is empty for padding, which has the kind `V`.
    pub name: String,
    /// The title, if the name is a pair.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub title: Option<String>,
    /// The type.
    pub ty: DescrType,
    /// The shape; empty for a scalar.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub shape: Vec<usize>,
}

/// The type in an entry of `descr`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(untagged))]
pub enum DescrType {
    /// A type string.
    Text(String),
    /// The entries of a nested record.
    Nested(Vec<DescrEntry>),
}

/// The maximum depth of nested records.
const MAX_DEPTH: usize = 32;

fn refused(problem: impl Into<String>) -> Invalid {
    super::refused("descr", problem)
}

impl Dtype {
    /// Returns the size of an element in bytes.
    #[inline]
    pub fn item_size(&self) -> usize {
        match self {
            Self::Plain(ty) => ty.item_size(),
            Self::Record(record) => record.size,
        }
    }

    /// Returns the `typestr`. For a record this is a `V` type of its size.
    #[inline]
    pub fn typestr(&self) -> String {
        match self {
            Self::Plain(ty) => ty.to_string(),
            Self::Record(record) => format!("|V{}", record.size),
        }
    }

    /// Returns the `descr` of a record.
    #[inline]
    pub fn descr(&self) -> Option<Vec<DescrEntry>> {
        match self {
            Self::Plain(_) => None,
            Self::Record(record) => Some(record.to_descr()),
        }
    }

    /// Reads the type from the keys of an array interface. `descr` is used only if `typestr` has
    /// the kind `V`.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] with the invalid key.
    #[inline]
    pub fn read(typestr: &str, descr: Option<&[DescrEntry]>) -> Result<Self, Invalid> {
        let plain: TypeString = typestr.parse()?;
        let entries = match descr {
            Some(entries) if plain.kind() == Kind::Void => entries,
            _ => return Ok(Self::Plain(plain)),
        };
        let record = Record::from_descr(entries)?;
        if record.size != plain.item_size() {
            return Err(refused(format!(
                "the fields have {} bytes, but typestr has {}",
                record.size,
                plain.item_size()
            )));
        }
        // For plain bytes, NumPy also writes a `descr`, which consists only of padding.
        if record.fields.is_empty() {
            return Ok(Self::Plain(plain));
        }
        Ok(Self::Record(record))
    }
}

impl Field {
    /// Returns the size of the whole field in bytes.
    #[inline]
    fn size(&self) -> Option<usize> {
        self.shape.iter().try_fold(self.dtype.item_size(), |size, extent| size.checked_mul(*extent))
    }
}

impl Record {
    /// Creates a record from fields in the order of their offsets, for elements of `size` bytes.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if fields overlap, are out of order or exceed the element, or if
    /// a name is empty or occurs twice.
    #[inline]
    pub fn new(fields: Vec<Field>, size: usize) -> Result<Self, Invalid> {
        let mut names = BTreeSet::new();
        let mut end = 0;
        for field in &fields {
            if field.name.is_empty() {
                return Err(refused("a field has no name"));
            }
            for name in std::iter::once(&field.name).chain(&field.title) {
                if !names.insert(name) {
                    return Err(refused(format!("two fields have the name \"{name}\"")));
                }
            }
            if field.offset < end {
                let problem = format!("field \"{}\" overlaps the previous field", field.name);
                return Err(refused(problem));
            }
            end = field
                .size()
                .and_then(|size| field.offset.checked_add(size))
                .ok_or_else(|| refused(format!("field \"{}\" is too large", field.name)))?;
        }
        if end > size || isize::try_from(size).is_err() {
            let problem = format!("the fields have {end} bytes, but the elements {size}");
            return Err(refused(problem));
        }
        Ok(Self { fields, size })
    }

    /// Returns the fields.
    #[inline]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the size of an element in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Creates a record from the entries of `descr`, which follow each other without gaps.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if a name occurs twice, a type string is invalid, a field or the
    /// record is too large, or records are nested too deeply.
    #[inline]
    pub fn from_descr(entries: &[DescrEntry]) -> Result<Self, Invalid> {
        Self::from_entries(entries, MAX_DEPTH)
    }

    #[inline]
    fn from_entries(entries: &[DescrEntry], depth: usize) -> Result<Self, Invalid> {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| refused(format!("more than {MAX_DEPTH} nested records")))?;
        let mut fields = Vec::new();
        let mut offset = 0usize;
        for (index, entry) in entries.iter().enumerate() {
            let dtype = match &entry.ty {
                DescrType::Text(text) => Dtype::Plain(text.parse().map_err(|invalid| {
                    let name = &entry.name;
                    match invalid {
                        Invalid::ArrayInterface { problem, .. } => {
                            refused(format!("field \"{name}\": {problem}"))
                        }
                        other => other,
                    }
                })?),
                DescrType::Nested(entries) => Dtype::Record(Self::from_entries(entries, depth)?),
            };
            let is_void = matches!(&dtype, Dtype::Plain(ty) if ty.kind() == Kind::Void);
            let field = Field {
                name: match entry.name.as_str() {
                    // NumPy generates this name.
                    "" => format!("f{index}"),
                    name => name.to_owned(),
                },
                title: entry.title.clone(),
                offset,
                dtype,
                shape: entry.shape.clone(),
            };
            offset = field
                .size()
                .and_then(|size| offset.checked_add(size))
                .ok_or_else(|| refused(format!("field \"{}\" is too large", field.name)))?;
            let is_padding = entry.name.is_empty() && is_void;
            if !is_padding {
                fields.push(field);
            }
        }
        Self::new(fields, offset)
    }

    /// Returns the entries of `descr`, with padding for gaps.
    #[inline]
    pub fn to_descr(&self) -> Vec<DescrEntry> {
        let padding = |bytes: usize| DescrEntry {
            name: String::new(),
            title: None,
            ty: DescrType::Text(format!("|V{bytes}")),
            shape: Vec::new(),
        };
        let mut entries = Vec::new();
        let mut end = 0;
        for field in &self.fields {
            if field.offset > end {
                entries.push(padding(field.offset - end));
            }
            entries.push(DescrEntry {
                name: field.name.clone(),
                title: field.title.clone(),
                ty: match &field.dtype {
                    Dtype::Plain(ty) => DescrType::Text(ty.to_string()),
                    Dtype::Record(record) => DescrType::Nested(record.to_descr()),
                },
                shape: field.shape.clone(),
            });
            // This cannot overflow, because the record was checked.
            end = field.offset.saturating_add(field.size().unwrap_or(0));
        }
        if self.size > end {
            entries.push(padding(self.size - end));
        }
        entries
    }
}

impl From<TypeString> for Dtype {
    #[inline]
    fn from(ty: TypeString) -> Self {
        Self::Plain(ty)
    }
}

impl From<Record> for Dtype {
    #[inline]
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

/// Writes the type string, or the fields of a record.
impl fmt::Display for Dtype {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(ty) => ty.fmt(f),
            Self::Record(record) => {
                f.write_str("{")?;
                for (index, field) in record.fields.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{}: {}", field.name, field.dtype)?;
                    if !field.shape.is_empty() {
                        write!(f, " x {:?}", field.shape)?;
                    }
                }
                f.write_str("}")
            }
        }
    }
}
