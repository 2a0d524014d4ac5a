//! NumPy's type strings, for example `<f8`, `|b1` and `>M8[25ms]`.

use crate::call::Invalid;
use std::fmt;
use std::str::FromStr;

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
                return Err(refused(size, "characters have 4 bytes each"));
            }
            Kind::Unicode => size / 4,
            Kind::BitField => size.saturating_mul(8),
            _ => size,
        };
        Self::new(ByteOrder::NATIVE, kind, count, None).map_err(|problem| refused(size, problem))
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
        if count > max {
            return Err("the size exceeds the address space");
        }
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

fn refused(what: impl fmt::Display, problem: &str) -> Invalid {
    super::refused("typestr", format!("\"{what}\": {problem}"))
}

impl FromStr for TypeString {
    type Err = Invalid;

    #[inline]
    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse(text).map_err(|problem| refused(text, problem))
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
