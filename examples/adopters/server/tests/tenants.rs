//! The server on the GPU of this machine, or on the software driver.

#[path = "../../../../tests/common/mod.rs"]
mod common;
mod software;

use cuda_memory::{CachingManager, CachingOptions};
use cuda_safe::Device;
use cuda_safe::manager::set_memory_manager;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tenant_server::{Error, Plan, Request, Server, Ticket};

/// Starts a server, or reports a skip. A device has one split at a time, so the tests run one after the
/// other: the server is dropped before the lock is released.
fn start(tenants: usize) -> Option<(MutexGuard<'static, ()>, Server)> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    common::gpu()?;
    common::since(12, 4)?;
    let lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ONCE.call_once(|| {
        let options = CachingOptions {
            // The software driver takes a second to create a slab of the default size in a debug build.
            slab_bytes: 2 << 20,
            ..Default::default()
        };
        set_memory_manager(move |context| CachingManager::with(context, options))
            .expect("this version of the interface");
    });
    let device = Device::get(0).expect("a device");
    let server = Server::start(&device, tenants).expect("a server");
    Some((lock, server))
}

fn request(seed: u32) -> Request {
    Request { seed, len: 300, rounds: 20 }
}

#[test]
fn each_request_is_answered_exactly_once_while_the_plan_changes() {
    const CLIENTS: usize = 6;
    const REQUESTS: usize = 40;
    let (_lock, server) = or_skip!(start(3));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                // Some requests are queued ahead, so the queues are not empty when the plan changes.
                let seeds = (0..REQUESTS).map(|number| (client * 1000 + number) as u32);
                let submit = |seed| server.submit(client % 3, request(seed)).expect("a tenant");
                let tickets: Vec<(u32, Ticket)> = seeds.map(|seed| (seed, submit(seed))).collect();
                for (seed, ticket) in tickets {
                    let answer = ticket.wait().expect("an answer");
                    assert_eq!(answer, software::answer(request(seed)), "{seed}");
                }
            });
        }
        for weights in [[1, 1, 2], [2, 1, 1], [1, 1, 2], [1, 2, 1]] {
            server.apply(&Plan::Weights(weights.to_vec())).expect("a plan");
        }
        server.apply(&Plan::Shared).expect("a plan");
    });
}

#[test]
fn partitions_share_no_sm_and_have_the_sizes_of_the_plan() {
    let (_lock, server) = or_skip!(start(3));
    for (weights, largest) in [([1, 1, 2], 2), ([2, 1, 1], 0)] {
        let switch = server.apply(&Plan::Weights(weights.to_vec())).expect("a plan");
        let others: Vec<usize> = (0..3).filter(|tenant| *tenant != largest).collect();
        let sizes = others.iter().map(|tenant| switch.sms[*tenant]);
        let largest = switch.sms[largest];
        // A partition of a driver for CUDA 12.4 is one group, and all groups have one size.
        let is_proportional = |size| size < largest || !common::offers(12, 5) && size == largest;
        assert!(sizes.into_iter().all(is_proportional), "{switch:?}");
        let probed = server.probe().expect("a probe");
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            assert!(probed[a].is_disjoint(&probed[b]), "{a} and {b}: {probed:?}");
        }
        if common::is_software() {
            let counts: Vec<u32> = probed.iter().map(|sms| sms.len() as u32).collect();
            assert_eq!(counts, switch.sms);
        }
    }
    // Without partitions, everything runs everywhere.
    let switch = server.apply(&Plan::Shared).expect("a plan");
    let probed = server.probe().expect("a probe");
    assert!(!probed[0].is_disjoint(&probed[1]), "{switch:?}");
}

#[test]
fn a_request_that_fails_does_not_affect_other_requests() {
    let (_lock, server) = or_skip!(start(2));
    server.apply(&Plan::Weights(vec![1, 1])).expect("a plan");
    let ask = |tenant, request| server.submit(tenant, request).expect("a tenant").wait();
    let others_are_served = |when: &str| {
        for tenant in [0, 1] {
            let answer = ask(tenant, request(7)).expect(when);
            assert_eq!(answer, software::answer(request(7)), "{when}");
        }
    };
    for len in [0, 1 << 40] {
        let error = ask(0, Request { len, ..request(1) }).expect_err("no such launch");
        assert!(matches!(error, Error::Length(_)), "{error}");
    }
    others_are_served("after requests of impossible lengths");
    let unknown = server.submit(2, request(1)).expect_err("there are two");
    assert_eq!(unknown.to_string(), "there is no tenant 2 (zero-based)");
}

#[test]
fn the_old_plan_stays_in_use_if_the_new_one_is_not_possible() {
    // More tenants than any device has partitions.
    const TENANTS: usize = 300;
    let (_lock, server) = or_skip!(start(TENANTS));
    let equal = Plan::Weights(vec![1; TENANTS]);
    let error = server.apply(&equal).expect_err("there are not that many SMs");
    assert!(matches!(error, Error::Driver(_)), "{error}");
    let wrong = server.apply(&Plan::Weights(vec![1, 2])).expect_err("two weights");
    assert!(wrong.to_string().contains("[1, 2]"), "{wrong}");
    for tenant in [0, TENANTS - 1] {
        let ticket = server.submit(tenant, request(9)).expect("a tenant");
        assert_eq!(ticket.wait().expect("an answer"), software::answer(request(9)));
    }
}

#[test]
fn a_server_that_is_dropped_answers_the_requests_in_its_queues() {
    let (_lock, server) = or_skip!(start(2));
    let submit = |seed| server.submit(seed as usize % 2, request(seed)).expect("a tenant");
    let tickets: Vec<Ticket> = (0..40).map(submit).collect();
    drop(server);
    for (seed, ticket) in (0..).zip(tickets) {
        let answer = ticket.wait().expect("an answer");
        assert_eq!(answer, software::answer(request(seed)), "{seed}");
    }
}
