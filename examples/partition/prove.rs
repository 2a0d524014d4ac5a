//! Finds out where work runs: the library's probe runs on all partitions at the same time.

use crate::Error;
use crate::plan::Part;
use crate::show::Group;
use cuda_safe::device::attribute;
use cuda_safe::green::{GreenContext, SmProbe};
use cuda_safe::module::attribute as kernel_attribute;
use cuda_safe::{Context, Device, Kernel, LaunchConfig, Module};

/// Creates the partitions and measures where they run. With `clusters`, also queries their maximum
/// cluster sizes.
pub(crate) fn run(device: &Device, parts: Vec<Part>, clusters: bool) -> Result<Vec<Group>, Error> {
    let context = Context::primary(device)?;
    let probe = SmProbe::new(&context)?;
    let kernel = match clusters {
        true => cluster_kernel(&context)?,
        false => None,
    };

    let mut running = Vec::new();
    for part in parts {
        let green = GreenContext::new(part.groups)?;
        let probing = probe.start(&green.stream()?)?;
        running.push((part.asked, green, probing));
    }

    let mut groups = Vec::new();
    for (asked, green, probing) in running {
        let trace = probing.synchronize()?;
        let largest = kernel.as_ref().map(|kernel| {
            // The number of blocks is the largest cluster size of any device, so that it divides the
            // grid.
            green.max_cluster_size(kernel, LaunchConfig::linear(16, 32))
        });
        let known = trace.added.filter(|added| added.by_mps || added.by_dynamic_parallelism);
        groups.push(Group {
            asked,
            given: green.sm_count(),
            sm_ids: trace.sms,
            added: trace.added.map(|added| added.to_string()),
            explained: known.map_or(0, |added| added.count),
            max_cluster: largest.transpose()?,
        });
    }
    Ok(groups)
}

/// Returns a small kernel that may have clusters of any size, or `None` if the device does not support
/// clusters.
fn cluster_kernel(context: &Context) -> Result<Option<Kernel>, Error> {
    if !context.device().attribute(attribute::CLUSTER_LAUNCH)? {
        return Ok(None);
    }
    let module = Module::from_ptx(context, include_str!("../../tests/kernels/hopper.ptx"))?;
    let kernel = module.kernel("cluster_ranks")?;
    kernel.set_attribute(kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, true)?;
    Ok(Some(kernel))
}
