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
            match base {
                "tid" => Special::Tid(component),
                "ntid" => Special::Ntid(component),
                "ctaid" => Special::Ctaid(component),
                "nctaid" => Special::Nctaid(component),
                "clusterid" => Special::Clusterid(component),
                "nclusterid" => Special::Nclusterid(component),
                "cluster_ctaid" => Special::ClusterCtaid(component),
                "cluster_nctaid" => Special::ClusterNctaid(component),
                _ => return None,
            },
            false,
        ));
    }
    Some((
        match base {
            "laneid" => Special::Laneid,
            "warpid" => Special::Warpid,
            "nwarpid" => Special::Nwarpid,
            "smid" => Special::Smid,
            "nsmid" => Special::Nsmid,
            "gridid" => return Some((Special::Gridid, true)),
            "cluster_ctarank" => Special::ClusterCtarank,
            "cluster_nctarank" => Special::ClusterNctarank,
            "lanemask_eq" => Special::LanemaskEq,
            "lanemask_le" => Special::LanemaskLe,
            "lanemask_lt" => Special::LanemaskLt,
            "lanemask_ge" => Special::LanemaskGe,
            "lanemask_gt" => Special::LanemaskGt,
            "dynamic_smem_size" => Special::DynamicSmemSize,
            "total_smem_size" => Special::TotalSmemSize,
            "aggr_smem_size" => Special::AggrSmemSize,
            "reserved_smem_offset_begin" => Special::ReservedSmem(0),
            "reserved_smem_offset_end" => Special::ReservedSmem(0x120),
            "reserved_smem_offset_cap" => Special::ReservedSmem(0x400),
            // The performance counters of a GPU, which are zero until a profiler sets them up.
            base if base.starts_with("pm") => {
                let (number, is_wide) = match base[2..].strip_suffix("_64") {
                    Some(number) => (number, true),
                    None => (&base[2..], false),
                };
                let _: u8 = number.parse().ok().filter(|number| *number < 8)?;
                return Some((Special::PerformanceCounter, is_wide));
            }
            base => {
                let number: u8 = base.strip_prefix("envreg")?.parse().ok()?;
                Special::Envreg(number)
            }
        },
        false,
    ))
}

/// Returns whether PTX has an instruction of this name, among those that no other part of the decoder knows.
pub(super) fn is_known(opcode: &str) -> bool {
    const KNOWN: &[&str] = &[
        "clusterlaunchcontrol",
        "istypep",
        "ldmatrix",
        "mma",
        "movmatrix",
        "multimem",
        "stmatrix",
        "tcgen05",
        "tensormap",
        "wgmma",
        "wmma",
    ];
    KNOWN.contains(&opcode)
}
