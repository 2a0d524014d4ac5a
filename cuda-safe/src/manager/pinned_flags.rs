//! Flags of pinned memory.

use bitflags::bitflags;
use cuda_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE,
};

bitflags! {
    /// Flags of pinned memory (`CU_MEMHOSTALLOC_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PinnedFlags: u32 {
        /// Pinned for all contexts.
        const PORTABLE = CU_MEMHOSTALLOC_PORTABLE;
        /// Accessible to kernels.
        const MAPPED = CU_MEMHOSTALLOC_DEVICEMAP;
        /// Write-combined: reading it is slow for the host.
        const WRITE_COMBINED = CU_MEMHOSTALLOC_WRITECOMBINED;
        // Unknown flags of newer drivers are preserved.
        const _ = !0;
    }
}

// The flags of `cuMemHostRegister` have the same bits as those of `cuMemHostAlloc`.
const _: () = assert!(
    CU_MEMHOSTREGISTER_PORTABLE == CU_MEMHOSTALLOC_PORTABLE
        && CU_MEMHOSTREGISTER_DEVICEMAP == CU_MEMHOSTALLOC_DEVICEMAP
);

impl PinnedFlags {
    /// Returns the flags of `cuMemHostRegister`, where memory cannot become write-combined.
    #[inline]
    pub(crate) fn register_bits(self) -> u32 {
        (self & (Self::PORTABLE | Self::MAPPED)).bits()
    }
}
