//! The type of a tensor's elements.

use super::raw::DLDataType;
use super::refused;
use crate::call::Invalid;
use crate::interop::{ByteOrder, Dtype, Element, Kind, TypeString};
use std::fmt;

/// The type of the elements of a DLPack tensor (`DLDataType`), always in native byte order.
///
/// ```
/// use cuda_safe::interop::dlpack::{DataType, TypeCode};
///
/// let ty = DataType::scalar(TypeCode::BFLOAT, 16);
/// assert_eq!((ty.to_string(), ty.item_size()), ("bfloat16".to_owned(), Some(2)));
/// assert!(ty.numpy().is_none());
/// assert_eq!(DataType::of::<[f32; 2]>().numpy().expect("c8").to_string(), "<c8");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DataType {
    /// The type code.
    pub code: TypeCode,
    /// The number of bits of one lane.
    pub bits: u8,
    /// The number of lanes: 1, or more for vector elements.
    pub lanes: u16,
}

/// A type code (`DLDataTypeCode`). Newer versions of DLPack may have more codes than this type
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct TypeCode(pub u8);

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names say it")]
        impl TypeCode {
            $(pub const $name: Self = Self($code);)*

            /// Returns the name in DLPack's header.
            fn text(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    INT = 0, "int";
    UINT = 1, "uint";
    FLOAT = 2, "float";
    OPAQUE_HANDLE = 3, "handle";
    BFLOAT = 4, "bfloat";
    COMPLEX = 5, "complex";
    BOOL = 6, "bool";
    FLOAT8_E3M4 = 7, "float8_e3m4";
    FLOAT8_E4M3 = 8, "float8_e4m3";
    FLOAT8_E4M3B11FNUZ = 9, "float8_e4m3b11fnuz";
    FLOAT8_E4M3FN = 10, "float8_e4m3fn";
    FLOAT8_E4M3FNUZ = 11, "float8_e4m3fnuz";
    FLOAT8_E5M2 = 12, "float8_e5m2";
    FLOAT8_E5M2FNUZ = 13, "float8_e5m2fnuz";
    FLOAT8_E8M0FNU = 14, "float8_e8m0fnu";
    FLOAT6_E2M3FN = 15, "float6_e2m3fn";
    FLOAT6_E3M2FN = 16, "float6_e3m2fn";
    FLOAT4_E2M1FN = 17, "float4_e2m1fn";
}

impl TypeCode {
    /// Returns the number of bits, if the name determines it.
    #[inline]
    fn fixed_bits(self) -> Option<u8> {
        match self.0 {
            7..=14 => Some(8),
            15 | 16 => Some(6),
            17 => Some(4),
            _ => None,
        }
    }
}

/// The types that both NumPy and DLPack have.
const KINDS: [(Kind, TypeCode); 5] = [
    (Kind::Int, TypeCode::INT),
    (Kind::Uint, TypeCode::UINT),
    (Kind::Float, TypeCode::FLOAT),
    (Kind::Complex, TypeCode::COMPLEX),
    (Kind::Bool, TypeCode::BOOL),
];

#[inline]
fn code_of(kind: Kind) -> Option<TypeCode> {
    KINDS.iter().find(|(its, _)| *its == kind).map(|(_, code)| *code)
}

impl DataType {
    /// Creates a type with one lane.
    #[inline]
    pub const fn scalar(code: TypeCode, bits: u8) -> Self {
        Self { code, bits, lanes: 1 }
    }

    /// Returns the type for a Rust type.
    pub fn of<T: Element>() -> Self {
        let code = match T::KIND {
            Kind::Int => TypeCode::INT,
            Kind::Float => TypeCode::FLOAT,
            Kind::Complex => TypeCode::COMPLEX,
            _ => TypeCode::UINT,
        };
        // No type is larger than 16 bytes.
        Self::scalar(code, u8::try_from(size_of::<T>() * 8).unwrap_or(u8::MAX))
    }

    /// Returns the size of an element in bytes, or `None` if it is not a whole number of bytes,
    /// because such elements are packed.
    #[inline]
    pub fn item_size(&self) -> Option<usize> {
        let bits = usize::from(self.bits) * usize::from(self.lanes);
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// Returns the corresponding NumPy type. Vectors, `bfloat16`, and floating-point types of 8
    /// bits or less have none.
    #[inline]
    pub fn numpy(&self) -> Option<TypeString> {
        let (kind, _) = *KINDS.iter().find(|(_, code)| *code == self.code)?;
        let size = self.item_size().filter(|_| self.lanes == 1)?;
        TypeString::native(kind, size).ok()
    }

    /// Returns the type for a NumPy type.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] for times, strings, records, uninterpreted bytes, and non-native byte
    /// order, which DLPack does not support.
    #[inline]
    pub fn from_numpy(dtype: &Dtype) -> Result<Self, Invalid> {
        let none = |why: &str| refused("dtype", format!("{dtype}: {why}"));
        let Dtype::Plain(ty) = dtype else { return Err(none("DLPack does not support records")) };
        let code = code_of(ty.kind()).ok_or_else(|| none("DLPack supports only numbers"))?;
        if ty.byte_order() != ByteOrder::None && !ty.is_native() {
            return Err(none("DLPack supports only native byte order"));
        }
        let bits = u8::try_from(ty.item_size() * 8).map_err(|_| none("too many bits"))?;
        Ok(Self::scalar(code, bits))
    }

    #[inline]
    pub(super) fn to_raw(self) -> DLDataType {
        DLDataType { code: self.code.0, bits: self.bits, lanes: self.lanes }
    }

    #[inline]
    pub(super) fn from_raw(raw: DLDataType) -> Self {
        Self { code: TypeCode(raw.code), bits: raw.bits, lanes: raw.lanes }
    }

    /// Returns the distance between elements in bytes.
    #[inline]
    pub(super) fn checked_item_size(&self, padded: bool) -> Result<usize, Invalid> {
        if self.bits == 0 || self.lanes == 0 {
            let problem = format!("elements of {} lanes of {} bits", self.lanes, self.bits);
            return Err(refused("dtype", problem));
        }
        if self.code.fixed_bits().is_some_and(|bits| bits != self.bits) {
            let problem = format!("{self} with {} bits", self.bits);
            return Err(refused("dtype", problem));
        }
        if padded && self.bits < 8 && self.lanes == 1 {
            return Ok(1);
        }
        self.item_size().ok_or_else(|| {
            let problem = format!("{self} is packed: elements do not begin at byte boundaries");
            refused("dtype", problem)
        })
    }
}

/// Writes a name like `float32`, `bfloat16`, `float8_e4m3fn` or `int8x4`.
impl fmt::Display for DataType {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code.text() {
            Some(text) if self.code.fixed_bits().is_some() => f.write_str(text),
            Some("bool") if self.bits == 8 => f.write_str("bool"),
            Some(text) => write!(f, "{text}{}", self.bits),
            None => write!(f, "type code {} of {} bits", self.code.0, self.bits),
        }?;
        match self.lanes {
            1 => Ok(()),
            lanes => write!(f, "x{lanes}"),
        }
    }
}
