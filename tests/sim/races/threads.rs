//! Races of kernels name the instruction, its lines, and the thread.

use super::Bench;
use crate::prelude::*;
use cuda_sim::races::{Access, Race, RacingOperation, ThreadAccess};
use cuda_sim::{kernel, races};
use std::ffi::CStr;

/// Thread `t` of `write` writes the element `t`, that of `read` reads the element `63 - t`, and that of `add` adds to the
/// element 5.
const KERNELS: &str = "\
.version 8.0
.target sm_80
.address_size 64
.file 1 \"model.cu\"
.visible .entry write(.param .u64 data) {
    .reg .b32 %r<3>; .reg .b64 %d<3>;
    ld.param.u64 %d0, [data];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r0, %r1, 32, %r0;
    mad.wide.u32 %d1, %r0, 4, %d0;
    .loc 1 21 9
    st.global.u32 [%d1], %r0;
    ret;
}
.visible .entry read(.param .u64 data) {
    .reg .b32 %r<3>; .reg .b64 %d<3>;
    ld.param.u64 %d0, [data];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r0, %r1, 32, %r0;
    sub.u32 %r0, 63, %r0;
    mad.wide.u32 %d1, %r0, 4, %d0;
    .loc 1 33 9
    ld.global.u32 %r2, [%d1];
    ret;
}
.visible .entry add(.param .u64 data) {
    .reg .b64 %d;
    ld.param.u64 %d, [data];
    .loc 1 47 9
    red.global.add.u32 [%d+20], 1;
    ret;
}
";

struct Kernels {
    bench: Bench,
    module: CUmodule,
}

impl Kernels {
    fn new(profile: Profile) -> Self {
        let bench = Bench::new(profile.with_race_detection());
        let text = CString::new(KERNELS).expect("no NUL");
        let module = out!(cuModuleLoadData(text.as_ptr().cast()));
        Self { bench, module }
    }

    fn launch(&self, name: &CStr, stream: CUstream) {
        let function: CUfunction = out!(cuModuleGetFunction(self.module, name.as_ptr()));
        let mut address = self.bench.memory;
        let mut arguments = [(&raw mut address).cast::<c_void>()];
        let arguments = arguments.as_mut_ptr();
        succeeds!(cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, arguments, null_mut()));
    }

    /// Waits for the work, and returns the only race.
    fn race(&self) -> Race {
        self.bench.synchronize();
        let found = races();
        let [race] = &found[..] else { panic!("{found:#?}") };
        race.clone()
    }
}

/// What a report says of the thread of a kernel: the block, the thread, the line of the source, and the first byte.
type Thread = (u32, u32, u32, u64);

fn thread(race: &Race, its: &RacingOperation) -> Option<Thread> {
    let ThreadAccess { site, bytes, .. } = its.thread.as_ref()?;
    assert_eq!(bytes.end - bytes.start, 4);
    let (file, line) = site.source.clone().expect("the PTX has lines");
    assert_eq!(file, "model.cu");
    Some((site.block[0], site.thread[0], line, bytes.start - race.memory.start))
}

#[test]
fn a_race_between_kernels_names_a_thread_of_each_that_accesses_the_same_element() {
    const SEED: &str = "CUDA_TESTS_SEED";
    for seed in 0..4 {
        common::child::in_child(&[(SEED, &seed.to_string())], || {
            let seed = std::env::var(SEED).expect("it is set").parse().expect("a number");
            let its = Kernels::new(Profile::h200().with_seed(seed));
            its.launch(c"write", its.bench.a);
            its.launch(c"read", its.bench.b);
            let race = its.race();
            let write = thread(&race, &race.first).expect("a kernel");
            let read = thread(&race, &race.second).expect("a kernel");
            let element = race.overlap.start / 4 - race.memory.start / 4;
            for ((block, thread, line, at), expected, number) in
                [(write, 21, element), (read, 33, 63 - element)]
            {
                assert_eq!((line, at), (expected, 4 * element));
                assert_eq!(u64::from(32 * block + thread), number);
            }
            let site = &race.first.thread.as_ref().expect("a kernel").site;
            assert_eq!((site.instruction.as_str(), site.line), ("st.global.u32", 11));
            let text = race.to_string();
            let (at, end) = (4 * element, 4 * element + 4);
            for instruction in [
                "`st.global.u32` at line 11 of the PTX (model.cu:21), block (",
                "`ld.global.u32` at line 21 of the PTX (model.cu:33), block (",
            ] {
                let part =
                    format!(" (bytes {at}..{end}, element {element} of size 4, by {instruction}");
                assert!(text.contains(&part), "{part} is not in {text}");
            }
        });
        if std::env::var_os(SEED).is_some() {
            return;
        }
    }
}

#[test]
fn a_race_of_a_kernel_with_a_copy_names_the_thread_that_accesses_the_copied_bytes() {
    in_child!();
    let its = Kernels::new(Profile::h200());
    let Bench { a, b, memory, scratch, .. } = its.bench;
    its.launch(c"read", a);
    succeeds!(cuMemcpyDtoDAsync_v2(memory + 40, scratch, 4, b));
    let race = its.race();
    assert_eq!(thread(&race, &race.first), Some((1, 63 - 32 - 10, 33, 40)));
    assert_eq!(race.second.thread, None);
    assert_eq!(race.second.bytes, memory + 40..memory + 44);
}

#[test]
fn a_race_with_atomic_operations_names_the_first_of_them_and_a_host_function_has_no_thread() {
    in_child!();
    let its = Kernels::new(Profile::h200());
    kernel::register("read", |launch| launch.read::<u32>(0, 8).map(drop));
    its.launch(c"read", its.bench.b);
    its.launch(c"add", its.bench.a);
    let race = its.race();
    assert_eq!(race.first.thread, None);
    assert_eq!(race.second.access, Access::Atomic);
    assert_eq!(thread(&race, &race.second).map(|(.., line, at)| (line, at)), Some((47, 20)));
}
