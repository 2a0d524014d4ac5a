//! The actions of the threads of the stress test.

use super::worker::Worker;
use super::{
    buffers, code, contexts, copies_2d_3d, events, graphs, green, host, items, shared, streams,
};
use cuda_safe::Result;

pub(super) struct Action {
    pub(super) name: &'static str,
    pub(super) run: fn(&mut Worker<'_>) -> Result<()>,
}

/// All actions. Those that are listed several times run more often.
macro_rules! actions {
    ($($module:ident: $($name:ident)*;)*) => {
        pub(super) const ALL: &[Action] = &[$($(Action {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: $module::$name,
        }),*),*];
    };
}

actions! {
    buffers: make make make make_in_pool make_in_own_pool check fill_part copy_in scale scale scale_part
        copy_on_device rebind;
    copies_2d_3d: box_in box_on_device pitched batch;
    shared: share read read unshare copy_to_the_other_context;
    host: pinned_in pinned_out end_copy end_copy lend register make_mapped make_managed use_turn
        use_turn end_turn;
    events: make record record wait wait ask measure;
    streams: make make end set host_function drop_in_host_function done memory_words
        default_streams;
    graphs: capture launch launch give_up;
    contexts: nested ask ask_addresses wait_for_all record_all pools;
    code: module variable link attributes ask_kernel;
    green: lease;
    items: leave pick_up pick_up end;
}
