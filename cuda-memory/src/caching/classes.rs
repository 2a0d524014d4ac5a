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

    /// Returns the sizes of all classes, from the description of this module.
    fn sizes() -> Vec<u64> {
        let mut sizes: Vec<u64> = (1..=8).map(|multiple| multiple * 512).collect();
        let mut power = 4096;
        while power < 1 << 20 {
            sizes.extend((1..=8).map(|eighth| power + eighth * power / 8));
            power *= 2;
        }
        sizes
    }

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        let sizes = sizes();
        assert_eq!(sizes.len(), COUNT);
        let mut class = 0;
        for size in 1..=LARGEST {
            if size > sizes[class] {
                class += 1;
            }
            assert_eq!(class_of(size) as usize, class, "{size}");
            assert_eq!(rounded(size), Some(sizes[class]), "{size}");
        }
        println!("{LARGEST} cases");
    }

    #[test]
    fn sizes_around_all_eighths_of_powers_of_two_are_rounded_to_the_next_unit() {
        let mut cases = 0;
        for exponent in 20..64 {
            for eighths in 8..=16 {
                let exact = (1_u128 << exponent) / 8 * eighths;
                let edges =
                    [0, 1 << 20, 2 << 20].into_iter().flat_map(|unit| [exact, exact + unit]);
                for size in edges.flat_map(|edge| (0..7).map(move |near| edge + near - 3)) {
                    let Ok(given) = u64::try_from(size) else {
                        continue;
                    };
                    if given <= LARGEST {
                        continue;
                    }
                    // The power of two below the size.
                    let power = (0..64).map(|exponent| 1_u128 << exponent).rfind(|its| *its < size);
                    let unit = (power.expect("a power") / 8).min(2 << 20);
                    let expected = u64::try_from(size.div_ceil(unit) * unit).ok();
                    assert_eq!(rounded(given), expected, "{given}");
                    let added = expected.map_or(0, |its| its - given);
                    assert!(added <= given / 8 && added < 2 << 20, "{given}");
                    cases += 1;
                }
            }
        }
        println!("{cases} cases");
        assert_eq!(rounded(u64::MAX - (2 << 20) + 1), Some(u64::MAX - (2 << 20) + 1));
        assert_eq!(rounded(u64::MAX - (2 << 20) + 2), None);
    }
}
