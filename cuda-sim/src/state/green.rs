//! The resources of green contexts.

/// The part of a resource that is internal to the driver. It identifies the SMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) device: u32,
    /// The id of the split, or 0 if the resource is not from a split.
    pub(crate) split: u32,
    /// The number of SMs that the driver reports. It is larger if groups overlap.
    pub(crate) count: u32,
    /// The id of the green context that the resource is a part of, or 0 for the device.
    pub(crate) within: u32,
    /// The number of SMs that run a cluster together.
    pub(crate) alignment: u32,
    /// The flags of the request in an exact split.
    pub(crate) flags: u32,
    pub(crate) domain: u32,
    /// Whether it is the remainder of a split.
    pub(crate) is_remainder: bool,
    /// One bit for each SM.
    pub(crate) sms: [u32; WORDS],
}

/// The resources of a green context to be created.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    pub(crate) groups: Vec<Group>,
    pub(crate) queues: Queues,
}

/// Enough words for the SMs of every simulated GPU.
pub(crate) const WORDS: usize = 8;

/// The work queues of a green context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queues {
    Own {
        limit: u32,
        scope: u32,
    },
    /// The queues of another green context, by its id.
    Of(u64),
}
