//! What the compiler has to refuse, each with the code of its error. Nothing here but documentation
//! that is tested.

/// Guards, and what hangs on what is current, stay on their thread.
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::CurrentContext>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::CurrentContext>();
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::green::CurrentGreenContext>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::green::CurrentGreenContext>();
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::DefaultStream<'static>>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::DefaultStream<'static>>();
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::Capture>();
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::CopyScope<'_, '_>>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::CopyScope<'_, '_>>();
/// ```
///
/// ```compile_fail,E0505
/// // A default stream is one while its guard lives.
/// fn outlive(current: cuda_safe::CurrentContext) {
///     let stream = current.legacy_stream();
///     drop(current);
///     let _ = stream.synchronize();
/// }
/// ```
///
/// ```compile_fail,E0505
/// // The same for a green context.
/// fn outlive(current: cuda_safe::green::CurrentGreenContext) {
///     let stream = current.legacy_stream();
///     drop(current);
///     let _ = stream.synchronize();
/// }
/// ```
///
/// ```compile_fail,E0515
/// // So it does not come out of the closure form either.
/// use cuda_safe::{Context, DefaultStream};
/// fn keep<'a>(context: &Context) -> DefaultStream<'a> {
///     let current = context.make_current().unwrap();
///     current.per_thread_stream()
/// }
/// ```
struct Threads;

/// What the driver does not lock is changed by one thread at a time.
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::Linker>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::Graph>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::ExecutableGraph>();
/// ```
///
/// ```compile_fail,E0277
/// // A buffer goes where its elements may go.
/// fn send<T: Send>() {}
/// send::<cuda_safe::DeviceBuffer<std::rc::Rc<u8>>>();
/// ```
struct Locks;

/// Memory that the device may use is out of the host's reach, and lives long enough.
///
/// ```compile_fail,E0597
/// // The device may write until the scope ends.
/// fn lend(stream: &cuda_safe::Stream, buffer: &cuda_safe::DeviceBuffer<u8>) {
///     stream.copy_scope(|scope| {
///         let mut host = cuda_safe::PinnedBuffer::zeroed(stream.context(), 8).unwrap();
///         scope.copy_to_pinned(buffer, &mut host).unwrap();
///     }).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0499
/// // The scope has the memory until it ends: not twice at once,
/// use cuda_safe::{DeviceBuffer, PinnedBuffer, Stream};
/// fn lend(stream: &Stream, buffer: &DeviceBuffer<u8>, host: &mut PinnedBuffer<u8>) {
///     stream.copy_scope(|scope| {
///         scope.copy_to_pinned(buffer, host).unwrap();
///         scope.copy_to_pinned(buffer, host).unwrap();
///     }).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0502
/// // and not to read meanwhile.
/// use cuda_safe::{DeviceBuffer, PinnedBuffer, Stream};
/// fn lend(stream: &Stream, buffer: &DeviceBuffer<u8>, host: &mut PinnedBuffer<u8>) {
///     stream.copy_scope(|scope| {
///         scope.copy_to_pinned(buffer, host).unwrap();
///         println!("{}", host[0]);
///     }).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0521
/// // The scope itself stays inside.
/// use cuda_safe::{CopyScope, Stream};
/// fn keep<'a>(stream: &'a Stream, place: &mut Option<&'a CopyScope<'a, 'a>>) {
///     stream.copy_scope(|scope| *place = Some(scope)).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0308
/// // A part of pinned memory is no pinned memory: it is a slice, which is copied with a wait.
/// use cuda_safe::{DeviceBuffer, PinnedBuffer};
/// fn part(buffer: &DeviceBuffer<u8>, host: &mut PinnedBuffer<u8>) {
///     let _ = buffer.copy_to_pinned(&mut host[..8]);
/// }
/// ```
///
/// ```compile_fail,E0382
/// // A copy under way owns the memory.
/// use cuda_safe::{DeviceBuffer, PinnedBuffer};
/// fn read(buffer: &DeviceBuffer<u8>, host: PinnedBuffer<u8>) -> u8 {
///     let pending = buffer.copy_to_pinned(host).unwrap();
///     let first = host[0];
///     drop(pending);
///     first
/// }
/// ```
///
/// ```compile_fail,E0502
/// fn both(mut buffer: cuda_safe::ManagedBuffer<u8>) -> cuda_safe::Result<()> {
///     let there = buffer.device()?;
///     let here = buffer.host()?; // while the device has it
///     println!("{here:?} {there:?}");
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0502
/// fn both(mut buffer: cuda_safe::MappedBuffer<u8>) -> cuda_safe::Result<()> {
///     let here = buffer.host()?;
///     let there = buffer.as_slice(); // while the host has it
///     println!("{here:?} {there:?}");
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0505
/// // Nor is it freed under a slice.
/// fn free(buffer: cuda_safe::MappedBuffer<u8>) {
///     let there = buffer.as_slice();
///     drop(buffer);
///     println!("{there:?}");
/// }
/// ```
struct HostMemory;

