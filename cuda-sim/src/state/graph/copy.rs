//! Memcpy nodes.

use crate::exec::Work;
use crate::memory::{Kind, Memory};
use cuda_sys::CUmemorytype as Type;

/// One side of a copy, as `CUDA_MEMCPY3D` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) kind: Type,
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    /// The address of host memory, which was exposed.
    pub(crate) host: usize,
    pub(crate) device: u64,
    pub(crate) pitch: usize,
    pub(crate) rows: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyNode {
    pub(crate) from: Side,
    pub(crate) to: Side,
    /// Width in bytes, height and depth.
    pub(crate) extent: [usize; 3],
    /// Whether the host memory was pinned when the node was added. If it is not any more, the copy fails
    /// when it runs (measured).
    pub(crate) is_pinned: bool,
    /// The context that the caller named.
    pub(crate) context: usize,
}

/// The kinds of memory among which an executable graph cannot change a side of a copy (measured).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Host,
    Device,
    Pool,
}

impl Side {
    fn host(address: usize, pitch: usize) -> Self {
        Self {
            kind: Type::CU_MEMORYTYPE_HOST,
            x: 0,
            y: 0,
            z: 0,
            host: address,
            device: 0,
            pitch,
            rows: 1,
        }
    }

    fn device(address: u64, pitch: usize) -> Self {
        Self {
            kind: Type::CU_MEMORYTYPE_DEVICE,
            host: 0,
            device: address,
            ..Self::host(0, pitch)
        }
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.row(0, 0)
    }

    /// Returns the address of a row. An address that overflows belongs to no memory.
    pub(crate) fn row(&self, y: usize, z: usize) -> u64 {
        let base = match self.kind {
            Type::CU_MEMORYTYPE_HOST => self.host as u64,
            _ => self.device,
        };
        let rows = (self.z.saturating_add(z))
            .saturating_mul(self.rows)
            .saturating_add(self.y.saturating_add(y));
        let offset = rows.saturating_mul(self.pitch).saturating_add(self.x);
        base.saturating_add(offset as u64)
    }

    /// Returns whether the caller named host memory by its host address. Memory of the unified type is
    /// that of its address.
    pub(crate) fn is_host(&self, memory: &Memory) -> bool {
        match self.kind {
            Type::CU_MEMORYTYPE_HOST => true,
            Type::CU_MEMORYTYPE_UNIFIED => {
                let start = self.start();
                let is_device = memory.containing(start).is_some() || memory.is_virtual(start);
                !is_device && !memory.is_reserved(start, 1)
            }
            _ => false,
        }
    }

    pub(crate) fn class(&self, memory: &Memory) -> Class {
        if self.is_host(memory) {
            return Class::Host;
        }
        let holder = memory.containing(self.start()).map(|(_, its)| its.kind);
        match holder {
            Some(Kind::Ordered { .. }) => Class::Pool,
            None if memory.is_reserved(self.start(), 1) => Class::Pool,
            _ => Class::Device,
        }
    }
}

impl CopyNode {
    fn line(from: Side, to: Side, len: usize) -> Self {
        Self {
            from,
            to,
            extent: [len, 1, 1],
            is_pinned: false,
            context: 0,
        }
    }

    pub(crate) fn to_device(to: u64, from: usize, len: usize, is_pinned: bool) -> Self {
        let copy = Self::line(Side::host(from, len), Side::device(to, len), len);
        Self { is_pinned, ..copy }
    }

    pub(crate) fn to_host(to: usize, from: u64, len: usize, is_pinned: bool) -> Self {
        let copy = Self::line(Side::device(from, len), Side::host(to, len), len);
        Self { is_pinned, ..copy }
    }

    pub(crate) fn on_device(to: u64, from: u64, len: usize) -> Self {
        Self::line(Side::device(from, len), Side::device(to, len), len)
    }

    /// Returns the starts of each row on both sides.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u64, u64)> {
        let [_, height, depth] = self.extent;
        let rows = (0..depth).flat_map(move |z| (0..height).map(move |y| (y, z)));
        rows.map(|(y, z)| (self.from.row(y, z), self.to.row(y, z)))
    }

    /// Returns the number of dimensions.
    pub(crate) fn dimensions(&self) -> usize {
        match self.extent {
            [_, 1, 1] => 1,
            [_, _, 1] => 2,
            _ => 3,
        }
    }

    /// Returns the copy as work. Host memory may have been pinned since the node was added. On the device
    /// (`on_device`), which cannot copy pageable memory, the copy fails if it is not pinned when it runs.
    pub(crate) fn work(&self, memory: &Memory, on_device: bool) -> Work {
        let is_pinned = self.is_pinned || on_device;
        let hosts = (self.from.is_host(memory), self.to.is_host(memory));
        let len = self.extent[0];
        let address = |host: u64| usize::try_from(host).unwrap_or(usize::MAX);
        let row = |(from, to): (u64, u64)| match hosts {
            (true, _) if is_pinned || memory.is_pinned(address(from), len) => Work::CopyInPinned {
                to,
                from: address(from),
                len,
            },
            (true, _) => Work::CopyInHost {
                to,
                from: address(from),
                len,
            },
            (_, true) if is_pinned || memory.is_pinned(address(to), len) => Work::CopyOut {
                from,
                to: address(to),
                len,
            },
            (_, true) => Work::CopyOutHost {
                from,
                to: address(to),
                len,
            },
            (false, false) => Work::CopyOnDevice { from, to, len },
        };
        let mut rows: Vec<Work> = self.rows().map(row).collect();
        match rows.len() {
            1 => rows.swap_remove(0),
            _ => Work::All(rows),
        }
    }

    /// Returns whether a side is host memory that is not pinned now.
    pub(crate) fn is_pageable(&self, memory: &Memory) -> bool {
        let len = self.extent[0];
        [&self.from, &self.to].into_iter().any(|side| {
            let start = usize::try_from(side.start()).unwrap_or(usize::MAX);
            side.is_host(memory) && !memory.is_pinned(start, len)
        })
    }
}
