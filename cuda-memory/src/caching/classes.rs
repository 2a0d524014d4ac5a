//! Size classes of cached blocks. Sizes up to 4 KiB are rounded up to a multiple of 512 bytes. Above
//! that, each power of two is followed by eight classes, so rounding adds at most an eighth. Sizes above
//! 1 MiB have no class; they are rounded up by at most an eighth and less than 2 MiB.

/// All sizes are multiples of this, and so are the addresses of blocks.
pub(super) const GRAIN: u64 = 512;
/// The number of classes.
pub(super) const COUNT: usize = 72;
/// The largest size that has a class. Larger blocks are cached in the heap only: a per-thread cache
/// neither splits nor merges blocks, so a few large blocks would hold much memory that no other
/// allocation can use.
pub(super) const LARGEST: u64 = 1 << 20;
/// The largest unit to which sizes without a class are rounded. The unit is smaller if this would add
/// more than an eighth.
pub(super) const LARGE_GRAIN: u64 = 2 << 20;
/// The value of [`class_of`] for a size that has no class.
pub(super) const NONE: u8 = u8::MAX;

/// Up to this size there is a class for each multiple of [`GRAIN`].
const FINE: u64 = 8 * GRAIN;

/// Returns the class of a size of at least one byte, or [`NONE`] if it is larger than [`LARGEST`].
#[inline]
pub(super) fn class_of(size: u64) -> u8 {
    let index = if size <= FINE {
        size.div_ceil(GRAIN) - 1
    } else if size <= LARGEST {
        let last = size - 1;
        let exponent = u64::from(last.ilog2());
        8 + (exponent - 12) * 8 + (last >> (exponent - 3) & 7)
    } else {
        return NONE;
    };
    // The index is at most 71.
    index as u8
}

/// Returns the size of the blocks of a class.
#[inline]
pub(super) fn size_of_class(class: u8) -> u64 {
    let class = u64::from(class);
    if class < 8 {
        return (class + 1) * GRAIN;
    }
    let (doubling, step) = ((class - 8) / 8, class % 8);
    (9 + step) << (doubling + 9)
}

/// Returns the size of the block for a request of `size` bytes, or `None` if that size overflows.
#[inline]
pub(super) fn rounded(size: u64) -> Option<u64> {
    match class_of(size) {
        NONE => {
            let eighth = 1 << ((size - 1).ilog2() - 3);
            size.checked_next_multiple_of(LARGE_GRAIN.min(eighth))
        }
        class => Some(size_of_class(class)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_dense_and_lose_at_most_an_eighth() {
        assert_eq!(class_of(1), 0);
        assert_eq!(class_of(LARGEST) as usize, COUNT - 1);
        assert_eq!(class_of(LARGEST + 1), NONE);
        let mut before = 0;
        for class in 0..COUNT as u8 {
            let size = size_of_class(class);
            assert!(size > before && size % GRAIN == 0, "{class}: {size}");
            assert_eq!(class_of(size), class);
            assert_eq!(class_of(before + 1), class);
            assert!(size <= FINE || size - before <= before / 8, "{class}: {size}");
            before = size;
        }
        assert_eq!(before, LARGEST);
    }

    #[test]
    fn larger_sizes_lose_at_most_an_eighth_and_2_mib() {
        for size in [LARGEST + 1, 3 << 20, (5 << 20) + 1, 32 << 20, (33 << 20) - 1, 1 << 40] {
            let rounded = rounded(size).expect("an address");
            assert!(rounded >= size && rounded - size <= (size / 8).min(LARGE_GRAIN), "{size}");
            assert_eq!(super::rounded(rounded), Some(rounded));
            assert_eq!(rounded % GRAIN, 0, "{size}");
        }
        assert_eq!(rounded(LARGEST + 1), Some(LARGEST + LARGEST / 8));
        assert_eq!(rounded((32 << 20) + 1), Some((32 << 20) + LARGE_GRAIN));
        assert_eq!(rounded(u64::MAX), None);
    }
}
