//! The checks of kernels, as tests of programs use them.

use crate::prelude::*;
use cuda_sim::checks::{Check, Checks};
use cuda_sim::findings;

/// A kernel whose warp diverges at a barrier, and one without an error.
const BARRIERS: &str = "\
.version 8.0
.target sm_80
.address_size 64
.file 1 \"barriers.cu\"
.visible .entry divergent() {
    .reg .pred %p; .reg .b32 %r;
    mov.u32 %r, %tid.x; setp.lt.u32 %p, %r, 16;
    @%p bra FIRST;
    .loc 1 5 0
    bar.sync 0;
    ret;
FIRST:
    .loc 1 7 0
    bar.sync 0;
    ret;
}
.visible .entry together() { bar.sync 0; ret; }
";

const SYNCCHECK: Checks = Checks::MEMCHECK.with(Check::Synccheck);

/// Launches a kernel with two warps, and waits for it.
fn run(kernel: &str, stream: &Stream, context: &Context) {
    let module = Module::from_ptx(context, BARRIERS).expect("the kernels");
    let kernel = module.kernel(kernel).expect("found").typed::<()>().expect("no parameters");
    // SAFETY: the kernel uses no memory.
    unsafe { kernel.launch(stream, LaunchConfig::linear(1, 64), ()) }.expect("a launch");
    stream.synchronize().expect("a wait");
}

#[test]
fn a_finding_names_the_kernel_its_lines_the_threads_the_launch_and_the_seed() {
    let profile = Profile::h200().with_kernel_checks(SYNCCHECK).with_seed(7);
    in_child!(start(profile));
    let context = context();
    let stream = context.stream().expect("a stream");
    run("together", &stream, &context);
    assert_eq!(findings(), []);
    run("divergent", &stream, &context);
    run("divergent", &stream, &context);
    let found = findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    let error = &finding.error;
    assert_eq!((error.check, error.kernel.as_str()), (Check::Synccheck, "divergent"));
    assert_eq!(error.site.source, Some(("barriers.cu".to_owned(), 7)));
    let other = error.other.as_ref().expect("two instructions");
    assert_eq!((other.line, &other.source), (10, &Some(("barriers.cu".to_owned(), 5))));
    assert_eq!((finding.function, finding.seed), ("cuLaunchKernel", 7));
    assert_eq!(cuda_sim::misuses(), [finding.to_string()]);
    assert!(finding.to_string().ends_with("; launched by cuLaunchKernel"), "{finding}");
}

#[test]
fn a_finding_in_a_graph_names_the_launch_of_the_graph() {
    in_child!(start(Profile::h200().with_kernel_checks(SYNCCHECK)));
    let context = context();
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, BARRIERS).expect("the kernels");
    let kernel = module.kernel("divergent").expect("found").typed::<()>().expect("no parameters");
    let mut graph = Graph::new(&context).expect("a graph");
    // SAFETY: the kernel uses no memory.
    unsafe { graph.add_kernel(&[], &context, &kernel, LaunchConfig::linear(1, 32), ()) }
        .expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!(findings().iter().map(|its| its.function).collect::<Vec<_>>(), ["cuGraphLaunch"]);
}

/// Threads of a block that write one word, without an order.
const RACE: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry race(.param .u64 out) {
    .reg .b32 %r; .reg .b64 %d;
    ld.param.u64 %d, [out]; mov.u32 %r, %tid.x;
    st.global.u32 [%d+8], %r;
    ret;
}
";

#[test]
fn a_race_names_the_allocation() {
    let checks = Checks::MEMCHECK.with(Check::Racecheck);
    in_child!(start(Profile::h200().with_kernel_checks(checks)));
    let context = context();
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, RACE).expect("the kernel");
    let kernel = module.kernel("race").expect("found");
    let kernel = kernel.typed::<(u64,)>().expect("a parameter");
    let memory = DeviceBuffer::<u32>::zeroed(&stream, 16).expect("memory");
    let address = memory.as_raw();
    // SAFETY: the kernel writes 4 bytes of the memory, which is alive.
    unsafe { kernel.launch(&stream, LaunchConfig::linear(1, 64), (address,)) }.expect("a launch");
    stream.synchronize().expect("a wait");
    let found = findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(finding.error.check, Check::Racecheck);
    let place = finding.memory.as_ref().expect("global memory");
    assert_eq!((place.start, place.size), (address, 64));
    let text = finding.to_string();
    assert!(
        text.contains("the byte 8 (element 2 of size 4) of 64 bytes of stream-ordered memory"),
        "{text}"
    );
    assert!(cuda_sim::races().is_empty(), "a kernel does not race with itself");
}

