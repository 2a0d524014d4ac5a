//! Memory of a manager: the driver calls of a manager.

use super::{On, Row, Stage, value};
use crate::prelude::*;
use cuda_safe::manager::PinnedMemory;

fn pinned() -> impl Iterator<Item = Row> {
    [("PORTABLE", PinnedFlags::PORTABLE, 1_u32), ("WRITECOMBINED", PinnedFlags::WRITE_COMBINED, 4)]
        .into_iter()
        .flat_map(|(name, flags, raw)| {
            let name = format!("CU_MEMHOSTALLOC::CU_MEMHOSTALLOC_{name}");
            let plain = move |s: &Stage| PinnedMemory::allocate(&s.context, 64, flags).map(drop);
            let mapped = move |s: &Stage| MappedMemory::allocate(&s.context, 64, flags).map(drop);
            [
                Row::new(&name, plain, "cuMemHostAlloc", value("flags"), raw),
                Row::new(&name, mapped, "cuMemHostAlloc", value("flags"), raw | 2),
            ]
        })
}

/// The same with buffers, whose memory a manager allocates.
fn buffers() -> impl Iterator<Item = Row> {
    let none = PinnedOptions { portable: false, ..Default::default() };
    let combined = PinnedOptions { write_combined: true, ..none };
    let mapped = PinnedOptions { mapped: true, ..none };
    [
        ("PORTABLE", PinnedOptions::default(), 1_u32),
        ("DEVICEMAP", mapped, 2),
        ("WRITECOMBINED", combined, 4),
    ]
    .into_iter()
    .map(|(name, options, raw)| {
        let name = format!("CU_MEMHOSTALLOC::CU_MEMHOSTALLOC_{name}");
        let act =
            move |s: &Stage| PinnedBuffer::<u8>::zeroed_with(&s.context, 64, options).map(drop);
        Row::new(&name, act, "cuMemHostAlloc", value("flags"), raw)
    })
}

fn pin(s: &Stage, flags: PinnedFlags, is_mapped: bool) -> Result<()> {
    let owner = vec![0_u8; 64];
    let start = NonNull::new(owner.as_ptr().cast_mut()).expect("no null");
    if is_mapped {
        // SAFETY: the owner has this many bytes at this address.
        unsafe { MappedMemory::pin(&s.context, owner, start, 64, flags) }.map(drop)
    } else {
        // SAFETY: as above.
        unsafe { PinnedMemory::pin(&s.context, owner, start, 64, flags) }.map(drop)
    }
}

fn registered() -> Vec<Row> {
    let function = "cuMemHostRegister_v2";
    let portable = "CU_MEMHOSTREGISTER::CU_MEMHOSTREGISTER_PORTABLE";
    let map = "CU_MEMHOSTREGISTER::CU_MEMHOSTREGISTER_DEVICEMAP";
    let flags = || value::<u32>("flags");
    let mapped = RegisterOptions { portable: false, mapped: true, ..Default::default() };
    let register = |options| {
        move |s: &Stage| PinnedBuffer::register_with(&s.context, vec![0_u8; 64], options).map(drop)
    };
    vec![
        Row::new(portable, |s| pin(s, PinnedFlags::PORTABLE, false), function, flags(), 1),
        Row::new(map, |s| pin(s, PinnedFlags::empty(), true), function, flags(), 2),
        Row::new(portable, register(RegisterOptions::default()), function, flags(), 1),
        Row::new(map, register(mapped), function, flags(), 2),
    ]
}

fn managed() -> impl Iterator<Item = Row> {
    [("GLOBAL", true, 1_u32), ("HOST", false, 2)].into_iter().map(|(name, global, raw)| {
        let name = format!("CUmemAttach_flags::CU_MEM_ATTACH_{name}");
        let act =
            move |s: &Stage| MemoryPointer::allocate_managed(&s.context, 64, global).map(drop);
        Row::new(&name, act, "cuMemAllocManaged", value("flags"), raw)
    })
}

pub(super) fn rows() -> Vec<Row> {
    let rows = pinned().chain(buffers()).chain(registered()).chain(managed());
    rows.map(|row| row.on(On::Manager)).collect()
}
