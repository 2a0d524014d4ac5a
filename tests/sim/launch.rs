//! Launches that every GPU refuses.

use crate::on;
use core::ffi::c_void;
use cuda_safe::sys::{CUresult, cuLaunchKernel};
use cuda_safe::{LaunchConfig, Module};
use cuda_sim::Profile;

const VECTOR: &str = include_str!("../kernels/vector.ptx");

#[test]
fn shapes_beyond_the_limits_of_every_gpu_are_refused() {
    on(Profile::h200(), |context| {
        let stream = context.stream().expect("a stream");
        let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
        let kernel = module.kernel("nothing").expect("is there");
        let launch = |grid: [u32; 3], block: [u32; 3], shared| {
            let none: *mut *mut c_void = std::ptr::null_mut();
            let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
            let (kernel, stream) = (kernel.as_raw(), stream.as_raw());
            // SAFETY: the kernel takes nothing and does nothing.
            unsafe { cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, none, none) }
        };
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let one = [1; 3];
        assert_eq!(launch(one, [u32::MAX; 3], 0), invalid);
        assert_eq!(launch(one, [1024, 1, 2], 0), invalid);
        assert_eq!(launch(one, [1, 1, 65], 0), invalid);
        assert_eq!(launch([1, 65_536, 1], one, 0), invalid);
        assert_eq!(launch([1, 1, 65_536], one, 0), invalid);
        assert_eq!(launch([1 << 31, 1, 1], one, 0), invalid);
        assert_eq!(launch(one, one, 48 * 1024 + 1), invalid);
        for (grid, shared) in [
            ([i32::MAX.unsigned_abs(), 65_535, 65_535], 0),
            (one, 48 * 1024),
        ] {
            assert!(launch(grid, one, shared).is_success());
        }
        stream.synchronize().expect("a wait");
    });
}

#[test]
fn a_kernel_that_reads_more_than_can_be_counted_is_an_illegal_address() {
    crate::planted::planted(|context, stream| {
        cuda_sim::kernel::register("scale", |launch| {
            launch.read::<i32>(0, usize::MAX / 2).map(|_| ())
        });
        let module = Module::from_ptx(context, VECTOR).expect("the test kernels");
        let scale = module.kernel("scale").expect("is there");
        let scale = scale.typed::<(&mut [i32], i32, i32, u32)>();
        let mut x = cuda_safe::DeviceBuffer::<i32>::zeroed(stream, 1).expect("memory");
        let (scale, config) = (scale.expect("its parameters"), LaunchConfig::linear(1, 1));
        // SAFETY: it is not: the buffer has one element.
        unsafe { scale.launch(stream, config, (&mut x, 1, 1, 1)) }.expect("given");
        assert!(stream.synchronize().expect_err("too much").is_fatal());
        crate::planted::found("go past the end");
    });
}
