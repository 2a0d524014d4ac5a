//! Special registers, and the names of instructions.

use crate::program::Special;

/// Returns a special register, and whether it has 64 bits.
pub(super) fn register(name: &str) -> Option<(Special, bool)> {
    let name = name.strip_prefix('%')?;
    let (base, component) = match name.rsplit_once('.') {
        Some((base, component)) => {
            let component = match component {
                "x" => 0,
                "y" => 1,
                "z" => 2,
                "w" => 3,
                _ => return None,
            };
            (base, Some(component))
        }
        None => (name, None),
    };
    if let Some(component) = component {
        return Some((
            match base.as_bytes() {
                b"tid" => Special::Tid(component),
                b"ntid" => Special::Ntid(component),
                b"ctaid" => Special::Ctaid(component),
                b"nctaid" => Special::Nctaid(component),
                b"clusterid" => Special::Clusterid(component),
                b"nclusterid" => Special::Nclusterid(component),
                b"cluster_ctaid" => Special::ClusterCtaid(component),
                b"cluster_nctaid" => Special::ClusterNctaid(component),
                _ => return None,
            },
            false,
        ));
    }
    Some((
        match base.as_bytes() {
            b"laneid" => Special::Laneid,
            b"warpid" => Special::Warpid,
            b"nwarpid" => Special::Nwarpid,
            b"smid" => Special::Smid,
            b"nsmid" => Special::Nsmid,
            b"gridid" => return Some((Special::Gridid, true)),
            b"cluster_ctarank" => Special::ClusterCtarank,
            b"cluster_nctarank" => Special::ClusterNctarank,
            b"lanemask_eq" => Special::LanemaskEq,
            b"lanemask_le" => Special::LanemaskLe,
            b"lanemask_lt" => Special::LanemaskLt,
            b"lanemask_ge" => Special::LanemaskGe,
            b"lanemask_gt" => Special::LanemaskGt,
            b"dynamic_smem_size" => Special::DynamicSmemSize,
            b"total_smem_size" => Special::TotalSmemSize,
            b"aggr_smem_size" => Special::AggrSmemSize,
            b"reserved_smem_offset_begin" => Special::ReservedSmem(0),
            b"reserved_smem_offset_end" => Special::ReservedSmem(0x120),
            b"reserved_smem_offset_cap" => Special::ReservedSmem(0x400),
            // The performance counters of a GPU, which are zero until a profiler sets them up.
            _ if base.starts_with("pm") => {
                let (number, is_wide) = match base[2..].strip_suffix("_64") {
                    Some(number) => (number, true),
                    None => (&base[2..], false),
                };
                let _: u8 = number.parse().ok().filter(|number| *number < 8)?;
                return Some((Special::PerformanceCounter, is_wide));
            }
            _ => {
                let number: u8 = base.strip_prefix("envreg")?.parse().ok()?;
                Special::Envreg(number)
            }
        },
        false,
    ))
}

/// Returns whether PTX has an instruction of this name, among those that no other part of the decoder knows.
pub(super) fn is_known(opcode: &str) -> bool {
    const KNOWN: &[&str] = &["clusterlaunchcontrol", "istypep", "tcgen05", "tensormap", "wgmma"];
    KNOWN.contains(&opcode)
}
