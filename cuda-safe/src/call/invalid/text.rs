//! The parts of texts of [`Invalid`](super::Invalid) that are computed.

use cuda_sys::CudaVersion;

/// Returns the label of an object, in quotes, or nothing if it has none.
#[inline]
pub(super) fn label(holder: &str) -> String {
    if holder.is_empty() { String::new() } else { format!(" \"{holder}\"") }
}

#[inline]
pub(super) fn by(holder: &str) -> String {
    if holder.is_empty() { String::new() } else { format!(" by \"{holder}\"") }
}

#[inline]
pub(super) fn because_of(node: Option<&str>) -> String {
    node.map_or(String::new(), |node| format!(" because of {node}"))
}

#[inline]
pub(super) fn coscheduled(size: u32) -> String {
    if size == 0 { String::new() } else { format!(", co-scheduled in sets of {size}") }
}

/// Returns the sizes of partitions, and why the SMs cannot be split into them.
#[inline]
pub(super) fn partitions(
    sizes: &[Option<u32>],
    sm_count: u32,
    single: Option<CudaVersion>,
) -> String {
    let size = |size: &Option<u32>| size.map_or("the rest".to_owned(), |n| n.to_string());
    let names: Vec<String> = sizes.iter().map(size).collect();
    let total: u64 = sizes.iter().flatten().map(|size| u64::from(*size)).sum();
    let why = match (u64::from(sm_count).checked_sub(total), single) {
        (None, _) => format!("they need {total} SMs"),
        (Some(0), _) if sizes.contains(&None) => "no SMs are left for the rest".to_owned(),
        (_, Some(driver)) => {
            format!("a partition of several groups needs CUDA 12.5; this driver offers {driver}")
        }
        (_, None) => "the sizes do not fit after rounding; SmResource::equal_splits returns sizes \
                      that are possible"
            .to_owned(),
    };
    format!("{}: {why}", names.join(", "))
}

#[inline]
pub(super) fn available(kernels: Option<&[String]>) -> String {
    match kernels {
        None => String::new(),
        Some([]) => ": the module has no kernels".to_owned(),
        Some(names) => format!("; available: {}", names.join(", ")),
    }
}

#[inline]
pub(super) fn missing_ranges(given: usize, existing: usize) -> String {
    if given == 0 {
        return "there are no ranges to join".to_owned();
    }
    format!(
        "cannot join {given} of the {existing} ranges of a pinned buffer: wait for the copies of \
         the other ranges and join all of them, or drop the others"
    )
}

#[inline]
pub(super) fn pitch(size: usize, pitch: Option<usize>) -> String {
    match pitch {
        None => format!(
            "pitched memory cannot have elements of {size} bytes: the driver aligns rows for \
             elements of 1, 2, 4, 8 and 16 bytes"
        ),
        Some(pitch) => format!(
            "a pitch of {pitch} bytes is too small, or is not a multiple of the element size of \
             {size} bytes"
        ),
    }
}

/// Returns the names of the handle types of a mask.
#[inline]
pub(super) fn handle_types(mask: u32) -> String {
    let kinds = [
        (1, "POSIX file descriptors"),
        (2, "Windows handles (WIN32)"),
        (4, "older Windows handles (WIN32_KMT)"),
        (8, "fabric handles"),
    ];
    let names = kinds.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name);
    match names.collect::<Vec<_>>() {
        names if names.is_empty() => format!("no known handle type ({mask:#x})"),
        names => names.join(", "),
    }
}

#[inline]
pub(super) fn alive(is_taken: bool) -> &'static str {
    match is_taken {
        false => {
            "is not freed: add a free node (Graph::add_free), instantiate with \
             auto_free_on_launch, or take the memory (ExecutableGraph::take_allocation) and drop \
             the buffer before the next launch"
        }
        true => {
            "belongs to a buffer (ExecutableGraph::take_allocation), or its release is deferred: \
             drop the buffer before the next launch"
        }
    }
}
