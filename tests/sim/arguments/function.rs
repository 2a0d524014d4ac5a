//! Kernels: attributes, and occupancy queries.

use super::{Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::launch::OccupancyOptions;
use cuda_safe::module::attribute as kernel_attribute;
use cuda_safe::module::attribute::{Carveout, KernelAttribute, KernelAttributeValue};

const PREFIX: &str = "CU_FUNC_ATTRIBUTE_";

fn raw(name: &str) -> CUfunction_attribute {
    CUfunction_attribute::from_name(&format!("{PREFIX}{name}")).expect("a C name")
}

fn asked<T: KernelAttributeValue + 'static, const SETTABLE: bool>(
    name: &str,
    attribute: KernelAttribute<T, SETTABLE>,
) -> Row {
    Row::of(&format!("CUfunction_attribute::{PREFIX}{name}"), move |s| {
        s.kernel.attribute(attribute)
    })
    .calls("cuFuncGetAttribute")
    .with(value("attribute"), raw(name))
}

/// A row for an attribute that is set, with the number that the driver gets.
fn set<T: KernelAttributeValue + Copy + 'static>(
    name: &str,
    attribute: KernelAttribute<T, true>,
    its: T,
    number: i32,
) -> Row {
    Row::of(&format!("CUfunction_attribute::{PREFIX}{name}"), move |s| {
        s.kernel.set_attribute(attribute, its)
    })
    .calls("cuFuncSetAttribute")
    .with(|call| Some((value("attribute")(call)?, value("value")(call)?)), (raw(name), number))
}

fn attributes() -> Vec<Row> {
    let balanced = CUclusterSchedulingPolicy::CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
    let portable = CUsharedMemoryMode::CU_SHARED_MEMORY_MODE_REQUIRE_PORTABLE;
    vec![
        asked("MAX_THREADS_PER_BLOCK", kernel_attribute::MAX_THREADS_PER_BLOCK),
        asked("SHARED_SIZE_BYTES", kernel_attribute::STATIC_SHARED_BYTES),
        asked("CONST_SIZE_BYTES", kernel_attribute::CONST_BYTES),
        asked("LOCAL_SIZE_BYTES", kernel_attribute::LOCAL_BYTES),
        asked("NUM_REGS", kernel_attribute::REGISTERS),
        asked("PTX_VERSION", kernel_attribute::PTX_VERSION),
        asked("BINARY_VERSION", kernel_attribute::BINARY_VERSION),
        asked("CACHE_MODE_CA", kernel_attribute::CACHE_MODE_CA),
        asked("MAX_DYNAMIC_SHARED_SIZE_BYTES", kernel_attribute::MAX_DYNAMIC_SHARED_BYTES),
        asked("PREFERRED_SHARED_MEMORY_CARVEOUT", kernel_attribute::CARVEOUT),
        asked("CLUSTER_SIZE_MUST_BE_SET", kernel_attribute::CLUSTER_SIZE_MUST_BE_SET),
        asked("REQUIRED_CLUSTER_WIDTH", kernel_attribute::REQUIRED_CLUSTER_WIDTH),
        asked("REQUIRED_CLUSTER_HEIGHT", kernel_attribute::REQUIRED_CLUSTER_HEIGHT),
        asked("REQUIRED_CLUSTER_DEPTH", kernel_attribute::REQUIRED_CLUSTER_DEPTH),
        asked(
            "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
            kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
        ),
        asked("CLUSTER_SCHEDULING_POLICY_PREFERENCE", kernel_attribute::CLUSTER_SCHEDULING_POLICY),
        asked("DEVICE_NODE_UPDATE_SUPPORTED", kernel_attribute::DEVICE_NODE_UPDATE_SUPPORTED),
        asked("SHARED_MEMORY_MODE", kernel_attribute::SHARED_MEMORY_MODE),
        set(
            "MAX_DYNAMIC_SHARED_SIZE_BYTES",
            kernel_attribute::MAX_DYNAMIC_SHARED_BYTES,
            65_536,
            65_536,
        ),
        set(
            "PREFERRED_SHARED_MEMORY_CARVEOUT",
            kernel_attribute::CARVEOUT,
            Carveout::Percent(60),
            60,
        ),
        set("REQUIRED_CLUSTER_WIDTH", kernel_attribute::REQUIRED_CLUSTER_WIDTH, 2, 2),
        set("REQUIRED_CLUSTER_HEIGHT", kernel_attribute::REQUIRED_CLUSTER_HEIGHT, 3, 3),
        set("REQUIRED_CLUSTER_DEPTH", kernel_attribute::REQUIRED_CLUSTER_DEPTH, 1, 1),
        // No cluster size is required, because other rows launch the kernel too.
        set("REQUIRED_CLUSTER_WIDTH", kernel_attribute::REQUIRED_CLUSTER_WIDTH, 0, 0),
        set("REQUIRED_CLUSTER_HEIGHT", kernel_attribute::REQUIRED_CLUSTER_HEIGHT, 0, 0),
        set("REQUIRED_CLUSTER_DEPTH", kernel_attribute::REQUIRED_CLUSTER_DEPTH, 0, 0),
        set(
            "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
            kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
            true,
            1,
        ),
        set(
            "CLUSTER_SCHEDULING_POLICY_PREFERENCE",
            kernel_attribute::CLUSTER_SCHEDULING_POLICY,
            balanced,
            2,
        ),
        set("SHARED_MEMORY_MODE", kernel_attribute::SHARED_MEMORY_MODE, portable, 1),
    ]
}

