//! Programs that the compiler must reject, each with its error code. This module contains only
//! documentation tests.

/// Guards, and objects that depend on the current context, stay on their thread.
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::context::CurrentContext>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::context::CurrentContext>();
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
/// send::<cuda_safe::stream::DefaultStream<'static>>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::stream::DefaultStream<'static>>();
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::capture::Capture>();
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::memory::CopyScope<'_, '_>>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::memory::CopyScope<'_, '_>>();
/// ```
///
/// ```compile_fail,E0505
/// // A default stream borrows its guard.
/// fn outlive(current: cuda_safe::context::CurrentContext) {
///     let stream = current.legacy_stream();
///     drop(current);
///     let _ = stream.synchronize();
/// }
/// ```
///
/// ```compile_fail,E0505
/// // The same applies to the guard of a green context.
/// fn outlive(current: cuda_safe::green::CurrentGreenContext) {
///     let stream = current.legacy_stream();
///     drop(current);
///     let _ = stream.synchronize();
/// }
/// ```
///
/// ```compile_fail,E0515
/// // A function cannot return a default stream without its guard.
/// use cuda_safe::Context;
/// use cuda_safe::stream::DefaultStream;
/// fn keep<'a>(context: &Context) -> DefaultStream<'a> {
///     let current = context.make_current().unwrap();
///     current.per_thread_stream()
/// }
/// ```
struct Threads;

/// Objects that the driver does not lock are modified by one thread at a time.
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::module::Linker>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::Graph>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::graph::GraphRecorder>();
/// ```
///
/// ```compile_fail,E0277
/// // A buffer is `Send` only if its elements are.
/// fn send<T: Send>() {}
/// send::<cuda_safe::DeviceBuffer<std::rc::Rc<u8>>>();
/// ```
struct Locks;

/// A tensor map borrows the memory of its tensor.
///
/// ```compile_fail,E0505
/// use cuda_safe::tensor_map::{TensorLayout, TensorMap, TiledBox};
/// fn encode(memory: cuda_safe::DeviceBuffer<f32>, layout: TensorLayout) {
///     let shape = TiledBox::new(&[4]);
///     let map = TensorMap::new(&memory, layout, shape, Default::default()).unwrap();
///     drop(memory);
///     println!("{map:?}");
/// }
/// ```
///
/// ```compile_fail,E0502
/// // Kernels may write through the map.
/// use cuda_safe::tensor_map::{TensorLayout, TensorMap, TiledBox};
/// fn encode(mut memory: cuda_safe::DeviceBuffer<f32>, layout: TensorLayout) {
///     let shape = TiledBox::new(&[4]);
///     let map = TensorMap::new_mut(&mut memory, layout, shape, Default::default()).unwrap();
///     memory.to_vec().unwrap();
///     println!("{map:?}");
/// }
/// ```
struct TensorMaps;

