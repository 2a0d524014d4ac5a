//! Kernels of the software driver, which can do what any host function can but no GPU kernel does.

use crate::prelude::*;
use cuda_sim::Kernels;
use cuda_sim::kernel::register;

/// PTX with a kernel that the tests do not register.
const OTHER: &str =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry other() { ret; }";

/// Launches the kernel `nothing` and returns its module, whose drop waits for its kernels.
fn launch(context: &Context, stream: &Stream) -> Module {
    launch_of(context, stream, include_str!("../../kernels/vector.ptx"), "nothing")
}

/// Launches a kernel of a PTX text.
fn launch_of(context: &Context, stream: &Stream, text: &str, name: &str) -> Module {
    let module = Module::from_ptx(context, text).expect("the test kernels");
    let kernel = module.kernel(name).expect("found").typed::<()>();
    let kernel = kernel.expect("its parameters");
    // SAFETY: the kernel uses no memory.
    let given = unsafe { kernel.launch(stream, LaunchConfig::linear(1, 1), ()) };
    given.expect("a launch");
    module
}

fn with_misuses(words: &[&'static str]) -> (Context, Stream, AtEnd) {
    let words = words.to_vec();
    let (context, stream) = expecting_misuse();
    let end = AtEnd::new(move || {
        let misuses = cuda_sim::misuses();
        assert_eq!(misuses.len(), words.len(), "{misuses:?}");
        for (misuse, words) in misuses.iter().zip(words) {
            assert!(misuse.contains(words), "{misuses:?}");
        }
    });
    (context, stream, end)
}

#[test]
fn a_panic_in_a_kernel_is_an_illegal_address() {
    let (context, stream, _end) = &in_child!(with_misuses(&["panicked: the sum is 3"]));
    register("nothing", |_| panic!("the sum is {}", 3));
    let _module = launch(context, stream);
    let error = stream.synchronize().expect_err("a panic");
    assert!(error.is_fatal(), "{error}");
}

#[test]
fn a_panic_in_a_kernel_that_runs_during_a_query_of_live_objects_is_not_lost() {
    let (context, stream, _end) = &in_child!(with_misuses(&["panicked: early"]));
    register("nothing", |_| panic!("early"));
    let _module = launch(context, stream);
    cuda_sim::alive();
    stream.synchronize().expect_err("a panic");
}

#[test]
fn a_kernel_that_calls_the_driver_is_refused() {
    let words = ["cuCtxGetDevice", "alive", "poison"];
    let (context, stream, _end) = &in_child!(with_misuses(&words));
    register("nothing", |_| {
        let mut device = 0;
        // SAFETY: the pointer refers to a local variable.
        let code = unsafe { cuCtxGetDevice(&raw mut device) };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_PERMITTED);
        assert_eq!(cuda_sim::alive(), Alive::default());
        cuda_sim::fault::poison();
        Ok(())
    });
    let _module = launch(context, stream);
    stream.synchronize().expect("a wait");
}

/// Destroys its stream when it is dropped, and reports that.
struct Owner(usize, mpsc::Sender<CUresult>);

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: this value owns the stream.
        let code = unsafe { cuStreamDestroy_v2(std::ptr::with_exposed_provenance_mut(self.0)) };
        self.1.send(code).expect("the test receives it");
    }
}

#[test]
fn a_replaced_kernel_is_dropped_after_its_last_launch() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (sender, dropped) = mpsc::channel();
    let stream = context.stream().expect("a stream");
    let own = context.stream().expect("a stream").into_raw();
    let owner = Owner(own.expose_provenance(), sender);
    register("nothing", move |_| {
        let _ = &owner;
        Ok(())
    });
    let module = launch(&context, &stream);
    register("nothing", |_| Ok(()));
    assert!(dropped.try_recv().is_err(), "it is launched");
    stream.synchronize().expect("a wait");
    assert_eq!(dropped.try_recv(), Ok(CUresult::CUDA_SUCCESS));
    drop((module, stream));
    let device = Device::get(0).expect("a device");
    // SAFETY: this releases the retain that the leaked stream holds.
    let code = unsafe { cuDevicePrimaryCtxRelease_v2(device.as_raw()) };
    assert!(code.is_success());
}

