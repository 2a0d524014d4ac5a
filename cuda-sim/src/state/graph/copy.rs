//! Memcpy nodes.

use super::node::Kind;
use crate::exec::Work;
use crate::memory::{Kind as MemoryKind, Memory};
use crate::state::Answer;
use crate::state::INVALID;
use cuda_sys::CUmemorytype as Type;

/// One side of a copy, as `CUDA_MEMCPY3D` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) kind: Type,
    /// The position of the first byte, in bytes, rows and slices.
    pub(crate) at: [usize; 3],
    /// The address of host memory, which was exposed.
    pub(crate) host: usize,
    pub(crate) device: u64,
    /// The distance between rows in bytes.
    pitch: usize,
    /// The distance between slices in rows.
    rows: usize,
    /// The two distances as the caller gave them.
    pub(crate) given: [usize; 2],
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

/// What an executable graph cannot change of a side of a copy (measured): the type that the caller named,
/// and whether the memory is of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    kind: Type,
    is_of_pool: bool,
}

impl Side {
    /// Returns one side of a copy of `extent`. `distances` are the pitch and the number of rows of a slice;
    /// 0 stands for the smallest ones. Fails if rows or slices overlap (measured, also for a single row). The
    /// offset in a row of pool memory does not count.
    pub(crate) fn new(
        memory: &Memory,
        kind: Type,
        [host, device]: [u64; 2],
        at: [usize; 3],
        distances: [usize; 2],
        extent: [usize; 3],
    ) -> Answer<Self> {
        let holder = memory.containing(device).map(|(_, its)| its.kind);
        let is_of_pool =
            kind != Type::CU_MEMORYTYPE_HOST && matches!(holder, Some(MemoryKind::Ordered { .. }));
        let distance = |axis: usize| {
            let end = at[axis].checked_add(extent[axis]);
            let end = end.ok_or(INVALID)?;
            let least = match axis == 0 && is_of_pool {
                true => extent[axis],
                false => end,
            };
            match distances[axis] {
                0 => Ok(end),
                given if given >= least => Ok(given),
                _ => Err(INVALID),
            }
        };
        Ok(Self {
            kind,
            at,
            host: usize::try_from(host).unwrap_or(usize::MAX),
            device,
            pitch: distance(0)?,
            rows: distance(1)?,
            given: distances,
        })
    }

    fn line(kind: Type, address: u64, len: usize) -> Self {
        let is_host = kind == Type::CU_MEMORYTYPE_HOST;
        Self {
            kind,
            at: [0; 3],
            host: if is_host { address as usize } else { 0 },
            device: if is_host { 0 } else { address },
            pitch: len,
            rows: 1,
            given: [0; 2],
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
        let [first_x, first_y, first_z] = self.at;
        let rows = (first_z.saturating_add(z))
            .saturating_mul(self.rows)
            .saturating_add(first_y.saturating_add(y));
        let offset = rows.saturating_mul(self.pitch).saturating_add(first_x);
        base.saturating_add(offset as u64)
    }

    /// Returns whether this is host memory, according to the type that the caller named, or to the address if it is
    /// the unified type. Managed memory is memory of a device then.
    pub(crate) fn is_host(&self, memory: &Memory) -> bool {
        match self.kind {
            Type::CU_MEMORYTYPE_HOST => true,
            Type::CU_MEMORYTYPE_UNIFIED => memory.on_host(self.start()).is_some(),
            _ => false,
        }
    }

    pub(crate) fn class(&self, memory: &Memory) -> Class {
        let start = self.start();
        let holder = memory.containing(start).map(|(_, its)| its.kind);
        let is_of_pool = match holder {
            Some(MemoryKind::Ordered { .. }) => true,
            Some(MemoryKind::Plain) => false,
            None => memory.is_reserved(start, 1),
        };
        Class { kind: self.kind, is_of_pool: is_of_pool && self.kind != Type::CU_MEMORYTYPE_HOST }
    }
}

/// Returns the address on the host of what the caller named as host memory.
fn host_address(memory: &Memory, address: u64) -> usize {
    let address_on_host = memory.on_host(address);
    address_on_host.unwrap_or(usize::try_from(address).unwrap_or(usize::MAX))
}

impl CopyNode {
    fn line(from: Side, to: Side, len: usize) -> Self {
        Self { from, to, extent: [len, 1, 1], is_pinned: false, context: 0 }
    }

    pub(crate) fn to_device(to: u64, from: usize, len: usize, is_pinned: bool) -> Self {
        let from = Side::line(Type::CU_MEMORYTYPE_HOST, from as u64, len);
        let copy = Self::line(from, Side::line(Type::CU_MEMORYTYPE_DEVICE, to, len), len);
        Self { is_pinned, ..copy }
    }

    pub(crate) fn to_host(to: usize, from: u64, len: usize, is_pinned: bool) -> Self {
        let to = Side::line(Type::CU_MEMORYTYPE_HOST, to as u64, len);
        let copy = Self::line(Side::line(Type::CU_MEMORYTYPE_DEVICE, from, len), to, len);
        Self { is_pinned, ..copy }
    }

    pub(crate) fn on_device(to: u64, from: u64, len: usize) -> Self {
        let side = |address| Side::line(Type::CU_MEMORYTYPE_DEVICE, address, len);
        Self::line(side(from), side(to), len)
    }

    /// Returns a copy between any two addresses.
    pub(crate) fn unified(to: u64, from: u64, len: usize) -> Self {
        let side = |address| Side::line(Type::CU_MEMORYTYPE_UNIFIED, address, len);
        Self::line(side(from), side(to), len)
    }

    /// Returns the node that is added now, which keeps whether its host memory is pinned.
    pub(crate) fn added(mut self, memory: &Memory) -> Kind {
        self.is_pinned = !self.is_pageable(memory);
        Kind::Copy(Box::new(self))
    }

    /// Returns whether there is nothing to copy.
    pub(crate) fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    /// Returns, for the source and the target, whether it is host memory.
    pub(crate) fn hosts(&self, memory: &Memory) -> [bool; 2] {
        [self.from.is_host(memory), self.to.is_host(memory)]
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
        let must_be_pinned = self.is_pinned || on_device;
        let hosts = self.hosts(memory);
        let len = self.extent[0];
        let row = |(from, to): (u64, u64)| {
            let host = host_address(memory, if hosts[0] { from } else { to });
            let is_pinned = must_be_pinned || memory.is_pinned(host, len);
            match hosts {
                [true, true] => Work::CopyOnHost {
                    from: host,
                    to: host_address(memory, to),
                    len,
                    must_be_pinned,
                },
                [true, false] if is_pinned => Work::CopyInPinned { to, from: host, len },
                [true, false] => Work::CopyInHost { to, from: host, len },
                [false, true] if is_pinned => Work::CopyOut { from, to: host, len },
                [false, true] => Work::CopyOutHost { from, to: host, len },
                [false, false] => Work::CopyOnDevice { from, to, len },
            }
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
            let is_pinned = || memory.is_pinned(host_address(memory, side.start()), len);
            side.is_host(memory) && !is_pinned()
        })
    }
}
