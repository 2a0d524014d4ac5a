//! Device memory as a DMA-BUF, and the locations of managed memory.

use super::{Row, Stage, value};
use crate::prelude::*;
use cuda_safe::memory::DmaBufOptions;

const RANGE: &str = "cuMemGetHandleForAddressRange";
const LOCATIONS: &str = "cuMemGetLocationInfo";

/// Exports a part of memory, and returns its address and its size.
fn export(s: &Stage, pcie: bool) -> Result<(u64, usize)> {
    let memory = DeviceBuffer::<u8>::zeroed_sync(&s.stream, 1 << 20)?;
    let start = memory.as_raw().next_multiple_of(4096) - memory.as_raw();
    let start = usize::try_from(start).unwrap_or(0);
    let part = memory.slice(start..start + 8192)?;
    let options = DmaBufOptions { pcie, ..DmaBufOptions::default() };
    part.export_dma_buf(options)?;
    Ok((part.as_raw(), 8192))
}

fn residency(s: &Stage) -> Result<()> {
    let buffer = ManagedBuffer::<u8>::zeroed(&s.stream, 100_000)?;
    buffer.range(..)?.residency(50_001, 4097).map(drop)
}

pub(super) fn rows() -> Vec<Row> {
    let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let pcie = CUmemRangeFlags::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE;
    vec![
        Row::of(RANGE, |s| export(s, false))
            .calls(RANGE)
            .with_told(|call| Some((value("address")(call)?, value("size")(call)?))),
        Row::of("CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD", |s| export(s, false))
            .calls(RANGE)
            .with(|call| Some((value("kind")(call)?, value("flags")(call)?)), (kind, 0_u64)),
        Row::of("CUmemRangeFlags::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE", |s| {
            export(s, true)
        })
        .calls(RANGE)
        .with(value("flags"), u64::from(pcie.0)),
        Row::of("cuMemGetLocationInfo.summaryGranularity", residency).calls(LOCATIONS).with(
            |call| Some((value("size")(call)?, value("part")(call)?)),
            (100_000_usize, 50_001_usize),
        ),
        Row::of("cuMemGetLocationInfo.samplingGranularity", residency)
            .calls(LOCATIONS)
            .with(value("sample"), 4097_usize),
        Row::call(LOCATIONS, residency),
    ]
}
