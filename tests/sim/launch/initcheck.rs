//! initcheck: which memory the operations of the driver write.

use crate::prelude::*;
use cuda_sim::checks::{Check, Checks};
use std::collections::BTreeSet;

const SEED: &str = "TEST_SEED";
const SEEDS: u32 = 20;

/// Returns a module with a kernel of this name, and parameters `a` and `b`.
fn text(name: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .extern .func (.param .b64 r) malloc(.param .b64 n);\n\
         .visible .entry {name}(.param .u64 a, .param .u64 b) {{\n\
         .reg .pred %p; .reg .b32 %r; .reg .b64 %a, %b;\n\
         ld.param.u64 %a, [a]; ld.param.u64 %b, [b];\n{body}\nret;\n}}\n"
    )
}

/// Branches on the word at `a`.
const USE: &str =
    "ld.global.u32 %r, [%a]; setp.eq.u32 %p, %r, 7; @%p bra E; add.u32 %r, %r, 1;\nE:";

/// A stream, and the kernels so far.
struct Bench {
    context: Context,
    stream: Stream,
    kernels: RefCell<BTreeSet<String>>,
}

impl Bench {
    fn kernel(&self, name: &str, body: &str) -> Result<TypedKernel<(u64, u64)>> {
        self.kernels.borrow_mut().insert(name.to_owned());
        Module::from_ptx(&self.context, &text(name, body))?.kernel(name)?.typed()
    }

    /// Launches a kernel with one thread.
    fn run(&self, name: &str, body: &str, a: u64, b: u64) -> Result<()> {
        let kernel = self.kernel(name, body)?;
        // SAFETY: the callers pass addresses of words that the body accesses.
        unsafe { kernel.launch(&self.stream, LaunchConfig::linear(1, 1), (a, b)) }?;
        self.stream.synchronize()
    }

    /// Launches a kernel that uses a word. Names that begin with `wrong` are those of kernels with a finding.
    fn uses(&self, name: &str, address: u64) -> Result<()> {
        self.run(name, USE, address, 0)
    }

    fn uninit(&self) -> Result<DeviceBuffer<u32>> {
        DeviceBuffer::uninit(&self.stream, 16)
    }
}

fn allocations(bench: &Bench) -> Result<()> {
    let stream = &bench.stream;
    bench.uses("wrong_stream_ordered", bench.uninit()?.as_raw())?;
    bench.uses("wrong_synchronous", DeviceBuffer::<u32>::uninit_sync(stream, 16)?.as_raw())?;
    let mut first = bench.uninit()?;
    first.as_mut_slice().fill(1)?;
    drop(first);
    bench.uses("wrong_reuse_of_a_pool", bench.uninit()?.as_raw())?;
    let large = DeviceBuffer::<u32>::uninit(stream, 4 << 20)?;
    bench.uses("wrong_large", large.as_raw() + (12 << 20))?;
    bench.run("write_large", "st.global.u32 [%a], 5;", large.as_raw() + (12 << 20), 0)?;
    bench.uses("right_large", large.as_raw() + (12 << 20))?;
    bench.uses("right_managed", ManagedBuffer::<u32>::zeroed(stream, 16)?.as_raw())?;
    let malloc = "{ .param .b64 n; .param .b64 r; st.param.b64 [n], 64; call.uni (r), malloc, (n);
                    ld.param.b64 %a, [r]; }";
    bench.run("wrong_malloc", &format!("{malloc}{USE}"), 0, 0)?;
    bench.run("right_malloc", &format!("{malloc} st.global.u32 [%a], %r;{USE}"), 0, 0)
}

