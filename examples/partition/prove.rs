//! Where work really runs: a kernel on each partition that records `%smid`.

use crate::Error;
use crate::plan::Part;
use crate::show::Group;
use cuda_safe::green::GreenContext;
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module};
use std::collections::BTreeSet;

/// More blocks than the SMs hold at once, each long enough to make the others move on.
const BLOCKS_PER_SM: u32 = 128;
const CYCLES: u32 = 100_000;

/// Makes the partitions, runs the kernel on all of them at once, and reads where it ran.
pub(crate) fn run(device: &Device, parts: Vec<Part>) -> Result<Vec<Group>, Error> {
    let context = Context::primary(device)?;
    let module = Module::from_ptx(&context, include_str!("../../tests/kernels/smid.ptx"))?;
    let record = module.kernel("record_smid")?.typed::<(&mut [u32], u32)>()?;

    let mut running = Vec::new();
    for part in parts {
        let green = GreenContext::new(part.groups)?;
        let stream = green.stream()?;
        let blocks = BLOCKS_PER_SM * green.sm_count();
        let mut smids = DeviceBuffer::<u32>::zeroed(&stream, blocks as usize)?;
        let config = LaunchConfig::linear(blocks, 32);
        // SAFETY: the kernel writes one element for each of its blocks, and there are as many.
        unsafe { record.launch(&stream, config, (&mut smids, CYCLES)) }?;
        running.push((part.asked, green.sm_count(), smids));
    }

    let mut groups = Vec::new();
    for (asked, given, smids) in running {
        let sm_ids: BTreeSet<u32> = smids.to_vec()?.into_iter().collect();
        groups.push(Group {
            asked,
            given,
            sm_ids,
        });
    }
    Ok(groups)
}