/// The host cannot access memory that the device may use, and that memory lives long enough.
///
/// ```compile_fail,E0597
/// // The device may write until the scope ends.
/// fn lend(stream: &cuda_safe::Stream, buffer: &cuda_safe::DeviceBuffer<u8>) {
///     stream.copy_scope(|scope| {
///         let mut host = cuda_safe::PinnedBuffer::zeroed(stream.context(), 8).unwrap();
///         scope.copy_to_pinned(buffer, &mut host)
///     }).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0499
/// // The scope borrows the memory until it ends, so it cannot be borrowed twice.
/// use cuda_safe::{DeviceBuffer, PinnedBuffer, Stream};
/// fn lend(stream: &Stream, buffer: &DeviceBuffer<u8>, host: &mut PinnedBuffer<u8>) {
///     stream.copy_scope(|scope| {
///         scope.copy_to_pinned(buffer, host)?;
///         scope.copy_to_pinned(buffer, host)
///     }).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0502
/// // The host cannot read the memory while the scope borrows it.
/// use cuda_safe::{DeviceBuffer, PinnedBuffer, Stream};
/// fn lend(stream: &Stream, buffer: &DeviceBuffer<u8>, host: &mut PinnedBuffer<u8>) {
///     stream.copy_scope(|scope| {
///         let copied = scope.copy_to_pinned(buffer, host);
///         println!("{}", host[0]);
///         copied
///     }).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0506
/// // The host cannot change a slice before the batch that copies it was enqueued.
/// use cuda_safe::{DeviceBuffer, Stream};
/// use cuda_safe::memory::CopyBatch;
/// fn lend(stream: &Stream, buffer: &mut DeviceBuffer<u8>) {
///     let mut slice = [0; 8];
///     let mut batch = CopyBatch::new(stream);
///     batch.push_from_slice(buffer, &slice).unwrap();
///     slice[0] = 1;
///     batch.enqueue().unwrap();
/// }
/// ```
///
/// ```compile_fail,E0597
/// // The device may write to the memory of a batch until the scope ends.
/// use cuda_safe::{DeviceBuffer, PinnedBuffer, Stream};
/// use cuda_safe::memory::CopyBatch;
/// fn lend(stream: &Stream, buffer: &DeviceBuffer<u8>) {
///     stream.copy_scope(|scope| {
///         let mut host = PinnedBuffer::zeroed(stream.context(), 8).unwrap();
///         let mut batch = CopyBatch::new(stream);
///         batch.push_to_pinned(buffer, &mut host)?;
///         scope.enqueue(batch)
///     }).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0521
/// // The scope cannot escape from the closure.
/// use cuda_safe::{Error, Stream};
/// use cuda_safe::memory::CopyScope;
/// fn keep<'a>(stream: &'a Stream, place: &mut Option<&'a CopyScope<'a, 'a>>) {
///     stream.copy_scope(|scope| Ok::<_, Error>(*place = Some(scope))).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A borrowed part of pinned memory is a slice, not a `PinnedRange`. Copies of slices wait.
/// use cuda_safe::{DeviceBuffer, PinnedBuffer};
/// fn part(buffer: &DeviceBuffer<u8>, host: &mut PinnedBuffer<u8>) {
///     let _ = buffer.copy_to_pinned(&mut host[..8]);
/// }
/// ```
///
/// ```compile_fail,E0382
/// // A pending copy owns its range.
/// use cuda_safe::DeviceBuffer;
/// use cuda_safe::memory::PinnedRange;
/// fn read(buffer: &DeviceBuffer<u8>, host: PinnedRange<u8>) -> u8 {
///     let pending = buffer.copy_to_pinned(host).unwrap();
///     let first = host[0];
///     drop(pending);
///     first
/// }
/// ```
///
/// ```compile_fail,E0382
/// // A buffer that was divided cannot be used as a whole.
/// fn both(host: cuda_safe::PinnedBuffer<u8>) -> u8 {
///     let chunks = host.into_chunks(8).unwrap();
///     host[0]
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Uninitialized pinned memory cannot be the source of a copy.
/// use cuda_safe::{Context, DeviceBuffer, PinnedBuffer};
/// fn copy(context: &Context, buffer: &mut DeviceBuffer<u8>) {
///     let host = PinnedBuffer::<u8>::uninit(context, 8).unwrap();
///     let _ = buffer.copy_from_pinned(host);
/// }
/// ```
///
/// ```compile_fail,E0502
/// // The chunks of a buffer borrow it mutably.
/// fn read(buffer: &mut cuda_safe::DeviceBuffer<u8>) -> cuda_safe::Result<()> {
///     let chunks = buffer.chunks_exact_mut(8)?;
///     println!("{:?}", buffer.to_vec()?);
///     chunks.into_remainder().zero()
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Memory is cast only to a type that every bit pattern is valid for.
/// fn cast(buffer: cuda_safe::DeviceBuffer<u8>) {
///     let _ = buffer.cast::<bool>();
/// }
/// ```
///
/// ```compile_fail,E0599
/// // What is written as the new type is read as the old one.
/// fn cast(buffer: cuda_safe::DeviceSliceMut<'_, char>) {
///     let _ = buffer.cast::<u32>();
/// }
/// ```
///
/// ```compile_fail,E0382
/// // A pending copy owns the memory.
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
/// fn both(mut buffer: cuda_safe::memory::ManagedBuffer<u8>) -> cuda_safe::Result<()> {
///     let there = buffer.device()?;
///     let here = buffer.host()?; // while the device may use it
///     println!("{here:?} {there:?}");
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0502
/// fn both(mut buffer: cuda_safe::memory::MappedBuffer<u8>) -> cuda_safe::Result<()> {
///     let here = buffer.host()?;
///     let there = buffer.as_slice(); // while the host borrows it
///     println!("{here:?} {there:?}");
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0502
/// // A buffer stays on its stream while a slice borrows it.
/// use cuda_safe::{DeviceBuffer, Stream};
/// fn rebind(buffer: &mut DeviceBuffer<u8>, stream: &Stream) -> cuda_safe::Result<Vec<u8>> {
///     let there = buffer.as_slice();
///     buffer.rebind(stream)?;
///     there.to_vec()
/// }
/// ```
///
/// ```compile_fail,E0505
/// // Memory cannot be freed while a slice borrows it.
/// fn free(buffer: cuda_safe::memory::MappedBuffer<u8>) {
///     let there = buffer.as_slice();
///     drop(buffer);
///     println!("{there:?}");
/// }
/// ```
struct HostMemory;

