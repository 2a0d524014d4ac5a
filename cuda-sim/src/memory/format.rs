//! The formats of texels.

use cuda_ptx::texture;

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

    /// Returns the number of bytes of a row, and the number of rows.
    pub(crate) fn rows(&self, width: usize, height: usize) -> (usize, usize) {
        let columns = width.div_ceil(self.block);
        (columns * self.bytes, height.max(1).div_ceil(self.block))
    }

    /// Returns the format as kernels read it: integers of up to 16 bits are fractions, unless the texture wants
    /// integers. `None` for opaque formats.
    pub(crate) fn texel(&self, wants_integers: bool, is_srgb: bool) -> Option<texture::Format> {
        let bits = 8 * u32::try_from(self.bytes).ok()? / self.channels.max(1);
        let is_fraction = self.is_normalized || (!wants_integers && bits < 32);
        let number = match self.number {
            Number::Unsigned if is_fraction => texture::Number::UnsignedFraction,
            Number::Signed if is_fraction => texture::Number::SignedFraction,
            Number::Unsigned => texture::Number::Unsigned,
            Number::Signed => texture::Number::Signed,
            Number::Half | Number::Float => texture::Number::Float,
            Number::Opaque => return None,
        };
        Some(texture::Format { number, bits, channels: self.channels, is_srgb })
    }
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn opaque_formats_have_one_number_of_channels() {
        for (codes, expected) in [
            (80..=80, (4, 4)),
            (145..=146, (4, 8)),
            (147..=150, (4, 16)),
            (151..=152, (1, 8)),
            (153..=154, (2, 16)),
            (155..=156, (3, 16)),
            (157..=158, (4, 16)),
        ] {
            for code in codes {
                let of = |channels| Some((channels, Format::of(code, channels)?.bytes));
                let all: Vec<_> = (0..6).filter_map(of).collect();
                assert_eq!(all, [expected], "{code}");
            }
        }
    }
}