/// Parts of device memory are borrowed as slices are.
///
/// ```compile_fail,E0499
/// // Two parts of a buffer to write may be one.
/// fn twice(buffer: &mut cuda_safe::DeviceBuffer<u8>) {
///     let one = buffer.slice_mut(..);
///     let two = buffer.slice_mut(..);
///     drop((one, two));
/// }
/// ```
///
/// ```compile_fail,E0382
/// // A part to write is there once; `reborrow` lends it.
/// fn twice(part: cuda_safe::DeviceSliceMut<'_, u8>) {
///     let one = part.slice(..4);
///     let two = part.slice(..4);
///     drop((one, two));
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn free(buffer: cuda_safe::DeviceBuffer<u8>) {
///     let part = buffer.slice(..4);
///     drop(buffer);
///     drop(part);
/// }
/// ```
///
/// ```compile_fail,E0499
/// // A kernel does not get one memory to write as two parameters.
/// use cuda_safe::{DeviceBuffer, LaunchConfig, Stream, TypedKernel};
/// type Two = TypedKernel<(&'static mut [u8], &'static mut [u8])>;
/// fn launch(kernel: &Two, stream: &Stream, x: &mut DeviceBuffer<u8>) {
///     let _ = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (&mut *x, &mut *x)) };
/// }
/// ```
///
/// ```compile_fail,E0277
/// // What is shared is only read.
/// use cuda_safe::{DeviceSliceMut, SharedReader};
/// fn write(reader: &mut SharedReader<u8>) -> DeviceSliceMut<'_, u8> {
///     reader.into()
/// }
/// ```
struct Parts;

/// What comes from the device may have any bits, and what goes there has no holes.
///
/// ```compile_fail,E0277
/// fn read(buffer: cuda_safe::DeviceBuffer<bool>) { let _ = buffer.to_vec(); }
/// ```
///
/// ```compile_fail,E0277
/// fn read(buffer: cuda_safe::DeviceBuffer<&'static str>) { let _ = buffer.to_vec(); }
/// ```
///
/// ```compile_fail,E0277
/// fn write(stream: &cuda_safe::Stream) {
///     #[derive(Clone, Copy)]
///     struct Padded(u8, u32);
///     let _ = cuda_safe::DeviceBuffer::from_slice(stream, &[Padded(1, 2)]);
/// }
/// ```
///
/// ```compile_fail,E0599
/// use cuda_safe::{ManagedBuffer, Stream};
/// fn make(stream: &Stream) { let _ = ManagedBuffer::<bool>::zeroed(stream, 1); }
/// ```
///
/// ```compile_fail,E0599
/// use cuda_safe::{Context, PinnedBuffer};
/// fn make(context: &Context) { let _ = PinnedBuffer::<&'static u8>::zeroed(context, 1); }
/// ```
struct Bits;

/// A host function may run at any time, on any thread.
///
/// ```compile_fail,E0373
/// fn borrow(stream: &cuda_safe::Stream) {
///     let mut done = false;
///     let _ = stream.launch_host_function(|| done = true);
/// }
/// ```
///
/// ```compile_fail,E0597
/// fn borrow(stream: &cuda_safe::Stream) {
///     let done = std::sync::atomic::AtomicBool::new(false);
///     let there = &done;
///     let _ = stream.launch_host_function(move || {
///         there.store(true, std::sync::atomic::Ordering::SeqCst);
///     });
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn send(stream: &cuda_safe::Stream) {
///     let here = std::rc::Rc::new(1);
///     let _ = stream.launch_host_function(move || drop(here));
/// }
/// ```
struct HostFunctions;

/// What cannot be checked is promised.
///
/// ```compile_fail,E0133
/// use cuda_safe::{LaunchConfig, Stream, TypedKernel};
/// fn launch(kernel: &TypedKernel<()>, stream: &Stream) {
///     let _ = kernel.launch(stream, LaunchConfig::linear(1, 1), ());
/// }
/// ```
///
/// ```compile_fail,E0133
/// use cuda_safe::{Kernel, LaunchConfig, Stream};
/// fn launch(kernel: &Kernel, stream: &Stream) {
///     let _ = kernel.launch_raw(stream, LaunchConfig::linear(1, 1), &mut []);
/// }
/// ```
///
/// ```compile_fail,E0133
/// // What it uses may be gone.
/// fn launch(graph: &cuda_safe::ExecutableGraph, stream: &cuda_safe::Stream) {
///     let _ = graph.launch(stream);
/// }
/// ```
///
/// ```compile_fail,E0133
/// // The driver trusts images.
/// fn load(context: &cuda_safe::Context, image: &[u8]) {
///     let _ = cuda_safe::Module::from_image(context, image);
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn load(image: &[u8]) {
///     let _ = cuda_safe::Library::from_image(image);
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn add(linker: &mut cuda_safe::Linker, image: &[u8]) {
///     let _ = linker.add_data(cuda_safe::LinkInput::Cubin, "image", image);
/// }
/// ```
///
/// ```compile_fail,E0133
/// // Handles of everybody else dangle.
/// fn reset(device: &cuda_safe::Device) {
///     let _ = device.reset_primary();
/// }
/// ```
///
/// ```compile_fail,E0133
/// // An address is anybody's.
/// fn write(stream: &cuda_safe::Stream, operation: cuda_safe::MemoryOperation) {
///     let _ = stream.memory_operation(operation);
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn write(stream: &cuda_safe::Stream, operations: &[cuda_safe::MemoryOperation]) {
///     let _ = stream.memory_operations(operations);
/// }
/// ```
///
/// ```compile_fail,E0133
/// // Others may use a variable of a module.
/// fn variable(global: &cuda_safe::Global, stream: &cuda_safe::Stream) {
///     let _ = global.buffer::<u32>(stream);
/// }
/// ```
///
/// ```compile_fail,E0133
/// // Handles are taken over by promise.
/// fn take(raw: cuda_safe::sys::CUstream, context: &cuda_safe::Context) {
///     let _ = cuda_safe::Stream::from_raw(raw, context);
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn borrow(address: u64, stream: &cuda_safe::Stream) {
///     let _ = cuda_safe::DeviceBuffer::<u8>::borrow_raw(address, 1, stream);
/// }
/// ```
struct Promises;

/// What gives pointers to the driver is not for others to implement.
///
/// ```compile_fail,E0277
/// #[derive(Clone, Copy)]
/// struct Mine;
/// impl cuda_safe::Param for Mine {
///     type Bytes = u64;
/// }
/// ```
///
/// ```compile_fail,E0050
/// use cuda_safe::{Argument, Result, Stream};
/// struct Anywhere;
/// impl Argument<&'static [f32]> for Anywhere {
///     fn bytes(self, _: usize, _: &Stream) -> Result<u64> {
///         Ok(0x1234)
///     }
/// }
/// ```
///
/// ```compile_fail,E0050
/// use cuda_safe::{Arguments, Result, Stream};
/// struct Anything;
/// impl Arguments<(u32,)> for Anything {
///     fn with_pointers(
///         self,
///         _: &Stream,
///         launch: impl FnOnce(&mut [*mut std::ffi::c_void]) -> Result<()>,
///     ) -> Result<()> {
///         launch(&mut [])
///     }
/// }
/// ```
///
/// ```compile_fail,E0277
/// // The arguments are those that were declared.
/// use cuda_safe::{LaunchConfig, Stream, TypedKernel};
/// fn launch(kernel: &TypedKernel<(u32,)>, stream: &Stream) {
///     let _ = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (1.0_f32,)) };
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A vector on the host is no memory of the device.
/// use cuda_safe::{LaunchConfig, Stream, TypedKernel};
/// fn launch(kernel: &TypedKernel<(&'static [f32],)>, stream: &Stream, host: &[f32]) {
///     let _ = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (host,)) };
/// }
/// ```
struct Sealed;

/// Multiprocessors are in one partition.
///
/// ```compile_fail,E0382
/// use cuda_safe::green::{GreenContext, SmGroup};
/// fn twice(group: SmGroup) {
///     let one = GreenContext::new([group]);
///     let two = GreenContext::new([group]); // a group goes into one green context
/// }
/// ```
///
/// ```compile_fail,E0382
/// use cuda_safe::green::{SmResource, SplitByCount};
/// fn twice(resource: SmResource) {
///     let one = resource.split_by_count(SplitByCount::default());
///     let two = resource.split_by_count(SplitByCount::default()); // a split consumes
/// }
/// ```
///
/// ```compile_fail,E0382
/// use cuda_safe::green::{SmGroup, SplitByCount};
/// fn twice(group: SmGroup) {
///     let one = group.split_by_count(SplitByCount::default());
///     let two = group.split_by_count(SplitByCount::default()); // so does a split of a group
/// }
/// ```
///
/// ```compile_fail,E0382
/// use cuda_safe::green::{ExactSplit, SmGroup};
/// fn twice(group: SmGroup) {
///     let one = group.split(ExactSplit::default());
///     let two = group.split(ExactSplit::default());
/// }
/// ```
///
/// ```compile_fail,E0382
/// use cuda_safe::green::Descriptor;
/// fn twice(descriptor: Descriptor) {
///     let one = descriptor.create();
///     let two = descriptor.create(); // a descriptor makes one green context
/// }
/// ```
///
/// ```compile_fail,E0382
/// use cuda_safe::green::Part;
/// fn twice(part: Part) {
///     let one = part.create();
///     let two = part.create();
/// }
/// ```
///
/// ```compile_fail,E0382
/// use cuda_safe::green::{Partitioning, PooledPartition};
/// fn twice(partition: PooledPartition, halves: &Partitioning) {
///     let one = partition.split(halves);
///     let whole = partition.stream(); // what is split is not used as a whole
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn copy<T: Clone>() {}
/// copy::<cuda_safe::green::SmGroup>();
/// ```
///
/// ```compile_fail,E0277
/// fn copy<T: Clone>() {}
/// copy::<cuda_safe::green::SmResource>();
/// ```
///
/// ```compile_fail,E0277
/// fn copy<T: Clone>() {}
/// copy::<cuda_safe::green::Descriptor>();
/// ```
///
/// ```compile_fail,E0277
/// fn copy<T: Clone>() {}
/// copy::<cuda_safe::green::PooledPartition>();
/// ```
///
/// ```compile_fail,E0308
/// // What a device has is no group until it is split.
/// use cuda_safe::green::{GreenContext, SmResource};
/// fn whole(resource: SmResource) {
///     let _ = GreenContext::new(std::iter::once::<cuda_safe::green::SmGroup>(resource));
/// }
/// ```
struct Partitions;

/// Views borrow their memory, and those that write have it for themselves.
///
/// ```compile_fail,E0505
/// use cuda_safe::{DeviceBuffer, interop::ArrayView};
/// fn outlive(buffer: DeviceBuffer<f32>) {
///     let view = ArrayView::new(&buffer, &[2, 3]).unwrap();
///     drop(buffer);
///     let _ = view.to_vec();
/// }
/// ```
///
/// ```compile_fail,E0499
/// use cuda_safe::{DeviceBuffer, interop::ArrayViewMut};
/// fn twice(buffer: &mut DeviceBuffer<f32>) {
///     let one = ArrayViewMut::new(&mut *buffer, &[2, 3]).unwrap();
///     let two = ArrayViewMut::new(&mut *buffer, &[6]).unwrap();
///     drop((one, two));
/// }
/// ```
///
/// ```compile_fail,E0502
/// use cuda_safe::interop::ArrayViewMut;
/// fn read_and_write(mut array: ArrayViewMut<'_, f32>) {
///     let view = array.as_view();
///     let _ = array.fill(0.0);
///     let _ = view.to_vec();
/// }
/// ```
///
/// ```compile_fail,E0499
/// use cuda_safe::interop::Imported;
/// fn twice(array: &mut Imported) {
///     let one = array.view_mut::<f32>().unwrap();
///     let two = array.view_mut::<f32>().unwrap();
///     drop((one, two));
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Its owner need not be.
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::interop::dlpack::Export>();
/// ```
struct Arrays;
