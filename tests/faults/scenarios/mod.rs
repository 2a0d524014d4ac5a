//! The scenarios of the sweep: every feature of the crate, and small versions of the examples.

mod arrays;
mod batches;
mod boxes;
mod capture;
mod context;
mod decompression;
mod device;
mod drops;
mod event;
mod examples;
mod exports;
mod foreign;
mod graph;
mod graph_capture;
mod graph_conditional;
mod graph_memory;
mod graph_nodes;
mod green;
mod interop;
mod kernel;
mod kinds;
mod launch;
mod linker;
mod manager;
mod memory;
mod module;
mod process;
mod raw;
mod settings;
mod shortage;
mod stream;
mod tensor_maps;
mod virtual_memory;

use crate::Scenario;
use crate::trace::Trace;
use cuda_safe::{CUresult, Context, Device, Error, Invalid, Result};

const VECTOR: &str = include_str!("../../kernels/vector.ptx");
const SMID: &str = include_str!("../../kernels/smid.ptx");
const SHARED: &str = include_str!("../../kernels/shared.ptx");
const HOPPER: &str = include_str!("../../kernels/hopper.ptx");
const GLOBALS: &str = include_str!("../../kernels/globals.ptx");
const APPLY: &str = include_str!("../../kernels/apply.ptx");
const TWICE: &str = include_str!("../../kernels/twice.ptx");

type Run = fn(&mut Trace) -> Result<()>;

const fn scenario(name: &'static str, run: Run) -> Scenario {
    since((12, 4), name, run)
}

const fn since(since: (u16, u16), name: &'static str, run: Run) -> Scenario {
    Scenario { name, since, devices: 1, run }
}

const fn on_two_devices(scenario: Scenario) -> Scenario {
    Scenario { devices: 2, ..scenario }
}

pub(crate) static ALL: &[Scenario] = &[
    scenario("device", device::run),
    scenario("contexts", context::contexts),
    scenario("context settings", context::settings),
    since((12, 5), "context events", context::events),
    scenario("bound contexts", context::bound),
    scenario("guards", context::guards),
    scenario("foreign", foreign::run),
    scenario("stream", stream::run),
    scenario("default streams", stream::default_streams),
    scenario("futures", stream::futures),
    scenario("stream settings", settings::attributes),
    scenario("stream words", settings::memory_operations),
    scenario("event", event::run),
    scenario("memory", memory::ordered),
    scenario("synchronous memory", memory::plain),
    scenario("slices", memory::slices),
    scenario("shared memory", memory::shared),
    scenario("peer memory", memory::of_peers),
    scenario("boxes", boxes::run),
    scenario("arrays", arrays::copies),
    scenario("textures and surfaces", arrays::objects),
    scenario("sparse arrays", arrays::sparse),
    scenario("batches with host memory", batches::run),
    scenario("tensor maps", tensor_maps::run),
    scenario("decompression", decompression::run),
    scenario("exported memory", exports::run),
    scenario("pinned memory", memory::pinned),
    scenario("pending copies", memory::pending),
    scenario("copies of ranges", memory::ranges),
    scenario("scoped copies", memory::scope),
    scenario("mapped memory", kinds::pinned),
    scenario("registered", kinds::registered),
    scenario("managed memory", kinds::managed),
    scenario("memory pools", kinds::pools),
    scenario("driver manager", manager::driver),
    scenario("caching pool", manager::caching),
    scenario("expandable pool", manager::expandable),
    scenario("driver's pools", manager::ordered),
    scenario("all wrappers", manager::wrapped),
    scenario("pool limit", shortage::of_the_pool),
    scenario("device memory limit", shortage::of_the_device),
    scenario("limit with fallback", shortage::that_falls_back),
    scenario("interprocess memory", manager::shared),
    scenario("interprocess pool", manager::shared_pool),
    scenario("pointers", kinds::pointers),
    scenario("module", module::module),
    scenario("library", module::library),
    scenario("images", module::images),
    scenario("compiler", linker::options),
    scenario("linker", linker::linker),
    scenario("globals", module::globals),
    scenario("kernel", kernel::attributes),
    scenario("occupancy", kernel::occupancy),
    scenario("launch", launch::run),
    scenario("launch with", launch::with_attributes),
    scenario("green", green::one_group_each),
    since((12, 5), "green, several", green::several_groups),
    since((12, 5), "partitions", green::partitions),
    scenario("green, current", green::current),
    since((12, 5), "pool", green::pool),
    scenario("imported arrays", interop::run),
    scenario("tensors", interop::tensors),
    scenario("views", interop::views),
    scenario("proof", green::proof),
    scenario("drops", drops::in_other_orders),
    scenario("threads", drops::on_other_threads),
    scenario("capture", capture::drops_while_capturing),
    scenario("graph", graph::run),
    scenario("built graph", graph::built),
    scenario("changed graph", graph_nodes::run),
    scenario("graph memory", graph_memory::run),
    scenario("graph memory usage", graph_memory::usage),
    scenario("conditional nodes", graph_conditional::bodies),
    scenario("device launch", graph_conditional::device_launch),
    scenario("capture into graph", graph_capture::into),
    scenario("capture into body", graph_capture::into_body),
    scenario("recorded graph", graph_capture::recorded),
    since((13, 3), "recapture", graph_capture::recaptured),
    scenario("queried graph", graph::queried),
    scenario("busy graph", graph::busy),
    scenario("busy host function", graph::busy_host_function),
    since((12, 9), "logs", process::logs),
    since((12, 5), "core dumps", process::dumps),
    since((12, 8), "checkpoints", process::checkpoints),
    scenario("profiler", process::profiler),
    scenario("mapping", virtual_memory::mapping),
    scenario("growable buffer", virtual_memory::growable),
    on_two_devices(scenario("multicast object", virtual_memory::multicast)),
    since((13, 3), "logical endpoint", virtual_memory::endpoint),
    since((13, 5), "copies over the fabric", virtual_memory::fabric_copies),
    on_two_devices(since((13, 4), "fabric", virtual_memory::fabric)),
    scenario("callback", capture::drops_in_a_callback),
    scenario("devices", examples::devices),
    scenario("vector_add.rs", examples::vector_add),
    scenario("partition", examples::partition),
    since((12, 5), "isolation", examples::isolation),
    since((12, 5), "switch.rs", examples::switch),
    since((12, 0), "graphs", examples::graphs),
];

/// Completes what a scenario could not complete because the needed calls failed.
pub(crate) fn clean_up() {
    raw::clean_up();
}

fn primary() -> Result<Context> {
    Context::primary(&Device::get(0)?)
}

/// Checks a call that fails without any fault: `Ok` if the error is the expected one, otherwise the
/// error.
fn expect<T>(result: Result<T>, is_right: impl Fn(&Error) -> bool) -> Result<()> {
    match result {
        Ok(_) => panic!("this should be an error"),
        Err(error) if is_right(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Recognizes the error that a function of the driver returns without any fault. The code alone would
/// also accept a fault in another function.
fn answer(function: &'static str, code: CUresult) -> impl Fn(&Error) -> bool {
    move |error| {
        let error = error.driver_error();
        error.is_some_and(|error| error.call == function && error.code == code)
    }
}

fn invalid(is_right: impl Fn(&Invalid) -> bool) -> impl Fn(&Error) -> bool {
    move |error| matches!(error, Error::Invalid(invalid) if is_right(invalid))
}

/// Turns the error of a driver that is too old into `None`.
fn if_there_is<T>(result: Result<T>) -> Result<()> {
    match result {
        Ok(_) | Err(Error::Missing(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
