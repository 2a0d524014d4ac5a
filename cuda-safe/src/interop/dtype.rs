//! Structured elements: NumPy's records, as described by `descr`.

use crate::call::{Invalid, convert, refuse_if};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

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
        if record.fields.is_empty() { Ok(Self::Plain(plain)) } else { Ok(Self::Record(record)) }
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
            refuse_if!(field.name.is_empty(), refused("a field has no name"));
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

convert! {
    |ty: TypeString| -> Dtype { Self::Plain(ty) }
    |record: Record| -> Dtype { Self::Record(record) }
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

/// The type of plain elements as a NumPy type string: byte order, kind, size, and the unit of
/// times.
///
/// Parsing is as tolerant as NumPy's: `=` and `|` mean the native order for types with a byte
/// order. Formatting produces NumPy's output: `|` for types without a byte order, otherwise `<` or
/// `>`.
///
/// ```
/// use cuda_safe::interop::{ByteOrder, Kind, TypeString};
///
/// let ty: TypeString = ">f8".parse()?;
/// assert_eq!((ty.kind(), ty.item_size()), (Kind::Float, 8));
/// assert_eq!(ty.byte_order(), ByteOrder::Big);
/// assert_eq!(ty.to_string(), ">f8");
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct TypeString {
    order: ByteOrder,
    kind: Kind,
    /// The number in the string: bytes, but characters for `U` and bits for `t`.
    count: usize,
    unit: Option<DatetimeUnit>,
}

/// The byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ByteOrder {
    /// `<`: least significant byte first.
    Little,
    /// `>`: most significant byte first.
    Big,
    /// `|`: no byte order.
    None,
}

impl ByteOrder {
    /// The byte order of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };

    #[inline]
    fn symbol(self) -> char {
        match self {
            Self::Little => '<',
            Self::Big => '>',
            Self::None => '|',
        }
    }
}

/// The kind of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Kind {
    /// `b`: a byte, 0 or 1.
    Bool,
    /// `i`: signed integers.
    Int,
    /// `u`: unsigned integers.
    Uint,
    /// `f`: floating-point numbers.
    Float,
    /// `c`: complex numbers, as two floating-point numbers of half the size.
    Complex,
    /// `m`: a duration.
    Timedelta,
    /// `M`: a point in time.
    Datetime,
    /// `S`: bytes, padded with zeros.
    Bytes,
    /// `U`: characters of four bytes, padded with zeros.
    Unicode,
    /// `V`: uninterpreted bytes.
    Void,
    /// `t`: bits.
    BitField,
}

/// Each kind with its letter and valid sizes; `None` means any size.
const KINDS: [(Kind, char, Option<&[usize]>); 11] = [
    (Kind::Bool, 'b', Some(&[1])),
    (Kind::Int, 'i', Some(&[1, 2, 4, 8])),
    (Kind::Uint, 'u', Some(&[1, 2, 4, 8])),
    (Kind::Float, 'f', Some(&[2, 4, 8, 16])),
    (Kind::Complex, 'c', Some(&[8, 16, 32])),
    (Kind::Timedelta, 'm', Some(&[8])),
    (Kind::Datetime, 'M', Some(&[8])),
    (Kind::Bytes, 'S', None),
    (Kind::Unicode, 'U', None),
    (Kind::Void, 'V', None),
    (Kind::BitField, 't', None),
];

impl Kind {
    #[inline]
    fn from_letter(letter: char) -> Option<Self> {
        let row = KINDS.iter().find(|(_, row_letter, _)| *row_letter == letter)?;
        Some(row.0)
    }

    #[inline]
    fn row(self) -> (char, Option<&'static [usize]>) {
        // Each kind is in the table.
        let row = KINDS.iter().find(|(kind, ..)| *kind == self);
        row.map_or(('V', None), |(_, letter, sizes)| (*letter, *sizes))
    }

    /// Returns whether elements of this kind and `count` have a byte order.
    #[inline]
    fn has_order(self, count: usize) -> bool {
        match self {
            Self::Bool | Self::Bytes | Self::Void | Self::BitField => false,
            Self::Int | Self::Uint => count > 1,
            Self::Float | Self::Complex | Self::Timedelta | Self::Datetime | Self::Unicode => true,
        }
    }
}

/// The unit of times: `count` times the unit `name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatetimeUnit {
    name: &'static str,
    count: u32,
}

/// NumPy's units, from years to attoseconds, and `generic`.
const UNITS: [&str; 14] =
    ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic"];