/// Parts of device memory follow the borrowing rules of slices.
///
/// ```compile_fail,E0499
/// // Two writable parts of a buffer might overlap.
/// fn twice(buffer: &mut cuda_safe::DeviceBuffer<u8>) {
///     let one = buffer.slice_mut(..);
///     let two = buffer.slice_mut(..);
///     drop((one, two));
/// }
/// ```
///
/// ```compile_fail,E0382
/// // A writable part cannot be copied. `reborrow` borrows it for a shorter time.
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
/// // A kernel cannot take the same memory as two writable parameters.
/// use cuda_safe::{DeviceBuffer, LaunchConfig, Stream, TypedKernel};
/// type Two = TypedKernel<(&'static mut [u8], &'static mut [u8])>;
/// fn launch(kernel: &Two, stream: &Stream, x: &mut DeviceBuffer<u8>) {
///     let _ = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (&mut *x, &mut *x)) };
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Shared memory is read-only.
/// use cuda_safe::DeviceSliceMut;
/// use cuda_safe::memory::SharedReader;
/// fn write(reader: &mut SharedReader<u8>) -> DeviceSliceMut<'_, u8> {
///     reader.into()
/// }
/// ```
struct Parts;

/// Elements read from the device must accept any bit pattern, and elements copied to the device must
/// have no padding.
///
/// ```compile_fail,E0599
/// fn read(buffer: cuda_safe::DeviceBuffer<bool>) { let _ = buffer.to_vec(); }
/// ```
///
/// ```compile_fail,E0599
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
/// use cuda_safe::Stream;
/// use cuda_safe::memory::ManagedBuffer;
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

