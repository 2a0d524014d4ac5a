//! Virtual memory: physical memory, reservations, mappings, and buffers that grow.

use crate::common::{self, invalid};
use crate::module::kernels::{Busy, Scale, VECTOR, kernel};
use cuda_safe::memory::MemoryLocation;
use cuda_safe::memory::pool::MemoryAccess;
use cuda_safe::virtual_memory::{
    GrowableBuffer, GrowableOptions, Mapping, PhysicalMemory, PhysicalOptions, Reservation,
    ReservationOptions, Shareable,
};
use cuda_safe::{Context, DeviceBuffer, Invalid, PinnedBuffer, Stream, attempt_deferred_releases};
use cuda_sys::CUresult;

fn stage() -> Option<(Context, Stream, usize)> {
    let (context, stream) = common::context_and_stream()?;
    common::has_virtual_memory(&context.device())?;
    let options = PhysicalOptions::new(context.device());
    let granularity = options.granularity().expect("the granularity");
    Some((context, stream, granularity))
}

fn memory(context: &Context, size: usize) -> PhysicalMemory {
    PhysicalMemory::new(context.device(), size).expect("physical memory")
}

fn mapping(context: &Context, size: usize) -> Mapping {
    let space = Reservation::new(size).expect("a reservation");
    space.map(0, memory(context, size)).expect("a mapping")
}

