//! Splits of multiprocessors (SMs) into groups.
//!
//! The group sizes of an H200 with driver 580 are recorded for every minimum and flag. The SMs of each
//! group are not recorded: groups get consecutive SMs from number 0 on, in order, and the remainder gets
//! the rest.

use super::Profile;
use cuda_sys::CudaVersion;

/// The minimum size of a group, and the step between sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granularity {
    pub(crate) min: u32,
    pub(crate) multiple: u32,
}

/// Returns the granularity by compute capability, according to NVIDIA's guide, for drivers that do not
/// report it.
pub(crate) fn granularity(profile: &Profile, ignore_coscheduling: bool) -> Granularity {
    let (min, multiple) = match profile.gpu.capability.0 {
        0..=6 if profile.driver < CudaVersion::new(13, 0) => (1, 1),
        0..=6 => (2, 2),
        7 => (2, 2),
        8 => (4, 2),
        _ if ignore_coscheduling => (2, 2),
        _ => (8, 8),
    };
    Granularity { min, multiple }
}

/// Returns the size and the maximum number of groups of a split by count.
pub(crate) fn split_by_count(
    profile: &Profile,
    sms: u32,
    min: u32,
    ignore_coscheduling: bool,
) -> (u32, u32) {
    let granularity = granularity(profile, ignore_coscheduling);
    let size = min.max(granularity.min).next_multiple_of(granularity.multiple);
    if size > sms {
        return (sms, 1);
    }
    let count = sms / size;
    // Recorded: an H200 returns one group of 8 SMs fewer than fit on the device.
    let whole_device = sms == profile.gpu.sms && profile.gpu.capability == (9, 0);
    if whole_device && !ignore_coscheduling && size == 8 {
        return (size, count - 1);
    }
    (size, count)
}

#[cfg(test)]
mod tests {
    use super::Profile;
    use super::split_by_count;

    #[test]
    fn an_h200_is_split_as_recorded() {
        let table = [
            (0, 8, 15),
            (1, 8, 15),
            (8, 8, 15),
            (9, 16, 8),
            (16, 16, 8),
            (17, 24, 5),
            (24, 24, 5),
            (25, 32, 4),
            (33, 40, 3),
            (48, 48, 2),
            (49, 56, 2),
            (57, 64, 2),
            (64, 64, 2),
            (69, 72, 1),
            (88, 88, 1),
            (121, 128, 1),
            (128, 128, 1),
            (129, 132, 1),
            (132, 132, 1),
        ];
        for (min, size, count) in table {
            let given = split_by_count(&Profile::h200(), 132, min, false);
            assert_eq!(given, (size, count), "minimum {min}");
        }
        let ignoring = [
            (0, 2, 66),
            (3, 4, 33),
            (5, 6, 22),
            (7, 8, 16),
            (9, 10, 13),
            (13, 14, 9),
            (25, 26, 5),
            (27, 28, 4),
            (69, 70, 1),
            (131, 132, 1),
        ];
        for (min, size, count) in ignoring {
            let given = split_by_count(&Profile::h200(), 132, min, true);
            assert_eq!(given, (size, count), "minimum {min}, ignoring co-scheduling");
        }
    }
}
