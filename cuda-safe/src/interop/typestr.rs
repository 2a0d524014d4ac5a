//! NumPy's type strings: `<f8`, `|b1`, `>M8[25ms]`.

use crate::invalid::Invalid;
use std::fmt;
use std::str::FromStr;

/// The type of plain elements, as NumPy writes it: byte order, kind, size, and for times the unit.
///
/// Reading is as tolerant as NumPy's: `=` and `|` mean the machine's own order where there is one.
/// What is written is what NumPy writes: `|` where order means nothing, otherwise `<` or `>`.
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
    /// As the string has it: bytes, but characters of `U` and bits of `t`.
    count: usize,
    unit: Option<DatetimeUnit>,
}

/// In which order the bytes of a number lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ByteOrder {
    /// `<`: the least significant first.
    Little,
    /// `>`: the most significant first.
    Big,
    /// `|`: there is no order.
    None,
}

impl ByteOrder {
    /// That of this machine.
    pub const NATIVE: Self = if cfg!(target_endian = "little") {
        Self::Little
    } else {
        Self::Big
    };

    fn mark(self) -> char {
        match self {
            Self::Little => '<',
            Self::Big => '>',
            Self::None => '|',
        }
    }
}

/// What elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Kind {
    /// `b`: a byte, 0 or 1.
    Bool,
    /// `i`: signed numbers.
    Int,
    /// `u`: unsigned numbers.
    Uint,
    /// `f`: floating-point numbers.
    Float,
    /// `c`: complex numbers: two floating-point numbers of half the size.
    Complex,
    /// `m`: a length of time.
    Timedelta,
    /// `M`: a point in time.
    Datetime,
    /// `S`: bytes, with zeros at the end.
    Bytes,
    /// `U`: characters of four bytes, with zeros at the end.
    Unicode,
    /// `V`: bytes that mean nothing here.
    Void,
    /// `t`: bits.
    BitField,
}

/// Each kind with its letter, and the sizes that it has; none: any.
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
    fn of_letter(letter: char) -> Option<Self> {
        let row = KINDS.iter().find(|(_, its, _)| *its == letter)?;
        Some(row.0)
    }

    fn row(self) -> (char, Option<&'static [usize]>) {
        // Each kind is in the table.
        let row = KINDS.iter().find(|(kind, ..)| *kind == self);
        row.map_or(('V', None), |(_, letter, sizes)| (*letter, *sizes))
    }

    /// Whether its bytes have an order if there are `count`.
    fn has_order(self, count: usize) -> bool {
        match self {
            Self::Bool | Self::Bytes | Self::Void | Self::BitField => false,
            Self::Int | Self::Uint => count > 1,
            Self::Float | Self::Complex | Self::Timedelta | Self::Datetime | Self::Unicode => true,
        }
    }
}

/// The unit of times: so many of `name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatetimeUnit {
    name: &'static str,
    count: u32,
}

/// NumPy's units, from years to attoseconds, and times without one.
const UNITS: [&str; 14] = [
    "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic",
];

impl DatetimeUnit {
    /// `Y`, `M`, `W`, `D`, `h`, `m`, `s`, `ms`, `us`, `ns`, `ps`, `fs`, `as`, or `generic`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many of it are one step: 25 for `[25s]`.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Of what stands between the brackets.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, name) = text.split_at(digits);
        // NumPy's other name for microseconds.
        let name = if name == "\u{3bc}s" { "us" } else { name };
        let name = UNITS
            .into_iter()
            .find(|unit| *unit == name)
            .ok_or("an unknown unit of time")?;
        let count = match count {
            "" => 1,
            digits => digits
                .parse()
                .ok()
                .filter(|count| (1..=i32::MAX as u32).contains(count))
                .ok_or("a number of units that is 0, or more than a step can be")?,
        };
        if name == "generic" && count != 1 {
            return Err("a number of units without a unit");
        }
        Ok(Self { name, count })
    }
}

