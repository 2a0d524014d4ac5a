//! Launches of the kernels that communicate without locks, with their results. The tests of `cuda-ptx` run them on the
//! engine, and those of the workspace on the software driver.

/// The kernels. Tests replace lines to plant errors.
pub(crate) const PTX: &str = include_str!("lockfree.ptx");

/// A launch of a kernel with arrays and numbers.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) kernel: &'static str,
    /// The number of blocks, and of threads of each.
    pub(crate) shape: (u32, u32),
    pub(crate) arrays: &'static [&'static [u32]],
    /// The numbers, which follow the arrays.
    pub(crate) numbers: &'static [u32],
    /// The index of an array, and its elements after the launch.
    pub(crate) result: (usize, &'static [u32]),
}

pub(crate) const SCAN: Case = Case {
    kernel: "scan",
    shape: (4, 2),
    arrays: &[&[1, 2, 4, 8, 16, 32, 64, 128], &[0; 8], &[0; 4], &[0; 4], &[0; 4], &[0]],
    numbers: &[],
    result: (1, &[1, 3, 7, 15, 31, 63, 127, 255]),
};

pub(crate) const QUEUE: Case = Case {
    kernel: "queue",
    shape: (8, 1),
    arrays: &[&[0, 1], &[9, 9], &[0, 0], &[0; 10]],
    numbers: &[],
    // Wrong values are counted too.
    result: (3, &[1, 1, 1, 1, 0, 0, 0, 0, 0, 0]),
};

pub(crate) const EXCHANGE: Case = Case {
    kernel: "exchange",
    shape: (3, 2),
    arrays: &[&[0; 6], &[0], &[0; 6]],
    numbers: &[2],
    // The phases 0 and 2, and twice the number of the other thread.
    result: (2, &[6, 8, 10, 12, 2, 4]),
};

/// Returns the kernels with another text in place of a line.
pub(crate) fn changed(line: &str, text: &str) -> String {
    assert_eq!(PTX.matches(line).count(), 1, "{line}");
    PTX.replace(line, text)
}
