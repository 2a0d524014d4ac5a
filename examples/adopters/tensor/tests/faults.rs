//! What a GPU does not show on demand: allocations that fail, and which calls the backend makes. These tests run
//! on the software driver, also on a machine with a GPU.

use cuda_sim::Profile;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tensor_backend::{Backend, Error, Executor, Result};

/// Returns a new backend. Faults and the record of calls belong to the process, so the tests run one after the
/// other.
fn backend() -> (MutexGuard<'static, ()>, Backend) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    let lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ONCE.call_once(|| {
        cuda_sim::install(Profile::h200()).expect("nothing was called before");
    });
    (lock, Backend::with_pool(0).expect("a backend"))
}

#[test]
fn a_failed_allocation_is_an_error_and_the_backend_works_afterwards() -> Result<()> {
    let (_lock, backend) = backend();
    let mut eager = backend.eager()?;
    let ones = vec![1; 1 << 15];
    let column = eager.tensor(&[1 << 15, 1], &ones)?;
    let row = eager.tensor(&[1, 1 << 15], &ones)?;
    let limit = cuda_sim::fault::limit_memory(1 << 30);
    let error = eager.matmul(&column, &row).expect_err("4 GiB of 1 GiB");
    let is_expected = matches!(&error, Error::Driver(cuda_safe::Error::OutOfMemory(_)));
    assert!(is_expected, "{error}");
    drop(limit);
    assert_eq!(eager.add(&column, &column)?.to_vec()?, vec![2; 1 << 15]);
    Ok(())
}

#[test]
fn kernels_are_loaded_once_for_each_type() -> Result<()> {
    let (_lock, backend) = backend();
    cuda_sim::clear_calls();
    let modules = || {
        let calls = cuda_sim::calls();
        let is_load = |call: &&cuda_sim::Call| call.function.starts_with("cuModuleLoad");
        calls.iter().filter(is_load).count()
    };
    let mut eager = backend.eager()?;
    for _ in 0..2 {
        let a = eager.tensor(&[2, 2], &[1.0f32; 4])?;
        eager.add(&a, &a)?;
        eager.matmul(&a, &a)?;
        assert_eq!(modules(), 1);
    }
    let a = eager.tensor(&[2, 2], &[1i32; 4])?;
    eager.add(&a, &a)?;
    assert_eq!(modules(), 2);
    Ok(())
}

#[test]
fn a_replay_makes_one_call_and_allocates_nothing() -> Result<()> {
    let (_lock, backend) = backend();
    let eager = backend.eager()?;
    let mut recording = backend.record()?;
    let a = recording.input(eager.tensor(&[100], &[1.5f32; 100])?)?;
    let doubled = recording.add(&a, &a)?;
    let sum = recording.sum(&doubled)?;
    let mut replay = recording.finish()?;
    // The first launch on a stream prepares the later ones.
    replay.run()?;
    cuda_sim::clear_calls();
    replay.run()?;
    let calls: Vec<&str> = cuda_sim::calls().iter().map(|call| call.function).collect();
    assert_eq!(calls, ["cuGraphLaunch"]);
    assert_eq!(replay.read(&sum)?, [300.0]);
    Ok(())
}
