//! Structured elements: NumPy's records, as `descr` describes them.

use super::typestr::{Kind, TypeString};
use crate::invalid::Invalid;
use std::collections::BTreeSet;
use std::fmt;

/// What the elements of an array are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "DescrType", into = "DescrType"))]
pub enum Dtype {
    /// Of one type.
    Plain(TypeString),
    /// With fields.
    Record(Record),
}

/// An element with fields, which do not overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(try_from = "Vec<DescrEntry>", into = "Vec<DescrEntry>")
)]
pub struct Record {
    fields: Vec<Field>,
    size: usize,
}

/// A field of a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Another name, which NumPy has for people.
    pub title: Option<String>,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// What it is.
    pub dtype: Dtype,
    /// How many of it, if it is an array itself; empty if it is not.
    pub shape: Vec<usize>,
}

/// An entry of `descr`: `(name, type)` or `(name, type, shape)`; a name may be `(title, name)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DescrEntry {
    /// Empty for padding, which is of kind `V`.
    pub name: String,
    /// The title, if the name is a pair.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    pub title: Option<String>,
    /// The type.
    pub ty: DescrType,
    /// The shape; empty if there is none.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Vec::is_empty")
    )]
    pub shape: Vec<usize>,
}

/// The type in an entry of `descr`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(untagged))]
pub enum DescrType {
    /// A type string.
    Text(String),
    /// Entries of its own.
    Nested(Vec<DescrEntry>),
}

/// Records within records, at most.
const DEPTH: usize = 32;

fn refused(problem: impl Into<String>) -> Invalid {
    super::refused("descr", problem)
}

impl Dtype {
    /// The bytes of an element.
    pub fn item_size(&self) -> usize {
        match self {
            Self::Plain(ty) => ty.item_size(),
            Self::Record(record) => record.size,
        }
    }

    /// The `typestr`: of a record, bytes of its size.
    pub fn typestr(&self) -> String {
        match self {
            Self::Plain(ty) => ty.to_string(),
            Self::Record(record) => format!("|V{}", record.size),
        }
    }

    /// The `descr`, for a record.
    pub fn descr(&self) -> Option<Vec<DescrEntry>> {
        match self {
            Self::Plain(_) => None,
            Self::Record(record) => Some(record.to_descr()),
        }
    }

    /// Of what an array interface says: `descr` counts where `typestr` is of kind `V`.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`], with the key that is wrong.
    pub fn read(typestr: &str, descr: Option<&[DescrEntry]>) -> Result<Self, Invalid> {
        let plain: TypeString = typestr.parse()?;
        let entries = match descr {
            Some(entries) if plain.kind() == Kind::Void => entries,
            _ => return Ok(Self::Plain(plain)),
        };
        let record = Record::from_descr(entries)?;
        if record.size != plain.item_size() {
            return Err(refused(format!(
                "its fields have {} bytes, and typestr says {}",
                record.size,
                plain.item_size()
            )));
        }
        // Nothing but padding: of plain bytes NumPy says once more that they are.
        if record.fields.is_empty() {
            return Ok(Self::Plain(plain));
        }
        Ok(Self::Record(record))
    }
}

impl Field {
    /// The bytes of all of it.
    fn size(&self) -> Option<usize> {
        self.shape
            .iter()
            .try_fold(self.dtype.item_size(), |size, extent| {
                size.checked_mul(*extent)
            })
    }
}

impl Record {
    /// Of fields in the order in which they lie, in elements of `size` bytes.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`]: fields that overlap, are out of order or behind the end; a name
    /// that is empty or there twice.
    pub fn new(fields: Vec<Field>, size: usize) -> Result<Self, Invalid> {
        let mut names = BTreeSet::new();
        let mut end = 0;
        for field in &fields {
            if field.name.is_empty() {
                return Err(refused("a field has no name"));
            }
            for name in std::iter::once(&field.name).chain(&field.title) {
                if !names.insert(name) {
                    return Err(refused(format!("two fields are called \"{name}\"")));
                }
            }
            if field.offset < end {
                let problem = format!("field \"{}\" begins in the one before", field.name);
                return Err(refused(problem));
            }
            end = field
                .size()
                .and_then(|size| field.offset.checked_add(size))
                .ok_or_else(|| refused(format!("field \"{}\" is too large", field.name)))?;
        }
        if end > size || isize::try_from(size).is_err() {
            let problem = format!("the fields have {end} bytes, and elements {size}");
            return Err(refused(problem));
        }
        Ok(Self { fields, size })
    }

    /// The fields.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The bytes of an element.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Of the entries of `descr`, one behind the other.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`]: as for [`new`](Self::new); a type string that is none; records
    /// within records without end.
    pub fn from_descr(entries: &[DescrEntry]) -> Result<Self, Invalid> {
        Self::of_entries(entries, DEPTH)
    }

    fn of_entries(entries: &[DescrEntry], depth: usize) -> Result<Self, Invalid> {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| refused(format!("more than {DEPTH} records within each other")))?;
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
                DescrType::Nested(entries) => Dtype::Record(Self::of_entries(entries, depth)?),
            };
            let is_void = matches!(&dtype, Dtype::Plain(ty) if ty.kind() == Kind::Void);
            let field = Field {
                name: match entry.name.as_str() {
                    // As NumPy calls it.
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

    /// The entries of `descr`, with padding where there are gaps.
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
            // In range, as the record was checked.
            end = field.offset.saturating_add(field.size().unwrap_or(0));
        }
        if self.size > end {
            entries.push(padding(self.size - end));
        }
        entries
    }
}

impl From<TypeString> for Dtype {
    fn from(ty: TypeString) -> Self {
        Self::Plain(ty)
    }
}

impl From<Record> for Dtype {
    fn from(record: Record) -> Self {
        Self::Record(record)
    }
}

/// The type string; of a record its fields.
impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(ty) => ty.fmt(f),
            Self::Record(record) => {
                f.write_str("{")?;
                for (index, field) in record.fields.iter().enumerate() {
                    let between = if index == 0 { "" } else { ", " };
                    write!(f, "{between}{}: {}", field.name, field.dtype)?;
                    if !field.shape.is_empty() {
                        write!(f, " x {:?}", field.shape)?;
                    }
                }
                f.write_str("}")
            }
        }
    }
}
