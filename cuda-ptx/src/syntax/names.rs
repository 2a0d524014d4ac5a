//! The names of types, state spaces and linkage in PTX.

use super::{Linkage, Space, Type};

impl Type {
    /// Each type.
    pub const ALL: [Self; 24] = [
        Self::B8,
        Self::B16,
        Self::B32,
        Self::B64,
        Self::B128,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::S8,
        Self::S16,
        Self::S32,
        Self::S64,
        Self::F16,
        Self::F16x2,
        Self::Bf16,
        Self::Bf16x2,
        Self::F32,
        Self::F32x2,
        Self::F64,
        Self::Pred,
        Self::TexRef,
        Self::SamplerRef,
        Self::SurfRef,
    ];

    /// Returns the name in PTX, without the period.
    pub const fn name(self) -> &'static str {
        match self {
            Self::B8 => "b8",
            Self::B16 => "b16",
            Self::B32 => "b32",
            Self::B64 => "b64",
            Self::B128 => "b128",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::S8 => "s8",
            Self::S16 => "s16",
            Self::S32 => "s32",
            Self::S64 => "s64",
            Self::F16 => "f16",
            Self::F16x2 => "f16x2",
            Self::Bf16 => "bf16",
            Self::Bf16x2 => "bf16x2",
            Self::F32 => "f32",
            Self::F32x2 => "f32x2",
            Self::F64 => "f64",
            Self::Pred => "pred",
            Self::TexRef => "texref",
            Self::SamplerRef => "samplerref",
            Self::SurfRef => "surfref",
        }
    }

    /// Returns the type with a name, which has no period.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.name() == name)
    }
}

impl Space {
    /// Each state space.
    pub const ALL: [Self; 8] = [
        Self::Register,
        Self::SpecialRegister,
        Self::Const,
        Self::Global,
        Self::Local,
        Self::Param,
        Self::Shared,
        Self::Texture,
    ];

    /// Returns the name in PTX, without the period.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Register => "reg",
            Self::SpecialRegister => "sreg",
            Self::Const => "const",
            Self::Global => "global",
            Self::Local => "local",
            Self::Param => "param",
            Self::Shared => "shared",
            Self::Texture => "tex",
        }
    }

    /// Returns the state space with a name, which has no period.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|space| space.name() == name)
    }
}

impl Linkage {
    /// Returns the directive in PTX, without the period, or `None` for a symbol of its module.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Internal => None,
            Self::Extern => Some("extern"),
            Self::Visible => Some("visible"),
            Self::Weak => Some("weak"),
            Self::Common => Some("common"),
        }
    }
}
