//! The formats of texels.

use super::srgb;
use crate::number::convert::{f16_to_f32, f32_to_f16};

/// How the numbers of texels are stored and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Unsigned integers.
    Unsigned,
    /// Signed integers.
    Signed,
    /// Unsigned integers that are read as fractions from 0 to 1.
    UnsignedFraction,
    /// Signed integers that are read as fractions from −1 to 1.
    SignedFraction,
    /// Floating-point numbers.
    Float,
}

/// The format of a texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// How the numbers are stored and read.
    pub number: Number,
    /// The bits of a channel: 8, 16 or 32.
    pub bits: u32,
    /// The number of channels: 1, 2 or 4.
    pub channels: u32,
    /// Whether the first three channels are sRGB.
    pub is_srgb: bool,
}

impl Format {
    /// Returns the bytes of a texel.
    pub fn bytes(&self) -> u32 {
        self.bits / 8 * self.channels
    }

    /// Returns whether texels are read as integers.
    pub fn is_integer(&self) -> bool {
        matches!(self.number, Number::Unsigned | Number::Signed)
    }

    /// Returns the bits of the channels of a texel, which are integers, or numbers of f32. Channels that the format
    /// lacks are 0.
    pub(crate) fn decode(&self, texel: u128) -> [u32; 4] {
        std::array::from_fn(|channel| {
            let channel = channel as u32;
            if channel >= self.channels {
                return 0;
            }
            let unused = 32 - self.bits;
            let word = (texel >> (channel * self.bits)) as u32 & u32::MAX >> unused;
            let signed = (word << unused) as i32 >> unused;
            match self.number {
                Number::Unsigned => word,
                Number::Signed => signed as u32,
                Number::UnsignedFraction if self.is_curved(channel) => {
                    srgb::linear(word as u8).to_bits()
                }
                Number::UnsignedFraction => {
                    let fraction = f64::from(word) / f64::from(u32::MAX >> unused);
                    (fraction as f32).to_bits()
                }
                Number::SignedFraction => {
                    let fraction = f64::from(signed) / f64::from(i32::MAX >> unused);
                    (fraction.max(-1.0) as f32).to_bits()
                }
                Number::Float if self.bits == 16 => f16_to_f32(word as u16),
                Number::Float => word,
            }
        })
    }

    /// Returns whether a channel is sRGB.
    pub(super) fn is_curved(&self, channel: u32) -> bool {
        self.is_srgb && channel < 3 && self.bits == 8 && (self.channels, channel) != (2, 1)
    }

    /// Returns the texel of a border, as a GPU stores it.
    pub(crate) fn border(&self, color: [f32; 4]) -> u128 {
        let bits = color.map(f32::to_bits);
        if !self.is_integer() {
            return self.encode(bits);
        }
        // The lowest bits of the number are the integer.
        let unused = 32 - self.bits;
        (0..self.channels).zip(bits).fold(0, |texel, (channel, bits)| {
            texel | u128::from(bits & u32::MAX >> unused) << (channel * self.bits)
        })
    }

    /// Returns the texel with these channels: integers, or numbers of f32.
    pub(crate) fn encode(&self, channels: [u32; 4]) -> u128 {
        let mut texel = 0;
        for (channel, value) in (0..self.channels).zip(channels) {
            let unused = 32 - self.bits;
            let (least, greatest) = (i32::MIN >> unused, i32::MAX >> unused);
            let float = f64::from(f32::from_bits(value));
            let word = match self.number {
                Number::Unsigned => value.min(u32::MAX >> unused),
                Number::Signed => (value as i32).clamp(least, greatest) as u32,
                Number::UnsignedFraction if self.is_curved(channel) => {
                    u32::from(srgb::nearest(f32::from_bits(value)))
                }
                // A conversion turns NaN into 0.
                Number::UnsignedFraction => {
                    let scaled = cut(float.clamp(0.0, 1.0), self.bits + 4);
                    libm::ceil(scaled * f64::from(u32::MAX >> unused) - 0.5) as u32
                }
                Number::SignedFraction => {
                    let scaled =
                        cut(float.abs().clamp(0.0, 1.0), self.bits + 3) * f64::from(greatest);
                    let size = libm::ceil(scaled - 0.5) as i32;
                    (if float < 0.0 { -size } else { size }) as u32
                }
                Number::Float if self.bits == 16 => u32::from(cut_to_f16(value)),
                Number::Float => value,
            };
            texel |= u128::from(word & u32::MAX >> unused) << (channel * self.bits);
        }
        texel
    }
}

/// Cuts off the bits of a positive number after the first ones of its fraction.
fn cut(number: f64, bits: u32) -> f64 {
    let steps = f64::from(1u32 << bits);
    libm::floor(number * steps) / steps
}

/// Returns the half that is nearest to a single, of those that are not farther from zero.
fn cut_to_f16(bits: u32) -> u16 {
    if f32::from_bits(bits).is_nan() {
        return 0x7e00;
    }
    let nearest = f32_to_f16(bits);
    let is_above = f32::from_bits(f16_to_f32(nearest)).abs() > f32::from_bits(bits).abs();
    if is_above { nearest - 1 } else { nearest }
}