fn writes(bench: &Bench) -> Result<()> {
    let stream = &bench.stream;
    bench.uses("right_memset", DeviceBuffer::<u32>::zeroed(stream, 16)?.as_raw())?;
    let mut part = bench.uninit()?;
    part.slice_mut(..4)?.fill(7)?;
    bench.uses("right_part_of_a_memset", part.as_raw() + 12)?;
    bench.uses("wrong_after_a_memset", part.as_raw() + 16)?;
    let mut word = DeviceBuffer::<u32>::uninit_sync(stream, 16)?;
    word.as_mut_slice().write_value(9, 3)?;
    bench.uses("right_write_value", word.as_raw() + 36)?;
    bench.uses("wrong_after_write_value", word.as_raw() + 40)?;

    bench.uses("right_host_to_device", DeviceBuffer::from_slice(stream, &[1u32; 16])?.as_raw())?;
    let mut part = bench.uninit()?;
    part.slice_mut(4..8)?.copy_from_slice(&[1; 4])?;
    bench.uses("right_part_of_a_copy", part.as_raw() + 16)?;
    bench.uses("wrong_before_a_copy", part.as_raw() + 12)?;
    let mut pinned = bench.uninit()?;
    let source = PinnedBuffer::<u32>::zeroed(&bench.context, 16)?;
    drop(pinned.copy_from_pinned(source)?.synchronize()?);
    bench.uses("right_copy_of_pinned_memory", pinned.as_raw())?;

    let mut written = bench.uninit()?;
    bench.run("write", "st.global.v2.u32 [%a+8], {%r, %r};", written.as_raw(), 0)?;
    bench.uses("right_kernel", written.as_raw() + 12)?;
    bench.uses("wrong_beside_a_kernel", written.as_raw() + 16)?;
    // The host has values for all bytes.
    let read = written.to_vec()?;
    written.as_mut_slice().copy_from_slice(&read)?;
    bench.uses("right_over_the_host", written.as_raw() + 16)?;

    cuda_sim::kernel::register("registered", |launch| launch.update::<u32>(0, 2, |_, _| 1));
    let target = bench.uninit()?;
    bench.run("registered", "", target.as_raw(), 0)?;
    bench.uses("right_registered_kernel", target.as_raw() + 4)?;
    bench.uses("wrong_after_a_registered_kernel", target.as_raw() + 8)
}

fn copies(bench: &Bench) -> Result<()> {
    let stream = &bench.stream;
    let mut copied = bench.uninit()?;
    copied.copy_from(&DeviceBuffer::zeroed(stream, 16)?)?;
    bench.uses("right_copy", copied.as_raw())?;
    copied.copy_from(&bench.uninit()?)?;
    bench.uses("wrong_copy_over_written_memory", copied.as_raw())?;

    let whole = Extent::new_2d(4, 4);
    let zeros = DeviceBuffer::<u32>::zeroed(stream, 16)?;
    let mut columns = bench.uninit()?;
    let half = Extent::new_2d(2, 4);
    columns.as_mut_slice().copy_3d_from(half, Region::new(whole), &zeros, Region::new(whole))?;
    bench.uses("right_column", columns.as_raw() + 20)?;
    bench.uses("wrong_other_column", columns.as_raw() + 24)?;
    let mut filled = bench.uninit()?;
    filled.as_mut_slice().fill_3d(half, Region::new(whole), 7)?;
    bench.uses("right_filled_column", filled.as_raw() + 20)?;
    bench.uses("wrong_column_that_is_not_filled", filled.as_raw() + 24)?;
    let mut target = DeviceBuffer::<u32>::zeroed(stream, 16)?;
    target.as_mut_slice().copy_3d_from(half, Region::new(whole), &columns, Region::new(whole))?;
    bench.uses("right_copied_column", target.as_raw() + 20)?;
    target.as_mut_slice().copy_3d_from(
        half,
        Region::new(whole),
        &bench.uninit()?,
        Region::new(whole),
    )?;
    bench.uses("wrong_copied_column", target.as_raw() + 20)?;

    // A byte and a word, which a kernel writes and copies.
    let pair = DeviceBuffer::<u64>::uninit(stream, 2)?;
    let body = "st.global.u8 [%a], 1; st.global.u32 [%a+4], 1; ld.global.u64 %b, [%a]; st.global.u64 [%a+8], %b;";
    bench.run("pair", body, pair.as_raw(), 0)?;
    let mut copied = DeviceBuffer::<u64>::uninit(stream, 2)?;
    copied.copy_from(&pair)?;
    bench.uses("right_field", copied.as_raw() + 12)?;
    bench.uses("wrong_padding", copied.as_raw() + 8)?;
    let managed = ManagedBuffer::<u64>::zeroed(stream, 2)?;
    let copy = "ld.global.u64 %b, [%a]; ld.param.u64 %a, [b]; st.global.u64 [%a], %b;";
    bench.run("right_copy_of_padding_to_the_host", copy, pair.as_raw() + 8, managed.as_raw())?;
    bench.run("wrong_copy_to_the_host", copy, bench.uninit()?.as_raw(), managed.as_raw())
}

fn variables(bench: &Bench) -> Result<()> {
    let globals = include_str!("../../kernels/globals.ptx");
    let module = Module::from_ptx(&bench.context, globals)?;
    let counter = module.global("counter")?.as_raw();
    bench.uses("right_variable", counter)?;
    let copy = "ld.global.u32 %r, [%a]; st.global.u32 [%b], %r;";
    bench.run("copy", copy, bench.uninit()?.as_raw(), counter)?;
    bench.uses("wrong_variable", counter)
}

