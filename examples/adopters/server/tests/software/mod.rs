//! The kernel of kernels.cu on the host: for the software driver, and to check the answers.

use cuda_sim::kernel::register;
use tenant_server::Request;

pub(crate) fn register_kernels() {
    register("iterate", |launch| {
        let n = launch.value::<u32>(1)? as usize;
        let (seed, rounds) = (launch.value::<u32>(2)?, launch.value::<u32>(3)?);
        launch.update::<u32>(0, n, |i, _| iterate(seed.wrapping_add(i as u32), rounds))
    });
}

/// Returns the answer to a request.
#[allow(dead_code, reason = "only one of the users checks the answers")]
pub(crate) fn answer(request: Request) -> u32 {
    let last = request.len as u32 - 1;
    iterate(request.seed.wrapping_add(last), request.rounds)
}

fn iterate(value: u32, rounds: u32) -> u32 {
    let step = |value: u32, _| value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (0..rounds).fold(value, step)
}
