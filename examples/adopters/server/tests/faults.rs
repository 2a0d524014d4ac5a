//! What a GPU does not show on demand: calls that fail, and which calls the server makes. These tests run on the
//! software driver, also on a machine with a GPU.

mod software;

use cuda_memory::{CachingManager, CachingOptions};
use cuda_safe::manager::set_memory_manager;
use cuda_safe::{CUresult, Device};
use cuda_sim::Profile;
use cuda_sim::fault::{Fault, Scope};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tenant_server::{Error, Plan, Request, Result, Server};

/// Starts a server for two tenants. Faults and the record of calls belong to the process, so the tests run one
/// after the other: the server is dropped before the lock is released.
fn start() -> (MutexGuard<'static, ()>, Server) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    let lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ONCE.call_once(|| {
        cuda_sim::install(Profile::h200()).expect("nothing was called before");
        let options = CachingOptions {
            // The software driver takes a second to create a slab of the default size in a debug build.
            slab_bytes: 2 << 20,
            ..Default::default()
        };
        set_memory_manager(move |context| CachingManager::with(context, options))
            .expect("this version of the interface");
    });
    let device = Device::get(0).expect("a device");
    (lock, Server::start(&device, 2).expect("a server"))
}

const REQUEST: Request = Request { seed: 3, len: 300, rounds: 20 };

fn ask(server: &Server, tenant: usize, request: Request) -> Result<u32> {
    server.submit(tenant, request)?.wait()
}

#[track_caller]
fn both_are_served(server: &Server) {
    for tenant in [0, 1] {
        let answer = ask(server, tenant, REQUEST).expect("an answer");
        assert_eq!(answer, software::answer(REQUEST), "{tenant}");
    }
}

/// Returns the number of calls of a function since the last [`cuda_sim::clear_calls`].
fn calls(function: &str) -> usize {
    let calls = cuda_sim::calls();
    let is_it = |call: &&cuda_sim::Call| call.function == function;
    calls.iter().filter(is_it).count()
}

#[test]
fn a_request_whose_call_fails_is_answered_and_others_are_served() -> Result<()> {
    let (_lock, server) = start();
    server.apply(&Plan::Weights(vec![1, 1]))?;
    let limit = cuda_sim::fault::limit_memory(1 << 30);
    let huge = Request { len: u32::MAX as usize, ..REQUEST };
    let error = ask(&server, 0, huge).expect_err("16 GiB of 1 GiB");
    let is_expected = matches!(&error, Error::Driver(cuda_safe::Error::OutOfMemory(_)));
    assert!(is_expected, "{error}");
    drop(limit);
    both_are_served(&server);

    let fault = Fault::of_function("cuLaunchKernel")
        .with(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
        .inject(Scope::Process);
    let error = ask(&server, 1, REQUEST).expect_err("an injected fault");
    assert!(error.to_string().starts_with("cuLaunchKernel"), "{error}");
    drop(fault);
    both_are_served(&server);
    Ok(())
}

#[test]
fn a_request_that_waits_for_a_change_of_the_plan_is_launched_once() -> Result<()> {
    const REQUESTS: usize = 100;
    let (_lock, server) = start();
    cuda_sim::clear_calls();
    let mut tickets = Vec::new();
    for number in 0..REQUESTS {
        tickets.push(server.submit(number % 2, REQUEST)?);
    }
    server.apply(&Plan::Weights(vec![1, 1]))?;
    for ticket in tickets {
        assert_eq!(ticket.wait()?, software::answer(REQUEST));
    }
    assert_eq!(calls("cuLaunchKernel"), REQUESTS);
    Ok(())
}

#[test]
fn the_partitions_stay_if_the_driver_refuses_new_ones() -> Result<()> {
    let (_lock, server) = start();
    server.apply(&Plan::Weights(vec![1, 1]))?;
    let before = server.probe()?;
    let fault = Fault::of_function("cuGreenCtxCreate")
        .with(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        .inject(Scope::Process);
    let error = server.apply(&Plan::Weights(vec![3, 1]));
    let error = error.expect_err("an injected fault");
    assert!(error.to_string().contains("cuGreenCtxCreate"), "{error}");
    drop(fault);
    assert_eq!(server.probe()?, before);
    both_are_served(&server);
    Ok(())
}

#[test]
fn a_plan_that_was_used_before_creates_no_green_context() -> Result<()> {
    let (_lock, server) = start();
    let plans = [[1, 1], [3, 1]].map(|weights| Plan::Weights(weights.to_vec()));
    for plan in &plans {
        server.apply(plan)?;
    }
    cuda_sim::clear_calls();
    for _ in 0..3 {
        for plan in &plans {
            server.apply(plan)?;
            both_are_served(&server);
        }
    }
    assert_eq!(calls("cuGreenCtxCreate"), 0);
    assert_eq!(calls("cuGreenCtxDestroy"), 0);
    Ok(())
}