#[test]
fn a_kernel_without_launches_is_dropped_when_it_is_replaced() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (sender, dropped) = mpsc::channel();
    let stream = context.stream().expect("a stream").into_raw();
    let owner = Owner(stream.expose_provenance(), sender);
    register("unused", move |_| {
        let _ = &owner;
        Ok(())
    });
    register("unused", |_| Ok(()));
    assert_eq!(dropped.try_recv(), Ok(CUresult::CUDA_SUCCESS));
    let device = Device::get(0).expect("a device");
    // SAFETY: this releases the retain that the leaked stream holds.
    let code = unsafe { cuDevicePrimaryCtxRelease_v2(device.as_raw()) };
    assert!(code.is_success());
}

#[test]
fn the_built_in_sm_probe_kernel_can_be_replaced() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let probe = cuda_safe::green::SmProbe::new(&context).expect("a probe");
    let stream = context.stream().expect("a stream");
    assert_eq!(probe.sms(&stream).expect("a trace").len(), 132);
    register("cuda_safe_record_sm", |launch| launch.update::<u32>(0, launch.blocks(), |_, _| 1000));
    assert_eq!(probe.sms(&stream).expect("a trace"), [1000].into());
}

#[test]
fn a_kernel_that_is_not_registered_is_named() {
    in_child!();
    start(Profile::h200().with_kernels(Kernels::Registered));
    let context = context();
    let stream = context.stream().expect("a stream");
    let _module = launch_of(&context, &stream, OTHER, "other");
    assert_eq!(cuda_sim::unregistered_kernels(), [""; 0]);
    let error = stream.synchronize().expect_err("no such kernel");
    assert!(error.is_fatal(), "{error}");
    assert_eq!(cuda_sim::unregistered_kernels(), ["other"]);
    let misuses = cuda_sim::misuses();
    assert!(
        misuses[0].contains("kernel \"other\" is not registered, so it cannot run"),
        "{misuses:?}"
    );
}

#[test]
fn a_kernel_runs_by_its_ptx() {
    let (context, stream, _end) = &in_child!(with_misuses(&[]));
    let module = Module::from_ptx(context, include_str!("../../kernels/vector.ptx"));
    let module = module.expect("the test kernels");
    let kernel = module.kernel("scale").expect("found");
    let kernel = kernel.typed::<(&mut [i32], i32, i32, u32)>().expect("its parameters");
    let mut x = DeviceBuffer::from_slice(stream, &[1, 2, 3, 4]).expect("a buffer");
    // SAFETY: the kernel accesses four elements.
    let given = unsafe { kernel.launch(stream, LaunchConfig::linear(4, 128), (&mut x, 10, 5, 4)) };
    given.expect("a launch");
    assert_eq!(x.to_vec().expect("a copy"), [15, 25, 35, 45]);
    assert_eq!(cuda_sim::unregistered_kernels(), [""; 0]);
}

#[test]
fn a_grid_may_have_more_threads_than_32_bits_count() {
    let (context, stream, _end) = &in_child!(with_misuses(&[]));
    let module = Module::from_ptx(context, include_str!("../../kernels/vector.ptx"));
    let kernel = module.expect("the test kernels").kernel("nothing").expect("found");
    let kernel = kernel.typed::<()>().expect("its parameters");
    // SAFETY: the kernel uses no memory.
    let given = unsafe { kernel.launch(stream, LaunchConfig::linear(1 << 23, 1024), ()) };
    given.expect("a launch");
    stream.synchronize().expect("a kernel without effect");
}

/// Returns PTX with a kernel of a body, with registers.
fn kernel_of(body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.shared .align 8 .b8 shared[16];\n\
         .visible .entry other()\n{{\n.reg .b32 %r<4>; .reg .b64 %d<4>;\n{body}\nret; }}"
    )
}

#[test]
fn a_trap_in_a_kernel_is_named_with_its_place() {
    let words = ["kernel \"other\": the kernel ends itself: `trap` at line 8 of the PTX"];
    let (context, stream, _end) = &in_child!(with_misuses(&words));
    let _module = launch_of(context, stream, &kernel_of("trap;"), "other");
    let error = stream.synchronize().expect_err("a trap");
    assert!(error.is_fatal(), "{error}");
}

/// Runs a kernel that ends with an error, and compares the code with that of an H200.
fn ends_with(body: &str, code: CUresult) {
    let (context, stream, _end) = &in_child!(with_misuses(&["kernel \"other\""]));
    let _module = launch_of(context, stream, &kernel_of(body), "other");
    let error = stream.synchronize().expect_err("an error of the kernel");
    assert_eq!(error.code(), Some(code), "{error}");
    assert!(error.is_fatal(), "{error}");
    let again = stream.synchronize().expect_err("the error stays");
    assert_eq!(again.code(), Some(code), "{again}");
}

