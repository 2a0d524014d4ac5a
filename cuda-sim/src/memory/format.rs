//! The formats of texels.

/// How the numbers of a texel are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Unsigned,
    Signed,
    Half,
    Float,
    /// Blocks of 4 x 4 texels that are compressed, or packed numbers. They can be copied but not sampled.
    Opaque,
}

/// A format with its number of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// As in C.
    pub(crate) code: u32,
    pub(crate) channels: u32,
    pub(crate) number: Number,
    /// Size of a texel, or of a block of texels, in bytes.
    pub(crate) bytes: usize,
    /// Width and height of a block.
    pub(crate) block: usize,
    /// Whether the format itself makes integers fractions.
    pub(crate) is_normalized: bool,
    pub(crate) is_srgb: bool,
}

impl Format {
    /// Returns a format, if it has this number of channels (measured on an H200). The formats of video are
    /// not simulated.
    pub(crate) fn of(code: u32, channels: u32) -> Option<Self> {
        let plain = |number, size: usize| Self {
            code,
            channels,
            number,
            bytes: size * channels as usize,
            block: 1,
            is_normalized: false,
            is_srgb: false,
        };
        let fixed = |number, size, count| (plain(number, size), count);
        let (format, needed) = match code {
            1 => (plain(Number::Unsigned, 1), 0),
            2 => (plain(Number::Unsigned, 2), 0),
            3 => (plain(Number::Unsigned, 4), 0),
            8 => (plain(Number::Signed, 1), 0),
            9 => (plain(Number::Signed, 2), 0),
            10 => (plain(Number::Signed, 4), 0),
            16 => (plain(Number::Half, 2), 0),
            32 => (plain(Number::Float, 4), 0),
            80 => fixed(Number::Opaque, 1, 4),
            192..=194 => fixed(Number::Unsigned, 1, 1 << (code - 192)),
            195..=197 => fixed(Number::Unsigned, 2, 1 << (code - 195)),
            198..=200 => fixed(Number::Signed, 1, 1 << (code - 198)),
            201..=203 => fixed(Number::Signed, 2, 1 << (code - 201)),
            145..=158 => {
                let (count, bytes) = match code {
                    145 | 146 => (4, 8),
                    151 | 152 => (1, 8),
                    153 | 154 => (2, 16),
                    155 | 156 => (3, 16),
                    _ => (4, 16),
                };
                let block = Self {
                    bytes,
                    block: 4,
                    is_srgb: matches!(code, 146 | 148 | 150 | 158),
                    ..plain(Number::Opaque, 1)
                };
                (block, count)
            }
            _ => return None,
        };
        let is_right = match needed {
            0 => matches!(channels, 1 | 2 | 4),
            needed => channels == needed,
        };
        let is_normalized = (192..=203).contains(&code);
        is_right.then_some(Self { is_normalized, ..format })
    }

    /// Returns whether the format is one of plain numbers, which also linear memory can have.
    pub(crate) fn is_plain(&self) -> bool {
        self.code <= 32
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.block > 1
    }

    /// Returns whether texels are integers of 32 bits, which are never fractions.
    pub(crate) fn is_wide_integer(&self) -> bool {
        matches!(self.code, 3 | 10)
    }

    /// Returns the number of bytes of a row, and the number of rows.
    pub(crate) fn rows(&self, width: usize, height: usize) -> (usize, usize) {
        let columns = width.div_ceil(self.block);
        (columns * self.bytes, height.max(1).div_ceil(self.block))
    }

    /// Returns the channels of a texel. Channels that the format lacks are zero.
    pub(crate) fn decode(&self, texel: &[u8], as_integers: bool) -> [f64; 4] {
        let mut channels = [0.0; 4];
        let size = self.bytes / (self.channels as usize).max(1);
        let is_fraction = self.is_normalized || (!as_integers && size < 4);
        for (channel, bytes) in channels.iter_mut().zip(texel.chunks_exact(size)) {
            let mut word = [0; 4];
            word[..size].copy_from_slice(bytes);
            let word = u32::from_le_bytes(word);
            let unused = 32 - 8 * size;
            *channel = match self.number {
                Number::Unsigned if is_fraction => f64::from(word) / f64::from(u32::MAX >> unused),
                Number::Unsigned => f64::from(word),
                Number::Signed => {
                    #[allow(clippy::cast_possible_wrap, reason = "the same bits")]
                    let value = f64::from((word << unused) as i32 >> unused);
                    let largest = f64::from(i32::MAX >> unused);
                    if is_fraction { (value / largest).max(-1.0) } else { value }
                }
                Number::Half => half(word),
                Number::Float => f64::from(f32::from_bits(word)),
                Number::Opaque => 0.0,
            };
        }
        channels
    }
}

/// Returns the value of a number of half precision.
fn half(bits: u32) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (bits >> 10 & 0x1f, f64::from(bits & 0x3ff) / 1024.0);
    sign * match exponent {
        0 => fraction * 2f64.powi(-14),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        #[allow(clippy::cast_possible_wrap, reason = "at most 30")]
        exponent => (1.0 + fraction) * 2f64.powi(exponent as i32 - 15),
    }
}