fn graphs(bench: &Bench) -> Result<()> {
    let (context, stream) = (&bench.context, &bench.stream);
    let (wrong, right) = (
        bench.kernel("wrong_memory_of_a_graph", USE)?,
        bench.kernel("right_fill_of_a_graph", USE)?,
    );
    let again = bench.kernel("wrong_memory_of_a_graph_again", USE)?;
    let mut graph = Graph::new(context)?;
    let (node, mut memory) = graph.add_alloc::<u32>(&[], 16, &AllocOptions::default())?;
    let (address, one) = (memory.as_raw(), LaunchConfig::linear(1, 1));
    // SAFETY: the kernel reads a word of the memory of the graph, after its allocation.
    let used = unsafe { graph.add_kernel(&[node.id()], context, &wrong, one, (address, 0)) }?;
    let filled = graph.add_fill(&[used.id()], &mut memory, 7)?;
    // SAFETY: as above.
    let used = unsafe { graph.add_kernel(&[filled.id()], context, &right, one, (address, 0)) }?;
    graph.add_free(&[used.id()], &mut memory)?;
    let executable = graph.instantiate()?;
    executable.launch(stream)?;
    stream.synchronize()?;
    drop(graph);

    // The second launch gets memory that the first one has written.
    let mut graph = Graph::new(context)?;
    let (node, mut memory) = graph.add_alloc::<u32>(&[], 16, &AllocOptions::default())?;
    let flag = DeviceBuffer::<u32>::zeroed(stream, 1)?;
    let first = "ld.global.u32 %r, [%b]; setp.eq.u32 %p, %r, 0; @!%p bra E; st.global.u32 [%b], 1; st.global.u32 [%a], 1;\nE:";
    let first = bench.kernel("first", first)?;
    let arguments = (memory.as_raw(), flag.as_raw());
    // SAFETY: the kernel accesses a word of the memory of the graph, after its allocation, and the flag.
    let set = unsafe { graph.add_kernel(&[node.id()], context, &first, one, arguments) }?;
    // SAFETY: as for the first graph.
    let used = unsafe { graph.add_kernel(&[set.id()], context, &again, one, arguments) }?;
    graph.add_free(&[used.id()], &mut memory)?;
    let executable = graph.instantiate()?;
    executable.launch(stream)?;
    stream.synchronize()?;
    let is_found = || {
        cuda_sim::findings().iter().any(|its| its.error.kernel == "wrong_memory_of_a_graph_again")
    };
    assert!(!is_found());
    executable.launch(stream)?;
    stream.synchronize()
}

#[test]
fn kernels_that_use_memory_which_nothing_has_written_are_found() {
    for seed in 0..=SEEDS {
        if !common::child::entered(&[(SEED, &seed.to_string())]) {
            continue;
        }
        let seed = std::env::var(SEED).map_or(0, |seed| seed.parse().expect("a number"));
        let checks = Checks::MEMCHECK.with(Check::Initcheck);
        start(Profile::h200().with_kernel_checks(checks).with_seed(seed));
        let context = context();
        let stream = context.stream().expect("a stream");
        let bench = Bench { context, stream, kernels: RefCell::default() };
        let done = allocations(&bench)
            .and_then(|()| writes(&bench))
            .and_then(|()| copies(&bench))
            .and_then(|()| variables(&bench))
            .and_then(|()| graphs(&bench));
        done.expect("all calls succeed");
        let found = cuda_sim::findings();
        let names: BTreeSet<String> = found.iter().map(|its| its.error.kernel.clone()).collect();
        let mut expected = bench.kernels.take();
        expected.retain(|name| name.starts_with("wrong"));
        assert_eq!(names, expected);
        assert!(found.iter().all(|its| its.error.check == Check::Initcheck && its.seed == seed));
        return;
    }
}