#[test]
fn a_trap_or_breakpoint_is_a_launch_failure() {
    ends_with("brkpt;", CUresult::CUDA_ERROR_LAUNCH_FAILED);
}

#[test]
fn a_store_to_a_null_pointer_is_an_illegal_address() {
    let body = "mov.u64 %d1, 0; st.global.u32 [%d1], 1;";
    ends_with(body, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_load_beyond_shared_memory_is_an_illegal_address() {
    ends_with("ld.shared.u32 %r1, [shared+1048576];", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_misaligned_store_to_shared_memory_is_a_misaligned_address() {
    ends_with("st.shared.u32 [shared+1], 1;", CUresult::CUDA_ERROR_MISALIGNED_ADDRESS);
}

#[test]
fn a_call_of_an_address_without_code_is_an_illegal_instruction() {
    let body = "mov.u64 %d1, 1193040; p: .callprototype _ (); call %d1, (), p;";
    ends_with(body, CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

#[test]
fn more_arrivals_than_a_barrier_expects_are_a_launch_failure() {
    let body = "mbarrier.init.shared.b64 [shared], 1; mbarrier.arrive.shared.b64 %d1, [shared], 5;";
    ends_with(body, CUresult::CUDA_ERROR_LAUNCH_FAILED);
}

#[test]
fn kernels_that_are_not_registered_do_nothing_on_request() {
    in_child!();
    start(Profile::h200().ignoring_unregistered_kernels());
    let context = context();
    let stream = context.stream().expect("a stream");
    let _modules = [
        launch_of(&context, &stream, OTHER, "other"),
        launch_of(&context, &stream, OTHER, "other"),
    ];
    stream.synchronize().expect("a kernel without effect");
    assert_eq!(cuda_sim::unregistered_kernels(), ["other"]);
    let (sender, receiver) = mpsc::channel();
    register("other", move |launch| {
        sender.send(launch.name().to_owned()).expect("a receiver");
        Ok(())
    });
    let _module = launch_of(&context, &stream, OTHER, "other");
    stream.synchronize().expect("a kernel");
    assert_eq!(receiver.try_recv(), Ok("other".to_owned()));
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn a_report_runs_no_work() {
    let (context, stream, _end) = &in_child!(with_misuses(&[]));
    register("nothing", |_| Ok(()));
    let _module = launch(context, stream);
    let before = cuda_sim::report();
    assert_eq!(before.pending, 1);
    stream.synchronize().expect("a kernel");
    let after = cuda_sim::report();
    assert_eq!(after.pending, 0);
    assert_eq!(after.alive, Some(cuda_sim::alive()));
    let launches = |report: &cuda_sim::Report| {
        let mut calls = report.calls.iter();
        calls.find(|its| its.function == "cuLaunchKernel").map(|its| (its.calls, its.failures))
    };
    assert_eq!(launches(&before), Some((1, 0)));
    cuda_sim::clear_calls();
    // SAFETY: the pointer may be null.
    let code = unsafe { cuCtxGetDevice(std::ptr::null_mut()) };
    assert!(!code.is_success());
    let text = cuda_sim::report().to_string();
    assert!(text.contains("\n  1 cuCtxGetDevice, of which 1 failed\n"), "{text}");
    assert!(text.contains("\n  1 cuLaunchKernel\n"), "{text}");
    assert!(text.ends_with("1 streams, 1 modules\n"), "{text}");
}

#[test]
fn a_kernel_uses_memory_by_its_address() {
    let (context, stream, _end) = &in_child!(with_misuses(&["4 bytes at 0x10"]));
    let buffer = DeviceBuffer::from_slice(stream, &[1u32, 2, 3, 4]).expect("memory");
    let address = buffer.as_raw();
    register("nothing", move |launch| {
        let read = launch.read_at::<u32>(address + 4, 2)?;
        launch.update_at::<u32>(address + 8, 2, |at, before| before * 10 + read[at])?;
        assert_eq!(launch.variable_range("none"), None);
        assert_eq!(launch.arguments(), 0);
        Ok(())
    });
    let _module = launch(context, stream);
    assert_eq!(buffer.to_vec().expect("a copy"), [1, 2, 32, 43]);
    register("nothing", |launch| launch.read_at::<u32>(0x10, 1).map(drop));
    let _module = launch(context, stream);
    stream.synchronize().expect_err("an illegal address");
}