impl DatetimeUnit {
    /// Returns `Y`, `M`, `W`, `D`, `h`, `m`, `s`, `ms`, `us`, `ns`, `ps`, `fs`, `as` or `generic`.
    #[inline]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of units per step, for example 25 for `[25s]`.
    #[inline]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Parses the text between the brackets.
    #[inline]
    fn parse(text: &str) -> Result<Self, &'static str> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, name) = text.split_at(digits);
        // NumPy's other name for microseconds.
        let name = if name == "\u{3bc}s" { "us" } else { name };
        let name = UNITS.into_iter().find(|unit| *unit == name).ok_or("an unknown unit of time")?;
        let count = match count {
            "" => 1,
            digits => digits
                .parse()
                .ok()
                .filter(|count| (1..=i32::MAX as u32).contains(count))
                .ok_or("the number of units is 0 or too large")?,
        };
        if name == "generic" && count != 1 {
            return Err("the generic unit cannot have a number of units");
        }
        Ok(Self { name, count })
    }
}

impl TypeString {
    /// Creates the type from a kind and a size in bytes, in native byte order. Times have no unit.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the kind does not have this size.
    #[inline]
    pub fn native(kind: Kind, size: usize) -> Result<Self, Invalid> {
        let count = match kind {
            Kind::Unicode if size % 4 != 0 => {
                return Err(no_type(size, "characters have 4 bytes each"));
            }
            Kind::Unicode => size / 4,
            Kind::BitField => size.saturating_mul(8),
            _ => size,
        };
        Self::new(ByteOrder::NATIVE, kind, count, None).map_err(|problem| no_type(size, problem))
    }

    #[inline]
    fn new(
        order: ByteOrder,
        kind: Kind,
        count: usize,
        unit: Option<DatetimeUnit>,
    ) -> Result<Self, &'static str> {
        let (_, sizes) = kind.row();
        if sizes.is_some_and(|sizes| !sizes.contains(&count)) {
            return Err("the kind does not have this size");
        }
        // Byte offsets are signed.
        let max = isize::MAX.unsigned_abs() / 4;
        refuse_if!(count > max, "the size exceeds the address space");
        let order = match (kind.has_order(count), order) {
            (false, _) => ByteOrder::None,
            (true, ByteOrder::None) => ByteOrder::NATIVE,
            (true, order) => order,
        };
        Ok(Self { order, kind, count, unit })
    }

    /// Returns the byte order.
    #[inline]
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// Returns whether the elements have native byte order, or none.
    #[inline]
    pub fn is_native(&self) -> bool {
        matches!(self.order, ByteOrder::None) || self.order == ByteOrder::NATIVE
    }

    /// Returns the kind.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the size of an element in bytes.
    #[inline]
    pub fn item_size(&self) -> usize {
        match self.kind {
            Kind::Unicode => self.count * 4,
            Kind::BitField => self.count.div_ceil(8),
            _ => self.count,
        }
    }

    /// Returns the number of bits of a [bit field](Kind::BitField).
    #[inline]
    pub fn bits(&self) -> Option<usize> {
        (self.kind == Kind::BitField).then_some(self.count)
    }

    /// Returns the unit of times, if they have one.
    #[inline]
    pub fn unit(&self) -> Option<DatetimeUnit> {
        self.unit
    }
}

fn no_type(what: impl fmt::Display, problem: &str) -> Invalid {
    super::refused("typestr", format!("\"{what}\": {problem}"))
}

impl FromStr for TypeString {
    type Err = Invalid;

    #[inline]
    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse(text).map_err(|problem| no_type(text, problem))
    }
}

#[inline]
fn parse(text: &str) -> Result<TypeString, &'static str> {
    let mut rest = text.chars();
    let order = match rest.next() {
        Some('<') => ByteOrder::Little,
        Some('>') => ByteOrder::Big,
        Some('=') => ByteOrder::NATIVE,
        Some('|') => ByteOrder::None,
        _ => return Err("it must begin with <, > or |"),
    };
    let kind = match rest.next() {
        Some('O') => return Err("Python objects are not supported on a device"),
        letter => letter
            .and_then(Kind::from_letter)
            .ok_or("the kind must be one of b i u f c m M S U V t")?,
    };
    let rest = rest.as_str();
    let (digits, unit) = match rest.split_once('[') {
        None => (rest, None),
        Some((digits, unit)) => {
            let unit = unit.strip_suffix(']').ok_or("the closing bracket is missing")?;
            (digits, Some(unit))
        }
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err("the size must be a number");
    }
    let count = digits.parse().map_err(|_| "the size exceeds the address space")?;
    let unit = match (unit, kind) {
        (None, _) => None,
        (Some(unit), Kind::Timedelta | Kind::Datetime) => Some(DatetimeUnit::parse(unit)?),
        (Some(_), _) => return Err("only times can have a unit"),
    };
    // Times with the generic unit are written without a unit.
    let unit = unit.filter(|unit| unit.name != "generic");
    TypeString::new(order, kind, count, unit)
}

impl fmt::Display for TypeString {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (letter, _) = self.kind.row();
        write!(f, "{}{letter}{}", self.order.symbol(), self.count)?;
        match self.unit {
            None => Ok(()),
            Some(DatetimeUnit { name, count: 1 }) => write!(f, "[{name}]"),
            Some(DatetimeUnit { name, count }) => write!(f, "[{count}{name}]"),
        }
    }
}