impl TypeString {
    /// Of a kind and a size in bytes, in this machine's byte order; times are without a unit.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`]: there is no such size.
    pub fn native(kind: Kind, size: usize) -> Result<Self, Invalid> {
        let count = match kind {
            Kind::Unicode if size % 4 != 0 => {
                return Err(refused(size, "characters have 4 bytes each"));
            }
            Kind::Unicode => size / 4,
            Kind::BitField => size.saturating_mul(8),
            _ => size,
        };
        Self::new(ByteOrder::NATIVE, kind, count, None).map_err(|why| refused(size, why))
    }

    fn new(
        order: ByteOrder,
        kind: Kind,
        count: usize,
        unit: Option<DatetimeUnit>,
    ) -> Result<Self, &'static str> {
        let (_, sizes) = kind.row();
        if sizes.is_some_and(|sizes| !sizes.contains(&count)) {
            return Err("there is no such size of this kind");
        }
        // Bytes are counted with signs in places.
        let most = isize::MAX.unsigned_abs() / 4;
        if count > most {
            return Err("more than memory can hold");
        }
        let order = match (kind.has_order(count), order) {
            (false, _) => ByteOrder::None,
            (true, ByteOrder::None) => ByteOrder::NATIVE,
            (true, order) => order,
        };
        Ok(Self {
            order,
            kind,
            count,
            unit,
        })
    }

    /// In which order its bytes lie.
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// Whether this machine reads it as it is.
    pub fn is_native(&self) -> bool {
        matches!(self.order, ByteOrder::None) || self.order == ByteOrder::NATIVE
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The bytes of an element.
    pub fn item_size(&self) -> usize {
        match self.kind {
            Kind::Unicode => self.count * 4,
            Kind::BitField => self.count.div_ceil(8),
            _ => self.count,
        }
    }

    /// The bits of a [bit field](Kind::BitField).
    pub fn bits(&self) -> Option<usize> {
        (self.kind == Kind::BitField).then_some(self.count)
    }

    /// The unit of times, if they have one.
    pub fn unit(&self) -> Option<DatetimeUnit> {
        self.unit
    }
}

fn refused(what: impl fmt::Display, why: &str) -> Invalid {
    super::refused("typestr", format!("\"{what}\": {why}"))
}

impl FromStr for TypeString {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse(text).map_err(|why| refused(text, why))
    }
}

fn parse(text: &str) -> Result<TypeString, &'static str> {
    let mut rest = text.chars();
    let order = match rest.next() {
        Some('<') => ByteOrder::Little,
        Some('>') => ByteOrder::Big,
        Some('=') => ByteOrder::NATIVE,
        Some('|') => ByteOrder::None,
        _ => return Err("it begins with <, > or |"),
    };
    let kind = match rest.next() {
        Some('O') => return Err("objects of Python are not on a device"),
        letter => letter
            .and_then(Kind::of_letter)
            .ok_or("the kind is one of b i u f c m M S U V t")?,
    };
    let rest = rest.as_str();
    let (digits, unit) = match rest.split_once('[') {
        None => (rest, None),
        Some((digits, unit)) => {
            let unit = unit.strip_suffix(']').ok_or("a bracket is not closed")?;
            (digits, Some(unit))
        }
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err("the size is a number");
    }
    let count = digits.parse().map_err(|_| "more than memory can hold")?;
    let unit = match (unit, kind) {
        (None, _) => None,
        (Some(unit), Kind::Timedelta | Kind::Datetime) => Some(DatetimeUnit::parse(unit)?),
        (Some(_), _) => return Err("only times have a unit"),
    };
    // Times of no unit are written without.
    let unit = unit.filter(|unit| unit.name != "generic");
    TypeString::new(order, kind, count, unit)
}

impl fmt::Display for TypeString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (letter, _) = self.kind.row();
        write!(f, "{}{letter}{}", self.order.mark(), self.count)?;
        match self.unit {
            None => Ok(()),
            Some(DatetimeUnit { name, count: 1 }) => write!(f, "[{name}]"),
            Some(DatetimeUnit { name, count }) => write!(f, "[{count}{name}]"),
        }
    }
}
