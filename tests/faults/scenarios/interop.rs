//! Arrays of others.

use super::primary;
use crate::trace::Trace;
use cuda_safe::interop::{ExportedStream, Handover};
use cuda_safe::{DeviceBuffer, Result};

pub(super) fn run(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let (home, stream) = (context.stream()?, context.stream()?);
    let buffer = DeviceBuffer::from_slice(&home, &[1u32, 2, 3])?;
    let exported = buffer.array_interface()?;
    let legacy = exported.clone().with_stream(Some(ExportedStream::Legacy));
    for array in [&exported, &legacy] {
        for handover in [Handover::WaitByEvent, Handover::Synchronize] {
            // SAFETY: the buffer, with its stream, outlives this, and nobody works on it meanwhile.
            let imported = unsafe { array.import::<u32, _>(&stream, handover, ()) }?;
            let mut copy = DeviceBuffer::<u32>::uninit(&stream, 3)?;
            copy.copy_from(&imported)?;
            trace.drop(imported);
            assert_eq!(copy.to_vec()?, [1, 2, 3]);
            trace.drop(copy);
        }
    }
    trace.drop(buffer);
    trace.drops_from_here();
    Ok(())
}