fn carveouts() -> impl Iterator<Item = Row> {
    [
        ("DEFAULT", Carveout::Default, -1),
        ("MAX_SHARED", Carveout::Percent(100), 100),
        ("MAX_L1", Carveout::Percent(0), 0),
    ]
    .into_iter()
    .map(|(name, its, number)| {
        set("PREFERRED_SHARED_MEMORY_CARVEOUT", kernel_attribute::CARVEOUT, its, number)
            .named(&format!("CUshared_carveout::CU_SHAREDMEM_CARVEOUT_{name}"))
    })
}

fn blocks(options: OccupancyOptions) -> impl Fn(&Stage) -> Result<()> {
    move |s| s.kernel.max_active_blocks(64, options).map(drop)
}

fn block(options: OccupancyOptions) -> impl Fn(&Stage) -> Result<()> {
    move |s| s.kernel.suggested_block(options).map(drop)
}

fn occupancy() -> Vec<Row> {
    let active = "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags";
    let potential = "cuOccupancyMaxPotentialBlockSizeWithFlags";
    let plain = OccupancyOptions::default();
    let keep = OccupancyOptions { keep_caching: true, ..plain };
    let shared = OccupancyOptions { shared_bytes: 640, ..plain };
    let few = OccupancyOptions { max_threads: Some(96), ..plain };
    let default = "CUoccupancy_flags::CU_OCCUPANCY_DEFAULT";
    let disable = "CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE";
    let flags = || value::<u32>("flags");
    let bytes = || value::<usize>("shared");
    let both = |call: &Call| Some((value::<i32>("blocks")(call)?, value::<i32>("threads")(call)?));
    let config = LaunchConfig::linear(8, 32).with_shared_bytes(128);
    let cluster = LaunchAttributes { cluster: Some([2, 1, 1]), ..Default::default() };
    let of_config = || {
        field("config", |its: &CUlaunchConfig| {
            [its.gridDimX, its.blockDimX, its.sharedMemBytes, its.numAttrs]
        })
    };
    let size = move |s: &Stage| s.kernel.max_cluster_size(config, &cluster).map(drop);
    let clusters = move |s: &Stage| s.kernel.max_active_clusters(config, &cluster).map(drop);
    let (size_function, clusters_function) =
        ("cuOccupancyMaxPotentialClusterSize", "cuOccupancyMaxActiveClusters");
    vec![
        Row::new(default, blocks(plain), active, flags(), 0),
        Row::new(default, block(plain), potential, flags(), 0),
        Row::new(disable, blocks(keep), active, flags(), 1),
        Row::new(disable, block(keep), potential, flags(), 1),
        Row::new(&format!("{active}.dynamicSMemSize"), blocks(shared), active, bytes(), 640),
        Row::new(&format!("{potential}.dynamicSMemSize"), block(shared), potential, bytes(), 640),
        Row::new(&format!("{potential}.blockSizeLimit"), block(few), potential, value("limit"), 96),
        Row::of("cuOccupancyAvailableDynamicSMemPerBlock", |s| {
            s.kernel.available_shared_bytes(2, 64)
        })
        .calls("cuOccupancyAvailableDynamicSMemPerBlock")
        .with(both, (2, 64)),
        Row::new(size_function, size, size_function, of_config(), [8, 32, 128, 1]),
        Row::new(clusters_function, clusters, clusters_function, of_config(), [8, 32, 128, 1]),
        Row::call("cuFuncLoad", |s| s.kernel.load()),
        Row::call("cuFuncIsLoaded", |s| s.kernel.is_loaded()),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = attributes();
    rows.extend(carveouts());
    rows.extend(occupancy());
    rows
}