#[test]
fn copies_to_the_host_of_memory_that_nothing_has_written_are_misuses() {
    let checks = Checks::MEMCHECK.with(Check::Initcheck);
    in_child!(start(Profile::h200().with_kernel_checks(checks)));
    let context = context();
    let stream = &context.stream().expect("a stream");
    let found = |expected: &str| {
        let misuses = cuda_sim::misuses();
        assert!(misuses.last().is_some_and(|its| its.contains(expected)), "{misuses:?}");
        misuses.len()
    };
    let memory = || DeviceBuffer::<u32>::uninit(stream, 16).expect("memory");
    let succeeds = |code: CUresult| assert!(code.is_success(), "{code}");
    let mut buffer = memory();
    let pinned = || PinnedBuffer::<u32>::zeroed(&context, 16).expect("pinned memory");
    // Padding, and a copy of the words before.
    buffer.slice_mut(..9).expect("9 words").fill(1).expect("a fill");
    buffer.slice_mut(12..).expect("4 words").fill(1).expect("a fill");
    buffer.to_vec().expect("a copy");
    let copied = buffer.copy_to_pinned(pinned()).expect("a copy").synchronize();
    drop(copied.expect("a wait"));
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    buffer.slice(9..12).expect("3 words").to_vec().expect("a copy");
    let text = "cuMemcpyDtoH_v2 copies 12 bytes to the host, of which nothing has written the byte 36 of 64 bytes of \
                stream-ordered memory";
    assert_eq!(found(text), 1);
    // Once for the function and the memory.
    buffer.slice(9..12).expect("3 words").to_vec().expect("a copy");
    assert_eq!(found(text), 1);

    let mut buffer = memory();
    buffer.slice_mut(..7).expect("7 words").fill(1).expect("a fill");
    let copied = buffer.copy_to_pinned(pinned()).expect("a copy").synchronize();
    drop(copied.expect("a wait"));
    let text = "initcheck: cuMemcpyDtoHAsync_v2 copies 64 bytes to the host, of which nothing has written the byte 32";
    assert_eq!(found(text), 2);
    // The copies of a device and of the host.
    let mut other = memory();
    other.copy_from(&buffer).expect("a copy");
    let bytes = other.to_vec().expect("a copy");
    assert_eq!(found("the byte 32 of 64 bytes"), 3);
    let other = DeviceBuffer::from_slice(stream, &bytes).expect("memory");
    other.to_vec().expect("a copy");
    assert_eq!(found("the byte 32 of 64 bytes"), 3);

    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = graph.own(memory()).expect("memory of the graph");
    let mut host = graph.own_pinned(pinned());
    graph.add_copy(&[], &mut host, &buffer).expect("a node");
    graph.instantiate().expect("a graph").launch(stream).expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!(found("initcheck: cuGraphLaunch copies 64 bytes to the host"), 4);
    let _current = context.make_current().expect("a context");
    let (mut bytes, buffer) = ([0u8; 64], memory());
    // SAFETY: both sides have 64 bytes.
    succeeds(unsafe {
        cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), buffer.as_raw(), 64, stream.as_raw())
    });
    assert_eq!(found("initcheck: cuMemcpyDtoHAsync_v2 copies 64 bytes to the host"), 5);
    let (buffer, raw) = (memory(), stream.as_raw());
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let (mut graph, mut executable) = (null_mut(), null_mut());
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamBeginCapture_v2(raw, mode) });
    // SAFETY: both sides have 64 bytes until the graph has run.
    succeeds(unsafe { cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), buffer.as_raw(), 64, raw) });
    // SAFETY: the stream captures, and the pointer refers to a local variable.
    succeeds(unsafe { cuStreamEndCapture(raw, &raw mut graph) });
    // SAFETY: the graph is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) });
    // SAFETY: the executable graph and the stream are alive.
    succeeds(unsafe { cuGraphLaunch(executable, raw) });
    stream.synchronize().expect("a wait");
    assert_eq!(found("initcheck: cuGraphLaunch copies 64 bytes to the host"), 6);
    assert_eq!(cuda_sim::findings(), []);
}

#[test]
fn copies_to_the_host_are_not_checked_without_initcheck() {
    in_child!(start(Profile::h200().with_kernel_checks(Checks::MEMCHECK)));
    let context = context();
    let stream = context.stream().expect("a stream");
    let memory = DeviceBuffer::<u32>::uninit(&stream, 16).expect("memory");
    memory.to_vec().expect("a copy");
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn a_finding_has_the_load_and_the_allocation() {
    let checks = Checks::MEMCHECK.with(Check::Initcheck);
    in_child!(start(Profile::h200().with_kernel_checks(checks)));
    let context = context();
    let stream = context.stream().expect("a stream");
    let bench = Bench { context, stream, kernels: RefCell::default() };
    let memory = bench.uninit().expect("memory");
    bench.uses("k", memory.as_raw() + 8).expect("a launch");
    let found = cuda_sim::findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    let load = finding.error.other.as_ref().expect("a load");
    let instructions = (finding.error.site.instruction.as_str(), load.instruction.as_str());
    assert_eq!(instructions, ("bra", "ld.global.u32"));
    let place = finding.memory.as_ref().expect("global memory");
    assert_eq!((place.start, place.size), (memory.as_raw(), 64));
    let text = finding.to_string();
    assert!(text.contains("the byte 8 of 64 bytes of stream-ordered memory"), "{text}");
    assert!(text.ends_with("; launched by cuLaunchKernel"), "{text}");
    assert_eq!(cuda_sim::misuses(), [text]);
}
