//! The works of `plain.c` in this folder.

use super::SIZES;
use crate::work::{Work, Works};
use std::ffi::c_int;

unsafe extern "C" {
    safe fn plain_graphs_setup() -> c_int;
    safe fn plain_graph_add(n: usize);
    safe fn plain_graph_add_again();
    safe fn plain_graph_instantiate(size: usize, n: usize);
    safe fn plain_graph_instantiate_again(size: usize);
    safe fn plain_graph_launch(size: usize, n: usize);
    safe fn plain_graph_change(n: usize);
    safe fn plain_graph_update(n: usize);
    safe fn plain_graph_destroy_executable(n: usize);
    safe fn plain_graph_destroy_executable_again();
    safe fn plain_graph_destroy(n: usize);
    safe fn plain_graph_destroy_again();
    safe fn plain_replay_graph();
    safe fn plain_replay_stream();
    safe fn plain_replay_wait();
}

/// Prepares the graphs. Returns whether the driver has the functions that the works call (since CUDA
/// 12.0).
pub(crate) fn setup() -> bool {
    plain_graphs_setup() != 0
}

pub(crate) fn works() -> Works {
    let restored = |run: extern "C" fn(usize), again: extern "C" fn()| Work {
        run: Box::new(move |n| run(n)),
        before: Box::new(move || again()),
    };
    let mut works: Works = vec![
        ("graph: add a kernel node", restored(plain_graph_add, plain_graph_add_again)),
        ("graph: change a kernel node", Work::batch(|n| plain_graph_change(n))),
        ("graph: update 100 nodes", Work::batch(|n| plain_graph_update(n))),
        (
            "graph: destroy an executable graph of 100 nodes",
            restored(plain_graph_destroy_executable, plain_graph_destroy_executable_again),
        ),
        (
            "graph: destroy a graph of 100 nodes",
            restored(plain_graph_destroy, plain_graph_destroy_again),
        ),
    ];
    for (index, size) in SIZES.iter().enumerate() {
        let instantiate = Work {
            run: Box::new(move |n| plain_graph_instantiate(index, n)),
            before: Box::new(move || plain_graph_instantiate_again(index)),
        };
        works.push((size.instantiate, instantiate));
        works.push((size.launch, Work::batch(move |n| plain_graph_launch(index, n))));
    }
    works
}

/// Launches a chain of 100 kernels as a graph.
pub(crate) fn replay_graph() {
    plain_replay_graph();
}

/// Launches 100 kernels.
pub(crate) fn replay_stream() {
    plain_replay_stream();
}

/// Waits for the stream of the launches.
pub(crate) fn wait_for_replay() {
    plain_replay_wait();
}
