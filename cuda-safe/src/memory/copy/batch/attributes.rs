//! Attributes of copies in a batch.

use crate::call::c_enum;
use crate::memory::MemoryLocation;
use cuda_sys::{CUmemLocation, CUmemcpyAttributes, CUmemcpyFlags, CUmemcpySrcAccessOrder};

/// Attributes of copies in a [`CopyBatch`](crate::memory::CopyBatch) (`CUmemcpyAttributes`).
///
/// [`CopyBatch::set_attributes`](crate::memory::CopyBatch::set_attributes) sets them.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CopyAttributes {
    /// When a copy reads pinned memory. The default is [`SourceOrder::Stream`].
    pub pinned_source: SourceOrder,
    /// A hint: where the source is expected to be, if it is managed memory or memory of the host that
    /// the device can access. The driver may ignore it. The default is none.
    pub source_location: Option<MemoryLocation>,
    /// A hint: where the target should be, if it is managed memory or memory of the host that the
    /// device can access. The driver may ignore it. The default is none.
    pub target_location: Option<MemoryLocation>,
    /// A hint: whether the copy should run beside kernels, also if it is then slower. The driver may
    /// ignore it. The default is false.
    pub overlap_with_compute: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

c_enum! {
    /// When a copy of a [`CopyBatch`](crate::memory::CopyBatch) reads a source in pinned memory
    /// (`CUmemcpySrcAccessOrder`).
    ///
    /// The order of other sources follows from their kind. Device memory is always read in stream order. A
    /// slice is read during the call, or in stream order if it is larger than 64 KiB.
    #[derive(Default)]
    #[non_exhaustive]
    pub enum SourceOrder = CUmemcpySrcAccessOrder {
        /// After earlier work on the stream.
        #[default]
        Stream = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        /// At any time, also before earlier work on the stream has completed.
        Any = CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
    }
}

/// How a copy accesses its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    order: CUmemcpySrcAccessOrder,
    attributes: CopyAttributes,
}

impl CopyAttributes {
    #[inline]
    pub(crate) fn of_device_source(self) -> Access {
        self.with_order(CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
    }

    #[inline]
    pub(super) fn of_pinned_source(self) -> Access {
        self.with_order(self.pinned_source.raw())
    }

    /// Returns the access of a source that the driver reads during the call.
    #[inline]
    pub(super) fn of_small_slice(self) -> Access {
        self.with_order(CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
    }

    #[inline]
    fn with_order(self, order: CUmemcpySrcAccessOrder) -> Access {
        Access { order, attributes: self }
    }
}

impl Access {
    #[inline]
    pub(crate) fn order(&self) -> CUmemcpySrcAccessOrder {
        self.order
    }

    #[inline]
    pub(crate) fn source(&self) -> CUmemLocation {
        location(self.attributes.source_location)
    }

    #[inline]
    pub(crate) fn target(&self) -> CUmemLocation {
        location(self.attributes.target_location)
    }

    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        if self.attributes.overlap_with_compute {
            CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE.0
        } else {
            CUmemcpyFlags::CU_MEMCPY_FLAG_DEFAULT.0
        }
    }

    #[inline]
    pub(super) fn raw(&self) -> CUmemcpyAttributes {
        CUmemcpyAttributes {
            srcAccessOrder: self.order(),
            srcLocHint: self.source(),
            dstLocHint: self.target(),
            flags: self.flags(),
        }
    }
}

#[inline]
fn location(hint: Option<MemoryLocation>) -> CUmemLocation {
    hint.map_or_else(CUmemLocation::default, MemoryLocation::raw)
}