/// Each thread writes a page of its own, and all threads of a block write the first word of the block.
const PAGES: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry pages(.param .u64 out) {
    .reg .b32 %r<3>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 8; add.u32 %r0, %r0, %r1;
    mul.wide.u32 %d1, %r0, 4096; add.u64 %d1, %d0, %d1;
    st.global.u32 [%d1+8], %r0;
    mul.wide.u32 %d2, %r1, 4096; add.u64 %d2, %d0, %d2;
    st.global.u32 [%d2], %r0;
    ret;
}
";

#[test]
fn the_report_says_that_racecheck_has_reached_its_limit() {
    let checks = Checks::MEMCHECK.with(Check::Racecheck);
    in_child!(start(Profile::h200().with_kernel_checks(checks)));
    let context = context();
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, PAGES).expect("the kernel");
    let kernel = module.kernel("pages").expect("found");
    let kernel = kernel.typed::<(u64,)>().expect("a parameter");
    let memory = DeviceBuffer::<u8>::zeroed(&stream, 65 << 20).expect("memory");
    let launch = |address: u64, blocks: u32| {
        let threads = LaunchConfig::linear(blocks, 256);
        // SAFETY: the kernel writes 1 MiB for each block, which is in the memory.
        unsafe { kernel.launch(&stream, threads, (address,)) }.expect("a launch");
        stream.synchronize().expect("a wait");
    };
    launch(memory.as_raw(), 64);
    assert_eq!((findings().len(), cuda_sim::report().limits), (1, Vec::new()));
    launch(memory.as_raw(), 65);
    let text = "kernel \"pages\": racecheck: the kernel accesses more than 64 MiB of global memory: races beyond \
                are not found";
    let report = cuda_sim::report();
    assert_eq!(report.limits, [text]);
    assert!(report.to_string().contains(&format!("limits of checks: 1\n  {text}\n")), "{report}");
}

#[test]
fn racecheck_finds_races_between_kernels_too() {
    let checks = Checks::MEMCHECK.with(Check::Racecheck);
    in_child!(start(Profile::h200().with_kernel_checks(checks)));
    let context = context();
    let streams = [context.stream(), context.stream()].map(|stream| stream.expect("a stream"));
    let module = Module::from_ptx(&context, RACE).expect("the kernel");
    let kernel = module.kernel("race").expect("found");
    let kernel = kernel.typed::<(u64,)>().expect("a parameter");
    let memory = DeviceBuffer::<u32>::zeroed(&streams[0], 16).expect("memory");
    streams[0].synchronize().expect("a wait");
    for stream in &streams {
        // SAFETY: the kernel writes 4 bytes of the memory, which is alive.
        unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), (memory.as_raw(),)) }
            .expect("a launch");
    }
    streams.iter().for_each(|stream| stream.synchronize().expect("a wait"));
    assert_eq!(findings(), []);
    let races = cuda_sim::races();
    let [race] = &races[..] else { panic!("{races:?}") };
    assert_eq!(race.first.kernel.as_deref(), Some("race"));
}

#[test]
fn nothing_is_found_without_checks() {
    in_child!(start(Profile::h200().with_kernel_checks(Checks::MEMCHECK)));
    let context = context();
    let stream = context.stream().expect("a stream");
    run("divergent", &stream, &context);
    assert_eq!((findings(), cuda_sim::misuses()), (Vec::new(), Vec::new()));
}

#[test]
fn a_finding_in_the_body_of_a_conditional_node_names_the_launch_of_the_graph() {
    in_child!(start(Profile::h200().with_kernel_checks(SYNCCHECK)));
    let context = context();
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, BARRIERS).expect("the kernels");
    let kernel = module.kernel("divergent").expect("found").typed::<()>().expect("no parameters");
    let mut graph = Graph::new(&context).expect("a graph");
    let handle = graph.conditional_handle(&context, Some(1)).expect("a handle");
    let body = |body: &mut Graph| {
        // SAFETY: the kernel uses no memory.
        unsafe { body.add_kernel(&[], &context, &kernel, LaunchConfig::linear(1, 32), ()) }
            .map(drop)
    };
    graph.add_if(&[], handle, body).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!(findings().iter().map(|its| its.function).collect::<Vec<_>>(), ["cuGraphLaunch"]);
}
