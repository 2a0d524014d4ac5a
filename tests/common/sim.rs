//! The kernels of tests/kernels, for the software driver.

use cuda_sim::kernel::register;

pub(crate) fn register_kernels() {
    register("add", |launch| {
        let n = launch.value::<u32>(3)? as usize;
        let (a, b) = (launch.read::<f32>(0, n)?, launch.read::<f32>(1, n)?);
        launch.update::<f32>(2, n, |i, _| a[i] + b[i])
    });
    register("scale", |launch| {
        let (factor, offset) = (launch.value::<i32>(1)?, launch.value::<i32>(2)?);
        let n = launch.value::<u32>(3)? as usize;
        launch.update::<i32>(0, n, |_, x| x.wrapping_mul(factor).wrapping_add(offset))
    });
    register("nothing", |_| Ok(()));
    register("record_smid", |launch| {
        let blocks = launch.blocks();
        let sms: Vec<u32> = (0..blocks).map(|block| launch.sm_of_block(block)).collect();
        launch.update::<u32>(0, blocks, |block, _| sms[block])
    });
}
