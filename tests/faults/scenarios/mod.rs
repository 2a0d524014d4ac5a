//! The scenarios of the sweep: every feature of the crate, and small versions of the examples.

mod array;
mod capture;
mod context;
mod device;
mod event;
mod examples;
#[cfg(target_os = "linux")]
mod external;
mod graph;
mod green;
mod interop;
mod launch;
mod manager;
mod memory;
mod module;
mod process;
mod raw;
mod release;
mod stream;
mod virtual_memory;

use crate::Scenario;
use crate::trace::Trace;
use cuda_safe::{CUresult, Context, Device, Error, Invalid, Module, Result, Stream, TypedKernel};

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
    scenario("foreign", release::foreign::run),
    scenario("stream", stream::streams::run),
    scenario("default streams", stream::streams::default_streams),
    scenario("futures", stream::streams::futures),
    scenario("stream settings", stream::settings::attributes),
    scenario("stream words", stream::settings::memory_operations),
    scenario("event", event::run),
    scenario("memory", memory::buffers::ordered),
    scenario("synchronous memory", memory::buffers::plain),
    scenario("slices", memory::buffers::slices),
    scenario("shared memory", memory::buffers::shared),
    scenario("peer memory", memory::buffers::of_peers),
    scenario("boxes", memory::copies_2d_3d::run),
    scenario("arrays", array::arrays::copies),
    scenario("textures and surfaces", array::arrays::objects),
    scenario("sparse arrays", array::arrays::sparse),
    scenario("batches with host memory", memory::batches::run),
    scenario("tensor maps", array::tensor_maps::run),
    scenario("decompression", memory::decompression::run),
    scenario("exported memory", memory::exports::run),
    scenario("pinned memory", memory::buffers::pinned),
    scenario("pending copies", memory::buffers::pending),
    scenario("copies of ranges", memory::buffers::ranges),
    scenario("scoped copies", memory::buffers::scope),
    scenario("mapped memory", memory::managed_mapped_pooled::pinned),
    scenario("registered", memory::managed_mapped_pooled::registered),
    scenario("managed memory", memory::managed_mapped_pooled::managed),
    scenario("memory pools", memory::managed_mapped_pooled::pools),
    scenario("driver manager", manager::managers::driver),
    scenario("caching pool", manager::managers::caching),
    scenario("expandable pool", manager::managers::expandable),
    scenario("driver's pools", manager::managers::ordered),
    scenario("all wrappers", manager::managers::wrapped),
    scenario("pool limit", manager::shortage::of_the_pool),
    scenario("device memory limit", manager::shortage::of_the_device),
    scenario("limit with fallback", manager::shortage::that_falls_back),
    scenario("interprocess memory", manager::managers::shared),
    scenario("interprocess pool", manager::managers::shared_pool),
    scenario("pointers", memory::managed_mapped_pooled::pointers),
    scenario("module", module::modules::module),
    scenario("library", module::modules::library),
    scenario("images", module::modules::images),
    scenario("compiler", module::linker::options),
    scenario("linker", module::linker::linker),
    scenario("globals", module::modules::globals),
    scenario("kernel", launch::kernels::attributes),
    scenario("occupancy", launch::kernels::occupancy),
    scenario("launch", launch::launches::run),
    scenario("launch with", launch::launches::with_attributes),
    scenario("green", green::one_group_each),
    since((12, 5), "green, several", green::several_groups),
    since((12, 5), "partitions", green::partitions),
    scenario("green, current", green::current),
    since((12, 5), "pool", green::pool),
    scenario("imported arrays", interop::run),
    scenario("tensors", interop::tensors),
    scenario("views", interop::views),
    scenario("proof", green::proof),
    scenario("drops", release::drops::in_other_orders),
    scenario("threads", release::drops::on_other_threads),
    scenario("capture", capture::drops::drops_while_capturing),
    scenario("graph", graph::graphs::run),
    scenario("built graph", graph::graphs::built),
    scenario("changed graph", graph::nodes::run),
    scenario("graph memory", graph::memory::run),
    scenario("graph memory usage", graph::memory::usage),
    scenario("conditional nodes", graph::conditional::bodies),
    scenario("device launch", graph::conditional::device_launch),
    scenario("capture into graph", capture::into_graphs::into),
    scenario("capture into body", capture::into_graphs::into_body),
    scenario("recorded graph", capture::into_graphs::recorded),
    since((13, 3), "recapture", capture::into_graphs::recaptured),
    scenario("queried graph", graph::graphs::queried),
    scenario("busy graph", graph::graphs::busy),
    scenario("busy host function", graph::graphs::busy_host_function),
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
    #[cfg(target_os = "linux")]
    scenario("external memory", external::memories),
    #[cfg(target_os = "linux")]
    scenario("external semaphores", external::semaphores),
    #[cfg(target_os = "linux")]
    scenario("registered resources", external::resources),
    #[cfg(target_os = "linux")]
    scenario("resources that are refused, and exports", external::refused_and_exported),
    scenario("callback", capture::drops::drops_in_a_callback),
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

/// Returns the primary context and new streams.
fn primary_and_streams<const N: usize>() -> Result<(Context, [Stream; N])> {
    let context = primary()?;
    let mut streams = Vec::new();
    for _ in 0..N {
        streams.push(context.stream()?);
    }
    Ok((context, streams.try_into().expect("as many")))
}

/// The kernel of tests/kernels that multiplies elements and adds to them.
type Scale = TypedKernel<(&'static mut [i32], i32, i32, u32)>;

fn scale(context: &Context) -> Result<Scale> {
    Module::from_ptx(context, VECTOR)?.kernel("scale")?.typed()
}

/// Checks that a call fails with an error of this crate, without any fault.
fn refused<T>(result: Result<T>, is_right: impl Fn(&Invalid) -> bool) -> Result<()> {
    expect(result, invalid(is_right))
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
