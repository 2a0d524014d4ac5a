//! The elements of tensors, and what a copy makes of them.

/// The type of an element, in the order of `CUtensorMapDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Unsigned integers of 8 bits.
    U8,
    /// Unsigned integers of 16 bits.
    U16,
    /// Unsigned integers of 32 bits.
    U32,
    /// Signed integers of 32 bits.
    S32,
    /// Unsigned integers of 64 bits.
    U64,
    /// Signed integers of 64 bits.
    S64,
    /// Numbers of f16.
    F16,
    /// Numbers of f32.
    F32,
    /// Numbers of f64.
    F64,
    /// Numbers of bf16.
    Bf16,
    /// Numbers of f32 without denormals.
    F32Ftz,
    /// Numbers of tf32.
    Tf32,
    /// Numbers of tf32 without denormals.
    Tf32Ftz,
}

impl Element {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::S32,
        Self::U64,
        Self::S64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
        Self::F32Ftz,
        Self::Tf32,
        Self::Tf32Ftz,
    ];

    /// Returns the type with this number in `CUtensorMapDataType`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Returns the bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U64 | Self::S64 | Self::F64 => 8,
            _ => 4,
        }
    }

    /// Returns the element in shared memory that a load makes of one in global memory: tf32 is rounded to the nearest,
    /// and others stay the same. Types without denormals keep them.
    pub(crate) fn loaded(self, bits: u64) -> u64 {
        const SIGN: u64 = 1 << 31;
        const INFINITY: u64 = 0x7f80_0000;
        match self {
            Self::Tf32 | Self::Tf32Ftz if bits & !SIGN > INFINITY => 0x7fff_e000,
            Self::Tf32 | Self::Tf32Ftz => (bits + 0xfff + (bits >> 13 & 1)) & 0xffff_e000,
            _ => bits,
        }
    }

    /// Returns the NaN outside of a tensor.
    pub(crate) fn nan(self) -> u64 {
        0x7ff7_7ff7_7ff7_7ff7 & (u64::MAX >> (64 - 8 * self.bytes()))
    }
}