/// Conditions that cannot be checked make a function unsafe.
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
///     let _ = kernel.launch_builder(stream).launch(LaunchConfig::linear(1, 1));
/// }
/// ```
///
/// ```compile_fail,E0499
/// // Nothing is launched while the memory of a graph is accessed from outside.
/// use cuda_safe::{DeviceSlice, ExecutableGraph, Stream};
/// use cuda_safe::graph::GraphBuffer;
/// fn launch(graph: &mut ExecutableGraph, buffer: &mut GraphBuffer<u8>, stream: &Stream) {
///     let access = graph.access(buffer, stream).unwrap();
///     let nodes = graph.access(buffer, stream);
///     println!("{:?}", DeviceSlice::from(&access));
/// }
/// ```
///
/// ```compile_fail,E0502
/// use cuda_safe::{ExecutableGraph, Stream};
/// use cuda_safe::graph::GraphPinned;
/// fn launch(graph: &mut ExecutableGraph, host: &mut GraphPinned<u8>, stream: &Stream) {
///     let elements = graph.host(host).unwrap();
///     graph.launch(stream).unwrap();
///     elements[0] = 1;
/// }
/// ```
///
/// ```compile_fail,E0502
/// // Nothing is launched while the memory of a graph is read, even if nothing reads it later.
/// use cuda_safe::{ExecutableGraph, Stream};
/// use cuda_safe::graph::GraphBuffer;
/// fn launch(graph: &mut ExecutableGraph, buffer: &GraphBuffer<u8>, stream: &Stream) {
///     let access = graph.read_access(buffer, stream).unwrap();
///     graph.launch(stream).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0505
/// // The buffer is not returned while it is read.
/// use cuda_safe::{ExecutableGraph, Stream};
/// use cuda_safe::graph::GraphBuffer;
/// fn reuse(graph: &mut ExecutableGraph, buffer: GraphBuffer<u8>, stream: &Stream) {
///     let access = graph.read_access(&buffer, stream).unwrap();
///     let _ = buffer.into_buffer();
///     let _ = access.as_slice().to_vec();
/// }
/// ```
///
/// ```compile_fail,E0505
/// // Work on the memory is enqueued before the access ends.
/// use cuda_safe::graph::GraphReadAccess;
/// fn read(access: GraphReadAccess<'_, u8>) {
///     let slice = access.as_slice();
///     drop(access);
///     let _ = slice.to_vec();
/// }
/// ```
///
/// ```compile_fail,E0505
/// // Work on the memory is enqueued before the access ends.
/// use cuda_safe::graph::GraphAccess;
/// fn read(access: GraphAccess<'_, u8>) {
///     let slice = access.as_slice();
///     drop(access);
///     let _ = slice.to_vec();
/// }
/// ```
///
/// ```compile_fail,E0499
/// // A graph does not change while a child graph is read.
/// use cuda_safe::graph::{Graph, Node, kind};
/// fn read(graph: &mut Graph, node: Node<kind::Child>) {
///     let mut child = graph.child(node).unwrap();
///     graph.remove(node).unwrap();
///     let _ = child.nodes();
/// }
/// ```
///
/// ```compile_fail,E0505
/// use cuda_safe::graph::{ChildGraph, Graph, Node, kind};
/// fn read(mut graph: Graph, node: Node<kind::Child>) {
///     let mut child: ChildGraph<'_> = graph.child(node).unwrap();
///     drop(graph);
///     let _ = child.nodes();
/// }
/// ```
///
/// ```compile_fail,E0499
/// // A node cannot take the same memory as two writable parameters.
/// use cuda_safe::{Context, Graph, LaunchConfig, TypedKernel};
/// use cuda_safe::graph::GraphBuffer;
/// type Two = TypedKernel<(&'static mut [u8], &'static mut [u8])>;
/// fn add(graph: &mut Graph, context: &Context, kernel: &Two, x: &mut GraphBuffer<u8>) {
///     let config = LaunchConfig::linear(1, 1);
///     let _ = unsafe { graph.add_kernel(&[], context, kernel, config, (&mut *x, &mut *x)) };
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A node that writes needs a mutable borrow.
/// use cuda_safe::Graph;
/// use cuda_safe::graph::GraphBuffer;
/// fn fill(graph: &mut Graph, x: &GraphBuffer<u8>) {
///     let _ = graph.add_fill(&[], x, 1);
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Memory that the graph does not own may be freed before a launch.
/// use cuda_safe::{DeviceBuffer, Graph};
/// fn copy(graph: &mut Graph, to: &mut DeviceBuffer<u8>, from: &DeviceBuffer<u8>) {
///     let _ = graph.add_copy(&[], to, from);
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A host function may run on several threads at the same time.
/// fn add(graph: &mut cuda_safe::Graph) {
///     let count = std::cell::Cell::new(0);
///     let _ = graph.add_host_function(&[], move || count.set(count.get() + 1));
/// }
/// ```
///
/// ```compile_fail,E0277
/// // There is no memory outside of the launches of the graph: a buffer is taken instead.
/// use cuda_safe::DeviceBuffer;
/// use cuda_safe::graph::GraphAllocation;
/// fn read(buffer: &mut DeviceBuffer<u8>, x: &GraphAllocation<u8>) {
///     let _ = buffer.copy_from(x);
/// }
/// ```
///
/// ```compile_fail,E0308
/// use cuda_safe::{ExecutableGraph, Stream};
/// use cuda_safe::graph::GraphAllocation;
/// fn read(graph: &mut ExecutableGraph, x: &mut GraphAllocation<u8>, stream: &Stream) {
///     let _ = graph.access(x, stream);
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A node that writes needs a mutable borrow.
/// use cuda_safe::Graph;
/// use cuda_safe::graph::GraphAllocation;
/// fn fill(graph: &mut Graph, x: &GraphAllocation<u8>) {
///     let _ = graph.add_fill(&[], x, 1);
/// }
/// ```
///
/// ```compile_fail,E0308
/// // Only memory of an allocation node has a free node.
/// use cuda_safe::Graph;
/// use cuda_safe::graph::GraphBuffer;
/// fn free(graph: &mut Graph, x: &mut GraphBuffer<u8>) {
///     let _ = graph.add_free(&[], x);
/// }
/// ```
///
/// ```compile_fail,E0502
/// // No launch is in progress when the memory is taken.
/// use cuda_safe::{ExecutableGraph, Stream};
/// use cuda_safe::graph::GraphAllocation;
/// fn take(graph: &mut ExecutableGraph, x: &GraphAllocation<u8>, stream: &Stream) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| graph.launch(stream));
///         let _ = graph.take_allocation(x, stream);
///     });
/// }
/// ```
///
/// ```compile_fail,E0133
/// // Memory that the graph uses may have been freed.
/// fn launch(graph: &cuda_safe::ExecutableGraph, stream: &cuda_safe::Stream) {
///     let _ = graph.launch_unchecked(stream);
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Outside of the graph of the handle, a kernel that sets it is fatal to the process.
/// use cuda_safe::graph::ConditionalHandle;
/// use cuda_safe::{LaunchConfig, Stream, TypedKernel};
/// type Choose = TypedKernel<(ConditionalHandle, u32)>;
/// fn launch(kernel: &Choose, stream: &Stream, handle: ConditionalHandle) {
///     let _ = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (handle, 1)) };
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A kernel launches only graphs that were uploaded for it.
/// use cuda_safe::graph::DeviceGraph;
/// use cuda_safe::{Context, ExecutableGraph, Graph, LaunchConfig, TypedKernel};
/// type Start = TypedKernel<(DeviceGraph,)>;
/// fn add(graph: &mut Graph, context: &Context, kernel: &Start, other: &ExecutableGraph) {
///     let config = LaunchConfig::linear(1, 1);
///     let _ = unsafe { graph.add_kernel(&[], context, kernel, config, (other,)) };
/// }
/// ```
///
/// ```compile_fail,E0382
/// // The host does not launch a graph that kernels may launch.
/// use cuda_safe::graph::DeviceGraph;
/// use cuda_safe::{ExecutableGraph, Stream};
/// fn upload(graph: ExecutableGraph, stream: &Stream) {
///     let device = DeviceGraph::new(graph, stream).unwrap();
///     graph.launch(stream).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0501
/// // The graph is not used while a body is changed.
/// use cuda_safe::Graph;
/// use cuda_safe::graph::ConditionalHandle;
/// fn add(graph: &mut Graph, handle: ConditionalHandle) {
///     let _ = graph.add_if(&[], handle, |body| {
///         graph.add_empty(&[])?;
///         Ok(())
///     });
/// }
/// ```
///
/// ```compile_fail,E0133
/// // The driver does not validate images.
/// fn load(context: &cuda_safe::Context, image: &[u8]) {
///     let _ = cuda_safe::Module::from_image(context, image);
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn load(image: &[u8]) {
///     let _ = cuda_safe::module::Library::from_image(image);
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn add(linker: &mut cuda_safe::module::Linker, image: &[u8]) {
///     let _ = linker.add_data(cuda_safe::module::LinkInput::Cubin, "image", image);
/// }
/// ```
///
/// ```compile_fail,E0133
/// // A reset invalidates handles held by other code.
/// fn reset(device: &cuda_safe::Device) {
///     let _ = device.reset_primary();
/// }
/// ```
///
/// ```compile_fail,E0133
/// // The driver does not check who owns the memory at an address.
/// fn write(stream: &cuda_safe::Stream, operation: cuda_safe::stream::MemoryOperation) {
///     let _ = stream.memory_operation(operation);
/// }
/// ```
///
/// ```compile_fail,E0133
/// fn write(stream: &cuda_safe::Stream, operations: &[cuda_safe::stream::MemoryOperation]) {
///     let _ = stream.memory_operations(operations);
/// }
/// ```
///
/// ```compile_fail,E0133
/// // Other code may use the same variable of a module.
/// fn variable(global: &cuda_safe::module::Global, stream: &cuda_safe::Stream) {
///     let _ = global.buffer::<u32>(stream);
/// }
/// ```
///
/// ```compile_fail,E0133
/// // The caller must guarantee that it owns the handle.
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

/// Traits that pass pointers to the driver cannot be implemented outside of the crate.
///
/// ```compile_fail,E0277
/// #[derive(Clone, Copy)]
/// struct Mine;
/// impl cuda_safe::launch::Param for Mine {
///     type Bytes = u64;
/// }
/// ```
///
/// ```compile_fail,E0053
/// use cuda_safe::{Result, Stream};
/// use cuda_safe::launch::Argument;
/// struct Anywhere;
/// impl Argument<&'static [f32]> for Anywhere {
///     fn bytes(self, _: usize, _: &Stream) -> Result<u64> {
///         Ok(0x1234)
///     }
/// }
/// ```
///
/// ```compile_fail,E0053
/// use cuda_safe::{Result, Stream};
/// use cuda_safe::launch::Arguments;
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
/// // The arguments must have the declared types.
/// use cuda_safe::{LaunchConfig, Stream, TypedKernel};
/// fn launch(kernel: &TypedKernel<(u32,)>, stream: &Stream) {
///     let _ = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (1.0_f32,)) };
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A host slice is not device memory.
/// use cuda_safe::{LaunchConfig, Stream, TypedKernel};
/// fn launch(kernel: &TypedKernel<(&'static [f32],)>, stream: &Stream, host: &[f32]) {
///     let _ = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (host,)) };
/// }
/// ```
struct Sealed;

/// A multiprocessor belongs to only one partition.
///
/// ```compile_fail,E0382
/// use cuda_safe::green::{GreenContext, SmGroup};
/// fn twice(group: SmGroup) {
///     let one = GreenContext::new([group]);
///     let two = GreenContext::new([group]); // a group belongs to only one green context
/// }
/// ```
///
/// ```compile_fail,E0382
/// use cuda_safe::green::{SmGroup, SplitByCount};
/// fn twice(group: SmGroup) {
///     let one = group.split_by_count(SplitByCount::default());
///     let two = group.split_by_count(SplitByCount::default()); // a split consumes the group
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
///     let two = descriptor.create(); // a descriptor creates only one green context
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
/// use cuda_safe::green::{PartitionRequest, PooledPartition};
/// fn twice(partition: PooledPartition, halves: &PartitionRequest) {
///     let one = partition.split(halves);
///     let whole = partition.stream(); // a split partition cannot be used as a whole
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
/// // The resource of a device must be split before it is used as a group.
/// use cuda_safe::green::{GreenContext, SmResource};
/// fn whole(resource: SmResource) {
///     let _ = GreenContext::new(std::iter::once::<cuda_safe::green::SmGroup>(resource));
/// }
/// ```
struct Partitions;

/// Views borrow their memory, and writable views borrow it exclusively.
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
/// // The owner of an export does not have to be `Sync`.
/// fn sync<T: Sync>() {}
/// sync::<cuda_safe::interop::dlpack::Export>();
/// ```
struct Arrays;

/// A launch builder borrows its buffers, and takes only what a kernel can be given.
///
/// ```compile_fail,E0505
/// use cuda_safe::{DeviceBuffer, Kernel, LaunchConfig, Stream};
/// fn outlive(kernel: &Kernel, stream: &Stream, buffer: DeviceBuffer<u8>) {
///     let mut launch = kernel.launch_builder(stream);
///     launch.arg(&buffer);
///     drop(buffer);
///     let _ = unsafe { launch.launch(LaunchConfig::linear(1, 1)) };
/// }
/// ```
///
/// ```compile_fail,E0499
/// // A kernel cannot take the same memory as two writable parameters.
/// use cuda_safe::{DeviceBuffer, Kernel, Stream};
/// fn twice(kernel: &Kernel, stream: &Stream, buffer: &mut DeviceBuffer<u8>) {
///     let mut launch = kernel.launch_builder(stream);
///     launch.arg(&mut *buffer).arg(&mut *buffer);
/// }
/// ```
///
/// ```compile_fail,E0502
/// // The buffer is borrowed until the last launch.
/// use cuda_safe::{DeviceBuffer, Kernel, LaunchConfig, Stream};
/// fn read(kernel: &Kernel, stream: &Stream, buffer: &mut DeviceBuffer<u8>) {
///     let mut launch = kernel.launch_builder(stream);
///     launch.arg(&mut *buffer);
///     let _ = buffer.to_vec();
///     let _ = unsafe { launch.launch(LaunchConfig::linear(1, 1)) };
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A host slice is not device memory.
/// use cuda_safe::{Kernel, Stream};
/// fn host(kernel: &Kernel, stream: &Stream, host: &[f32]) {
///     kernel.launch_builder(stream).arg(host);
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A `char` is no type of CUDA C++.
/// use cuda_safe::{Kernel, Stream};
/// fn letter(kernel: &Kernel, stream: &Stream) {
///     kernel.launch_builder(stream).arg('a');
/// }
/// ```
///
/// ```compile_fail,E0277
/// // A type that is not device memory cannot be made an argument.
/// struct Mine;
/// impl cuda_safe::launch::LaunchArgument for Mine {
///     type Param = &'static [f32];
/// }
/// ```
///
/// ```compile_fail,E0277
/// // The types of the arguments are erased, so a builder stays on its thread.
/// fn send<T: Send>() {}
/// send::<cuda_safe::launch::LaunchBuilder<'_>>();
/// ```
struct Builders;

/// Parameters and arguments of typed kernels.
///
/// ```compile_fail,E0277
/// // A list has up to 24 parameters. `Kernel::launch_builder` takes more.
/// fn list<P: cuda_safe::launch::Params>() {}
/// list::<(
///     u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8, u8,
///     u8, u8,
/// )>();
/// ```
///
/// ```compile_fail,E0277
/// // One parameter is a tuple with a comma.
/// fn list<P: cuda_safe::launch::Params>() {}
/// list::<(u32)>();
/// ```
///
/// ```compile_fail,E0277
/// // A struct with padding is a parameter only if its layout was promised.
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Padded(u8, u32);
/// fn parameter<P: cuda_safe::launch::Param>() {}
/// parameter::<cuda_safe::launch::Value<Padded>>();
/// ```
///
/// ```compile_fail,E0200
/// // That promise is unsafe.
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Padded(u8, u32);
/// impl cuda_safe::launch::KernelValue for Padded {}
/// ```
///
/// ```compile_fail,E0277
/// // A parameter that the kernel writes takes a buffer by `&mut`.
/// use cuda_safe::{DeviceBuffer, LaunchConfig, Stream, TypedKernel};
/// type Writes = TypedKernel<(&'static mut [f32],)>;
/// fn launch(kernel: &Writes, stream: &Stream, x: &DeviceBuffer<f32>) {
///     let _ = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (x,)) };
/// }
/// ```
struct Parameters;

/// A capture owns the graph that it captures into, and ends on the thread that began it.
///
/// ```compile_fail,E0382
/// // The driver destroys the graph if the capture fails.
/// use cuda_safe::{Error, Graph, Stream};
/// use cuda_safe::capture::CaptureMode;
/// fn capture(stream: &Stream, graph: Graph) {
///     let _ = stream.capture_into::<Error>(graph, &[], CaptureMode::default(), |_| Ok(()));
///     let _ = graph.instantiate();
/// }
/// ```
///
/// ```compile_fail,E0382
/// // The state of the graph is undefined if the recapture fails.
/// use cuda_safe::{Graph, Stream};
/// use cuda_safe::capture::CaptureMode;
/// fn capture(stream: &Stream, graph: Graph) {
///     let recapture = stream.begin_recapture(graph, CaptureMode::default());
///     let _ = graph.instantiate();
///     drop(recapture);
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::capture::Recapture>();
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<cuda_safe::capture::GraphicsCapture>();
/// ```
///
/// ```compile_fail,E0373
/// // The graph may run a captured host function after the end of the values that it borrows.
/// fn capture(stream: &cuda_safe::Stream) {
///     let text = String::from("text");
///     let _ = stream.capture_host_function(|| println!("{text}"));
/// }
/// ```
///
/// ```compile_fail,E0507
/// // Each launch calls a captured host function.
/// fn capture(stream: &cuda_safe::Stream) {
///     let text = String::from("text");
///     let _ = stream.capture_host_function(move || drop(text));
/// }
/// ```
///
/// ```compile_fail,E0382
/// // The graph is not changed by a recorder after it was returned.
/// fn record(mut recorder: cuda_safe::graph::GraphRecorder) {
///     let _ = recorder.into_graph();
///     let _ = recorder.host_function(|| ());
/// }
/// ```
///
/// ```compile_fail,E0133
/// // The recorder does not know which memory the work of a library uses.
/// use cuda_safe::Error;
/// use cuda_safe::capture::CaptureMode;
/// use cuda_safe::graph::GraphRecorder;
/// fn capture(recorder: &mut GraphRecorder) {
///     let _ = recorder.capture::<Error>(CaptureMode::default(), |_| Ok(()));
/// }
/// ```
///
/// ```compile_fail,E0133
/// // Other threads may change the driver's list of dependencies.
/// fn read(capture: &mut cuda_safe::capture::Capture) {
///     let _ = capture.dependencies();
/// }
/// ```
struct Captures;

/// An order borrows its stream.
///
/// ```compile_fail,E0505
/// use cuda_safe::{Stream, manager::Order};
/// fn outlive(stream: Stream) {
///     let order = Order::of(&stream);
///     drop(stream);
///     let _ = order.key();
/// }
/// ```
///
/// ```compile_fail,E0505
/// // The order of a stream that ends is valid only during the notification.
/// use cuda_safe::manager::StreamEnd;
/// fn outlive(end: StreamEnd<'_>) {
///     let order = end.order();
///     drop(end);
///     let _ = order.key();
/// }
/// ```
///
/// ```compile_fail,E0505
/// use cuda_safe::manager::FreeCounter;
/// fn outlive(frees: FreeCounter) {
///     let freeing = frees.begin();
///     drop(frees);
///     drop(freeing);
/// }
/// ```
struct Managers;

/// Textures and surfaces borrow or own their memory.
///
/// ```compile_fail,E0505
/// use cuda_safe::array::{Array, Sampler, Texture};
/// fn outlive(array: Array<f32>) {
///     let texture = Texture::new(&array, &Sampler::default());
///     drop(array);
///     drop(texture);
/// }
/// ```
///
/// ```compile_fail,E0502
/// // An array is not written while a texture of it exists.
/// use cuda_safe::array::{Array, Sampler, Texture};
/// fn write(mut array: Array<f32>) {
///     let texture = Texture::new(&array, &Sampler::default());
///     let _ = array.copy_from_slice(&[1.0]);
///     drop(texture);
/// }
/// ```
///
/// ```compile_fail,E0502
/// // A texture and a surface of the same array do not exist at once.
/// use cuda_safe::array::{Array, Sampler, Surface, Texture};
/// fn both(mut array: Array<f32>) {
///     let texture = Texture::new(&array, &Sampler::default());
///     let surface = Surface::new(&mut array);
///     drop((texture, surface));
/// }
/// ```
///
/// ```compile_fail,E0505
/// use cuda_safe::array::{ReadMode, Texture};
/// fn outlive(buffer: cuda_safe::DeviceBuffer<f32>) {
///     let texture = Texture::linear(&buffer, ReadMode::Element);
///     drop(buffer);
///     drop(texture);
/// }
/// ```
///
/// ```compile_fail,E0505
/// // A level borrows its array.
/// fn outlive(array: cuda_safe::array::MipmappedArray<f32>) {
///     let level = array.level(0);
///     drop(array);
///     drop(level);
/// }
/// ```
///
/// ```compile_fail,E0502
/// // Tiles are not unmapped while a texture of the array exists.
/// use cuda_safe::array::{Sampler, SparseArray, Texture};
/// fn unmap(mut array: SparseArray<f32>) {
///     let texture = Texture::new(&array, &Sampler::default());
///     let _ = array.unmap([0; 3], cuda_safe::memory::Extent::new_2d(128, 128));
///     drop(texture);
/// }
/// ```
///
/// ```compile_fail,E0502
/// // A part of a sparse array keeps its tiles mapped.
/// fn unmap(mut array: cuda_safe::array::SparseArray<f32>) {
///     let part = array.part([0; 3], cuda_safe::memory::Extent::new_2d(1, 1));
///     let _ = array.unmap([0; 3], cuda_safe::memory::Extent::new_2d(128, 128));
///     drop(part);
/// }
/// ```
///
/// ```compile_fail,E0599
/// // No format has three channels.
/// use cuda_safe::array::{Array, ArrayShape};
/// fn three(stream: &cuda_safe::Stream) {
///     let _ = Array::<[f32; 3]>::new(stream, ArrayShape::OneD { width: 4 });
/// }
/// ```
///
/// ```compile_fail,E0277
/// // Only arrays have surfaces.
/// fn linear(buffer: cuda_safe::DeviceBuffer<f32>) {
///     let _ = cuda_safe::array::Surface::new(buffer);
/// }
/// ```
struct CudaArrays;
/// The type of a process is its state.
///
/// ```compile_fail,E0599
/// use cuda_safe::process::checkpoint::RunningProcess;
/// fn checkpoint_without_lock(process: RunningProcess) {
///     let _ = process.checkpoint();
/// }
/// ```
///
/// ```compile_fail,E0599
/// use cuda_safe::process::checkpoint::CheckpointedProcess;
/// fn unlock_before_restore(process: CheckpointedProcess) {
///     let _ = process.unlock();
/// }
/// ```
///
/// ```compile_fail,E0382
/// use cuda_safe::process::checkpoint::LockedProcess;
/// fn use_after_unlock(process: LockedProcess) {
///     let _ = process.unlock();
///     let _ = process.checkpoint();
/// }
/// ```
///
/// ```compile_fail,E0373
/// // The closure of a callback outlives the function that registers it.
/// use cuda_safe::process::logs::LogCallback;
/// fn borrow(_: &mut Option<LogCallback>) {
///     let text = String::new();
///     let closure = || drop(text.len());
///     let _ = LogCallback::new(move |_, _| closure());
/// }
/// ```
struct Processes;

/// External memory and semaphores.
///
/// ```compile_fail,E0133
/// // A mapping does not know what the other API does.
/// use cuda_safe::external::ExternalMapping;
/// fn bind(mapping: ExternalMapping, stream: &cuda_safe::Stream) {
///     let _ = mapping.into_buffer::<u32>(stream);
/// }
/// ```
///
/// ```compile_fail,E0382
/// // An import takes the descriptor.
/// use cuda_safe::external::TimelineSemaphore;
/// fn import(context: &cuda_safe::Context, descriptor: std::os::fd::OwnedFd) {
///     // SAFETY: not called.
///     let _ = unsafe { TimelineSemaphore::import(context, descriptor) };
///     drop(descriptor);
/// }
/// ```
///
/// ```compile_fail,E0308
/// // Signals of a semaphore are in one order.
/// use cuda_safe::external::TimelineSemaphore;
/// fn signal(stream: &cuda_safe::Stream, semaphore: &TimelineSemaphore) {
///     let _ = stream.signal_timeline(semaphore, 1);
/// }
/// ```
///
/// ```compile_fail,E0599
/// // A second object would not know the signals of the first.
/// use cuda_safe::external::BinarySemaphore;
/// fn share(semaphore: BinarySemaphore) {
///     let _ = semaphore.clone();
/// }
/// ```
struct Externals;

/// No macro of `cuda-sys` contains an `unsafe` block that a program can fill.
///
/// ```compile_fail,E0133
/// let slot = cuda_sys::Slot::new();
/// let address = 8 as *mut core::ffi::c_void;
/// let _function = cuda_sys::lazy_extern!(@function slot, address, extern "C" fn());
/// ```
struct Macros;
