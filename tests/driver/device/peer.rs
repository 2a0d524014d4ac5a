use crate::common;
use cuda_safe::context::GraphicsClient;
use cuda_safe::device::{AtomicOperation, attribute};
use cuda_safe::sys::{CUexecAffinityType, cuDeviceGetExecAffinitySupport};
use cuda_safe::{CUresult, Context, ContextFlags, Device, DeviceBuffer};

#[test]
fn a_device_is_found_by_its_pci_bus_id() {
    let device = or_skip!(common::gpu());
    let number = |attribute| device.attribute(attribute).expect("known");
    let place = format!(
        "{:04x}:{:02x}:{:02x}.0",
        number(attribute::PCI_DOMAIN_ID),
        number(attribute::PCI_BUS_ID),
        number(attribute::PCI_DEVICE_ID)
    );
    assert_eq!(Device::by_pci_bus_id(&place).expect("it exists"), device);
}

#[test]
fn a_device_is_not_a_peer_of_itself() {
    let device = or_skip!(common::gpu());
    assert!(!device.can_access_peer(&device).expect("an answer"));
}

#[test]
fn a_device_reports_its_atomics_in_host_memory() {
    let device = or_skip!(common::gpu());
    or_skip!(common::since(13, 0));
    for operation in [AtomicOperation::IntegerAdd, AtomicOperation::FloatMax] {
        device.host_atomics(operation).expect("an answer");
    }
}

#[test]
fn shared_memory_is_copied_into_another_context() {
    let context = or_skip!(common::context());
    let device = context.device();
    let home = context.stream().expect("a stream");
    let other = Context::new(&device, ContextFlags::empty()).expect("a context");
    let away = other.stream().expect("a stream");
    let shared = DeviceBuffer::from_slice(&home, &[7u32; 1000])
        .and_then(|buffer| buffer.share())
        .expect("shared memory");
    assert!(shared.on(&away).is_err(), "the pointer belongs to its own context");
    let mut copy = DeviceBuffer::<u32>::zeroed(&away, 1000).expect("memory");
    let reader = shared.on_peer(&away).expect("a reader");
    assert_eq!((reader.len(), reader.stream()), (1000, &away));
    copy.copy_from_peer(&reader).expect("a copy");
    drop((home, shared, reader));
    assert_eq!(copy.to_vec().expect("a copy"), [7; 1000]);
    // A stream other than the reader's is refused.
    let shared = copy.share().expect("an event");
    let reader = shared.on_peer(&away).expect("a reader");
    let mut elsewhere = context
        .stream()
        .and_then(|stream| DeviceBuffer::<u32>::zeroed(&stream, 1000))
        .expect("memory");
    assert!(elsewhere.copy_from_peer(&reader).is_err());
}

mod provoked {
    //! Calls that the driver refuses.

    use super::*;

    #[test]
    fn a_bus_id_without_a_device_is_an_error() {
        or_skip!(common::gpu());
        for wrong in ["ffff:ff:1f.0", "no place"] {
            let error = Device::by_pci_bus_id(wrong).expect_err(wrong);
            assert!(error.code().is_some(), "{error}");
        }
        assert!(Device::by_pci_bus_id("0\0").is_err());
    }

    #[test]
    fn a_graphics_context_needs_a_device_with_graphics() {
        let device = or_skip!(common::gpu());
        or_skip!(common::since(12, 5));
        let draws = [attribute::D3D12_CIG_SUPPORTED, attribute::VULKAN_CIG_SUPPORTED];
        if draws.map(|draws| device.attribute(draws).unwrap_or(false)) != [false; 2] {
            return common::skip("this one draws");
        }
        let mut data = [0u64; 512];
        let data = data.as_mut_ptr().cast();
        let refused = |client| {
            // SAFETY: the driver rejects any argument that it does not support, and the memory
            // stays alive during the call.
            let made =
                unsafe { Context::with_graphics_client(&device, ContextFlags::empty(), client) };
            made.expect_err("there is no client").code()
        };
        for client in [GraphicsClient::D3d12CommandQueue(data), GraphicsClient::NvBlob(data)] {
            assert_eq!(refused(client), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
        }
        let nothing = GraphicsClient::NvBlob(std::ptr::null_mut());
        assert_eq!(refused(nothing), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn a_context_with_an_affinity_needs_mps() {
        let device = or_skip!(common::gpu());
        let (mut supported, kind) = (0, CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT);
        // SAFETY: the pointer refers to a local variable.
        let code =
            unsafe { cuDeviceGetExecAffinitySupport(&raw mut supported, kind, device.as_raw()) };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
        let answer = device.supports_execution_affinity();
        assert_eq!(answer.expect("an answer"), supported != 0);
        if supported != 0 {
            return common::skip("there is MPS");
        }
        let none = ContextFlags::empty();
        let error = Context::with_affinity(&device, none, 8).expect_err("no MPS");
        let code = CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
        assert_eq!(error.code(), Some(code), "{error}");
        // The affinity of other contexts can still be queried.
        let context = Context::primary(&device).expect("the primary context");
        let all = device.attribute(attribute::MULTIPROCESSOR_COUNT);
        assert_eq!(context.execution_affinity().expect("known"), all.expect("known"));
    }
}