/// Repeats deferred releases until the buffer has this many mapped bytes.
fn settle<T>(buffer: &GrowableBuffer<T>, bytes: usize) {
    for _ in 0..1000 {
        attempt_deferred_releases();
        if buffer.mapped_bytes() == bytes {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} bytes are mapped", buffer.mapped_bytes());
}

#[test]
fn sizes_that_are_not_multiples_of_the_granularity_are_refused() {
    let (context, _stream, granularity) = or_skip!(stage());
    for bytes in [0, 1, granularity - 1, granularity + 1] {
        let refused = PhysicalMemory::new(context.device(), bytes);
        let expected = Invalid::Granularity { what: "the size", bytes, granularity };
        assert_eq!(invalid(refused), expected);
    }
    let made = memory(&context, 2 * granularity);
    assert_eq!(made.size(), 2 * granularity);
    assert_eq!(made.granularity(), granularity);
    assert_eq!(made.location(), MemoryLocation::Device(context.device()));
}

#[test]
fn properties_are_those_of_the_options() {
    let (context, _stream, granularity) = or_skip!(stage());
    let made = memory(&context, granularity);
    let properties = made.properties().expect("the properties");
    assert_eq!(properties.location, Some(context.device().into()));
    assert!(!properties.gpu_direct_rdma);
    assert!(!properties.compressible);
}

#[test]
fn work_on_a_stream_uses_a_mapping() {
    let (context, stream, granularity) = or_skip!(stage());
    let mut buffer = mapping(&context, granularity).into_buffer::<i32>(&stream).expect("a buffer");
    assert_eq!(buffer.size_bytes(), granularity);
    buffer.fill(3).expect("a fill");
    Scale::new(&context).run(&stream, &mut buffer, 2, 1).expect("a launch");
    assert!(buffer.to_vec().expect("a copy").iter().all(|its| *its == 7));
}

#[test]
fn contents_move_with_the_memory_to_another_address() {
    let (context, stream, granularity) = or_skip!(stage());
    let space = Reservation::new(4 * granularity).expect("a reservation");
    let first = space.map(0, memory(&context, granularity)).expect("a mapping");
    let mut buffer = first.into_buffer::<i32>(&stream).expect("a buffer");
    buffer.fill(5).expect("a fill");
    let first = buffer.into_mapping().expect("a mapping");
    let before = first.address();
    let second = first.remap(&space, 2 * granularity).expect("a mapping");
    assert_eq!(second.address(), before + 2 * granularity as u64);
    let buffer = second.into_buffer::<i32>(&stream).expect("a buffer");
    assert_eq!(buffer.slice(..4).expect("a part").to_vec().expect("a copy"), [5; 4]);
}

#[test]
fn a_mapping_keeps_its_reservation() {
    let (context, stream, granularity) = or_skip!(stage());
    let mapping = mapping(&context, granularity);
    assert_eq!(mapping.reservation().address(), mapping.address());
    let mut buffer = mapping.into_buffer::<u8>(&stream).expect("a buffer");
    buffer.fill(1).expect("a fill");
    let other = Reservation::new(granularity).expect("a reservation");
    assert_ne!(other.address(), buffer.as_raw());
    stream.synchronize().expect("a wait");
}

#[test]
fn a_mapping_beyond_the_end_of_its_reservation_is_refused() {
    let (context, _stream, granularity) = or_skip!(stage());
    let space = Reservation::new(2 * granularity).expect("a reservation");
    let given = memory(&context, 2 * granularity);
    let handle = given.as_raw();
    let rejected = space.try_map(granularity, given).expect_err("it does not fit");
    let (end, len) = (3 * granularity, 2 * granularity);
    let expected = Invalid::Range { start: granularity, end, len };
    assert_eq!(invalid::<()>(Err(rejected.error)), expected);
    assert_eq!(rejected.value.as_raw(), handle);
    let rejected = space.try_map(1, rejected.value).expect_err("the offset is odd");
    let expected = Invalid::Granularity { what: "the offset", bytes: 1, granularity };
    assert_eq!(invalid::<()>(Err(rejected.error)), expected);
    space.map(0, rejected.value).expect("a mapping");
}

#[test]
fn a_buffer_needs_access_of_the_device_of_its_stream() {
    let (context, stream, granularity) = or_skip!(stage());
    let space = Reservation::new(granularity).expect("a reservation");
    let bare = space.try_map(0, memory(&context, granularity)).expect("a mapping");
    let device = context.device();
    assert_eq!(bare.access(device).expect("a query"), MemoryAccess::None);
    let rejected = bare.try_into_buffer::<u8>(&stream).expect_err("there is no access");
    let expected = Invalid::NoAccess { device: device.ordinal() };
    assert_eq!(invalid::<()>(Err(rejected.error)), expected);
    let mut mapping = rejected.value;
    mapping.set_access(device, MemoryAccess::Read).expect("access");
    assert_eq!(mapping.access(device).expect("a query"), MemoryAccess::Read);
    let rejected = mapping.try_into_buffer::<u8>(&stream).expect_err("it is read-only");
    let mut mapping = rejected.value;
    mapping.set_access(device, MemoryAccess::ReadWrite).expect("access");
    // The same location by its numbers: CU_MEM_LOCATION_TYPE_DEVICE is 1.
    let same = MemoryLocation::Other { kind: 1, id: device.ordinal() as i32 };
    mapping.set_access(same, MemoryAccess::None).expect("no access");
    let rejected = mapping.try_into_buffer::<u8>(&stream).expect_err("there is no access");
    assert_eq!(invalid::<()>(Err(rejected.error)), expected);
    let mut mapping = rejected.value;
    mapping.set_access(device, MemoryAccess::ReadWrite).expect("access");
    let mut buffer = mapping.into_buffer::<u8>(&stream).expect("a buffer");
    buffer.fill(9).expect("a fill");
    assert_eq!(buffer.slice(..2).expect("a part").to_vec().expect("a copy"), [9; 2]);
}

#[test]
fn a_dropped_buffer_is_unmapped_after_the_work_that_uses_it() {
    let (context, stream, granularity) = or_skip!(stage());
    for _ in 0..3 {
        let mut buffer =
            mapping(&context, granularity).into_buffer::<i32>(&stream).expect("a buffer");
        let busy = Busy::new(&context, &stream);
        buffer.fill(1).expect("a fill");
        drop(buffer);
        attempt_deferred_releases();
        drop(busy);
        // A fill of memory that is not mapped would end the context.
        stream.synchronize().expect("the fill");
        attempt_deferred_releases();
    }
    DeviceBuffer::<u8>::zeroed(&stream, 1).expect("the context is alive");
}

#[test]
fn an_ordinary_buffer_is_not_a_mapping() {
    let (_context, stream, _) = or_skip!(stage());
    let buffer = DeviceBuffer::from_slice(&stream, &[1, 2]).expect("memory");
    let rejected = buffer.try_into_mapping().expect_err("it is not a mapping");
    assert_eq!(invalid::<()>(Err(rejected.error)), Invalid::NotMapping);
    assert_eq!(rejected.value.to_vec().expect("a copy"), [1, 2]);
}

#[test]
fn a_large_reservation_takes_no_memory() {
    or_skip!(stage());
    let size = 1 << 40;
    let space = Reservation::new(size).expect("a reservation");
    assert_eq!(space.size(), size);
    let options = ReservationOptions { alignment: 1 << 30, ..ReservationOptions::default() };
    let aligned = Reservation::with(1 << 30, &options).expect("a reservation");
    assert_eq!(aligned.address() % (1 << 30), 0);
}

#[test]
fn handles_survive_into_raw_and_from_raw() {
    let (context, _stream, granularity) = or_skip!(stage());
    let raw = memory(&context, granularity).into_raw();
    // SAFETY: ownership was just released, and the memory has this size.
    let made = unsafe { PhysicalMemory::from_raw(raw, granularity) }.expect("physical memory");
    assert_eq!(made.as_raw(), raw);
    let space = Reservation::new(granularity).expect("a reservation");
    let mapping = space.map(0, made).expect("a mapping");
    // SAFETY: the mapping has this size, and no work uses the memory.
    let again = unsafe { PhysicalMemory::retain(mapping.address(), granularity) };
    assert_eq!(again.expect("a handle").size(), granularity);
    // SAFETY: the handle is null, which is refused.
    let refused = unsafe { PhysicalMemory::from_raw(0, granularity) };
    assert!(matches!(invalid(refused), Invalid::Handle { .. }));
}

#[test]
fn a_growing_buffer_keeps_its_address_and_its_elements() {
    let (context, stream, granularity) = or_skip!(stage());
    let mut buffer = GrowableBuffer::<i32>::new(&stream, 1 << 30).expect("a buffer");
    let start = buffer.as_raw();
    assert_eq!((buffer.len(), buffer.mapped_bytes()), (0, 0));
    buffer.extend_from_slice(&[1, 2, 3]).expect("elements");
    assert_eq!(buffer.mapped_bytes(), granularity);
    let many = granularity / 4 * 2;
    buffer.resize_zeroed(many).expect("elements");
    assert_eq!(buffer.mapped_bytes(), 2 * granularity);
    assert_eq!(buffer.as_raw(), start);
    let scale = kernel::<(&mut [i32], i32, i32, u32)>(&context, VECTOR, "scale");
    let count = u32::try_from(many).expect("few elements");
    let config = cuda_safe::LaunchConfig::for_elements(many, 256).expect("a configuration");
    // SAFETY: the kernel accesses the elements of the buffer.
    unsafe { scale.launch(&stream, config, (&mut buffer, 2, 1, count)) }.expect("a launch");
    let elements = buffer.as_slice().to_vec().expect("a copy");
    assert_eq!(elements[..4], [3, 5, 7, 1]);
    assert!(elements[4..].iter().all(|its| *its == 1));
}

#[test]
fn a_copy_spans_adjacent_mappings() {
    let (context, stream, granularity) = or_skip!(stage());
    let mut buffer = GrowableBuffer::<u8>::new(&stream, 1 << 30).expect("a buffer");
    for mappings in 1..=3 {
        buffer.resize_zeroed(mappings * granularity).expect("memory");
    }
    assert_eq!(buffer.mapped_bytes(), 3 * granularity);
    for (start, len) in [
        (granularity - 1, 2),
        (granularity - 5000, 10_000),
        (granularity - 1, granularity + 2),
        (0, 3 * granularity),
    ] {
        let range = start..start + len;
        let value = (len % 251) as u8;
        let all = vec![value; len];
        let mut part = buffer.as_mut_slice().slice(range.clone()).expect("a part");
        part.fill(value).expect("a fill");
        let host = [
            PinnedBuffer::<u8>::zeroed(&context, len).expect("memory"),
            PinnedBuffer::register(&context, vec![0; len]).expect("memory"),
        ];
        for host in host {
            let part = buffer.as_slice().slice(range.clone()).expect("a part");
            let copy = part.copy_to_pinned(host).expect("a copy");
            let mut host = copy.synchronize().expect("a wait");
            assert!(host[..] == all[..], "{len} bytes at {start}");
            host.fill(!value);
            let mut part = buffer.as_mut_slice().slice(range.clone()).expect("a part");
            let copy = part.copy_from_pinned(host).expect("a copy");
            copy.synchronize().expect("a wait");
            part.copy_from_slice(&all).expect("a copy");
        }
        let whole = DeviceBuffer::from_slice(&stream, &all).expect("memory");
        let mut part = buffer.as_mut_slice().slice(range.clone()).expect("a part");
        part.copy_from(&whole).expect("a copy");
        let found = buffer.as_slice().slice(range).expect("a part").to_vec();
        assert!(found.expect("a copy") == all, "{len} bytes at {start}");
    }
}

#[test]
fn a_shrunk_buffer_is_unmapped_after_the_work_that_uses_it() {
    let (context, stream, granularity) = or_skip!(stage());
    let mut buffer = GrowableBuffer::<u8>::new(&stream, 8 * granularity).expect("a buffer");
    for _ in 0..4 {
        let len = buffer.len() + granularity;
        buffer.resize_zeroed(len).expect("elements");
    }
    let busy = Busy::new(&context, &stream);
    buffer.as_mut_slice().fill(1).expect("a fill");
    buffer.truncate(granularity + 1).expect("a shorter buffer");
    attempt_deferred_releases();
    let mapped = buffer.mapped_bytes();
    // On a slow machine the work may have ended before.
    if !stream.is_complete().expect("a query") {
        assert_eq!(mapped, 4 * granularity);
    }
    drop(busy);
    stream.synchronize().expect("the fill");
    settle(&buffer, 2 * granularity);
    let elements = buffer.as_slice().to_vec().expect("a copy");
    assert_eq!(elements.len(), granularity + 1);
    assert!(elements.iter().all(|its| *its == 1));
}

#[test]
fn memory_that_is_not_unmapped_yet_is_used_again() {
    let (context, stream, granularity) = or_skip!(stage());
    let mut buffer = GrowableBuffer::<u8>::new(&stream, 4 * granularity).expect("a buffer");
    for _ in 0..3 {
        let len = buffer.len() + granularity;
        buffer.resize_zeroed(len).expect("elements");
    }
    let busy = Busy::new(&context, &stream);
    buffer.as_mut_slice().fill(1).expect("a fill");
    buffer.truncate(0).expect("a shorter buffer");
    buffer.grow(2 * granularity).expect("elements");
    // This work uses memory that the first shrink would have unmapped.
    buffer.as_mut_slice().fill(2).expect("a fill");
    buffer.truncate(1).expect("a shorter buffer");
    buffer.grow(2 * granularity).expect("elements");
    buffer.as_mut_slice().fill(3).expect("a fill");
    drop(busy);
    stream.synchronize().expect("the fills");
    settle(&buffer, 2 * granularity);
    let elements = buffer.as_slice().to_vec().expect("a copy");
    assert!(elements.iter().all(|its| *its == 3));
}

#[test]
fn a_growable_buffer_maps_at_least_a_step() {
    let (_context, stream, granularity) = or_skip!(stage());
    let options = GrowableOptions { step: 4 * granularity, ..GrowableOptions::default() };
    let made = GrowableBuffer::<u8>::with(&stream, 6 * granularity, &options);
    let mut buffer = made.expect("a buffer");
    buffer.grow(1).expect("an element");
    assert_eq!(buffer.mapped_bytes(), 4 * granularity);
    // The last step ends with the capacity.
    buffer.grow(5 * granularity).expect("elements");
    assert_eq!(buffer.mapped_bytes(), 6 * granularity);
    let refused = buffer.grow(6 * granularity + 1);
    let expected = Invalid::AboveCapacity { len: 6 * granularity + 1, capacity: 6 * granularity };
    assert_eq!(invalid(refused), expected);
    assert_eq!(buffer.len(), 5 * granularity);
    let options = GrowableOptions { step: 1, ..GrowableOptions::default() };
    let refused = GrowableBuffer::<u8>::with(&stream, 1, &options);
    assert!(matches!(invalid(refused), Invalid::Granularity { what: "the step", .. }));
}

#[test]
#[cfg(unix)]
fn an_imported_descriptor_is_the_same_memory() {
    let (context, stream, granularity) = or_skip!(stage());
    let options = PhysicalOptions::new(context.device()).shareable(Shareable::Descriptor);
    let made = match PhysicalMemory::with(granularity, &options) {
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_SUPPORTED) => {
            return common::skip("file descriptors of physical memory");
        }
        made => made.expect("physical memory"),
    };
    let descriptor = made.export().expect("a descriptor");
    let space = Reservation::new(2 * granularity).expect("a reservation");
    let mapped = |at, memory| space.map(at, memory)?.into_buffer::<u8>(&stream);
    let mut buffer = mapped(0, made).expect("a buffer");
    buffer.fill(6).expect("a fill");
    stream.synchronize().expect("the fill");
    // SAFETY: the memory has this size, and no other work uses it from now on.
    let imported = unsafe { PhysicalMemory::import(&descriptor, granularity) };
    let imported = imported.expect("physical memory");
    drop(descriptor);
    assert!(matches!(invalid(imported.export()), Invalid::NotShareable { .. }));
    let alias = mapped(granularity, imported).expect("a buffer");
    drop(buffer);
    let elements = alias.to_vec().expect("a copy");
    assert!(elements.iter().all(|its| *its == 6));
}

#[test]
fn memory_that_is_not_shareable_has_no_descriptor() {
    let (context, _stream, granularity) = or_skip!(stage());
    let made = memory(&context, granularity);
    #[cfg(unix)]
    assert!(matches!(invalid(made.export()), Invalid::NotShareable { .. }));
    made.export_fabric().expect_err("no fabric");
}

#[test]
fn a_graph_owns_a_mapping() {
    let (context, stream, granularity) = or_skip!(stage());
    or_skip!(common::since(12, 3));
    let buffer = mapping(&context, granularity).into_buffer::<u8>(&stream);
    let mut graph = cuda_safe::Graph::new(&context).expect("a graph");
    let mut buffer = graph.own(buffer.expect("a buffer")).expect("it is owned");
    graph.add_fill(&[], &mut buffer, 4).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    drop((graph, buffer));
    let busy = Busy::new(&context, &stream);
    executable.launch(&stream).expect("a launch");
    drop(executable);
    drop(busy);
    // A fill of memory that is not mapped would end the context.
    stream.synchronize().expect("the launch");
    DeviceBuffer::<u8>::zeroed(&stream, 1).expect("the context is alive");
}
