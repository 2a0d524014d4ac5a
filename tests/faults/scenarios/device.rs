//! The driver and its devices.

use super::{answer, expect, if_there_is, invalid};
use crate::trace::Trace;
use cuda_safe::context::GraphicsClient;
use cuda_safe::device::attribute;
use cuda_safe::device::{AtomicOperation, PeerAttribute};
use cuda_safe::{CUresult, Context, ContextFlags, Device, Error, Invalid, Result};

pub(super) fn run(trace: &mut Trace) -> Result<()> {
    cuda_safe::init()?;
    cuda_safe::version()?;
    let count = Device::count()?;
    assert_eq!(Device::all()?.len(), count as usize);
    expect(Device::get(count), invalid(|why| matches!(why, Invalid::DeviceOrdinal { .. })))?;
    let device = Device::get(0)?;
    assert!(!device.name()?.is_empty());
    device.uuid()?;
    assert!(device.total_memory()? > 0);
    assert!(device.compute_capability()? >= (5, 0));
    assert_eq!(device.attribute(attribute::WARP_SIZE)?, 32);
    device.attribute_raw(attribute::ECC_ENABLED.as_raw())?;
    for attribute in [attribute::CLOCK_RATE, attribute::L2_CACHE_SIZE] {
        assert!(device.attribute(attribute)? > 0);
    }
    assert!(!device.can_access_peer(&device)?);
    let itself = CUresult::CUDA_ERROR_INVALID_DEVICE;
    let rank = device.peer_attribute(PeerAttribute::PerformanceRank, &device);
    expect(rank, answer("cuDeviceGetP2PAttribute", itself))?;
    let atomics = device.peer_atomics(AtomicOperation::And, &device);
    let refuses = answer("cuDeviceGetP2PAtomicCapabilities", itself);
    expect(atomics, |error| matches!(error, Error::Missing(_)) || refuses(error))?;
    let bus = device.attribute(attribute::PCI_BUS_ID)?;
    assert_eq!(Device::by_pci_bus_id(&format!("{bus:02x}:00"))?, device);
    if_there_is(device.host_atomics(AtomicOperation::And))?;
    let affinity = Some(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    assert!(!device.supports_execution_affinity()?);
    let sms = device.attribute(attribute::MULTIPROCESSOR_COUNT)?;
    let context = Context::primary(&device)?;
    assert_eq!(context.execution_affinity()?, sms);
    trace.drop(context);
    // SAFETY: nothing of the primary context exists.
    unsafe { device.reset_primary() }?;
    let none = ContextFlags::empty();
    expect(Context::with_affinity(&device, none, 8), |error| error.code() == affinity)?;
    let mut data = 0u64;
    let client = GraphicsClient::NvBlob((&raw mut data).cast());
    // SAFETY: the software driver has no such contexts and refuses the call.
    let created = unsafe { Context::with_graphics_client(&device, none, client) };
    let refuses = answer("cuCtxCreate_v4", CUresult::CUDA_ERROR_NOT_SUPPORTED);
    expect(created, |error| matches!(error, Error::Missing(_)) || refuses(error))?;
    // This attribute may be newer than the driver.
    match device.attribute(attribute::TENSOR_MAP_LARGE_TENSOR_MIN_SIZE) {
        Err(Error::Invalid(_)) => {}
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => {}
        other => {
            other?;
        }
    }
    Ok(())
}
