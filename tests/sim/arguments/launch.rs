//! Launches: shapes and attributes.

use super::{Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::launch::{AccessPolicyWindow, MemoryDomainMap, ProgrammaticEvent};

/// A launch in which every number is different.
const CONFIG: LaunchConfig = LaunchConfig::new([14, 2, 3], [4, 5, 6]).with_shared_bytes(768);

fn launch(s: &Stage) -> Result<()> {
    let kernel = s.kernel.typed::<()>()?;
    // SAFETY: the kernel does nothing.
    unsafe { kernel.launch(&s.stream, CONFIG, ()) }
}

fn launch_with(s: &Stage, attributes: &LaunchAttributes<'_>) -> Result<()> {
    let kernel = s.kernel.typed::<()>()?;
    // SAFETY: the kernel does nothing.
    unsafe { kernel.launch_with(&s.stream, CONFIG, attributes, ()) }
}

fn shapes() -> impl Iterator<Item = Row> {
    /// The name, the argument of `cuLaunchKernel`, the field, and the value.
    type Part = (&'static str, &'static str, fn(&CUlaunchConfig) -> u32, u32);
    let parts: [Part; 7] = [
        ("gridDimX", "gx", |its| its.gridDimX, 14),
        ("gridDimY", "gy", |its| its.gridDimY, 2),
        ("gridDimZ", "gz", |its| its.gridDimZ, 3),
        ("blockDimX", "bx", |its| its.blockDimX, 4),
        ("blockDimY", "by", |its| its.blockDimY, 5),
        ("blockDimZ", "bz", |its| its.blockDimZ, 6),
        ("sharedMemBytes", "shared", |its| its.sharedMemBytes, 768),
    ];
    parts.into_iter().flat_map(|(name, argument, part, number)| {
        let with = |s: &Stage| launch_with(s, &LaunchAttributes::default());
        let plain = format!("cuLaunchKernel.{name}");
        let config = format!("CUlaunchConfig::{name}");
        [
            Row::new(&plain, launch, "cuLaunchKernel", value(argument), number),
            Row::new(&config, with, "cuLaunchKernelEx", field("config", part), number),
        ]
    })
}

/// Finds the value of the only attribute of a launch.
fn only<T>(
    id: CUlaunchAttributeID,
    find: impl Fn(&CUlaunchAttributeValue) -> T,
) -> impl Fn(&Call) -> Option<T> {
    move |call| match call.values::<CUlaunchAttribute>("config.attrs")? {
        [attribute] if attribute.id == id => Some(find(&attribute.value)),
        _ => None,
    }
}

/// A row for an attribute without an event.
fn row<T: PartialEq + Debug + 'static>(
    name: &str,
    set: impl Fn(&mut LaunchAttributes<'static>),
    find: impl Fn(&CUlaunchAttributeValue) -> T + 'static,
    raw: T,
) -> Row {
    let c_name = format!("CU_LAUNCH_ATTRIBUTE_{name}");
    let id = CUlaunchAttributeID::from_name(&c_name).expect("a C name");
    let mut attributes = LaunchAttributes::default();
    set(&mut attributes);
    Row::of(&format!("CUlaunchAttributeID::{c_name}"), move |s| launch_with(s, &attributes))
        .calls("cuLaunchKernelEx")
        .with(only(id, find), raw)
}

fn attributes() -> Vec<Row> {
    let window = AccessPolicyWindow {
        address: 0x4000,
        bytes: 320,
        hit_ratio: 0.5,
        hit: CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING,
        miss: CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING,
    };
    let spread = CUclusterSchedulingPolicy::CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
    let remote = CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    type Mode = CUlaunchAttributePortableClusterMode;
    let portable = Mode::CU_LAUNCH_PORTABLE_CLUSTER_MODE_REQUIRE_PORTABLE;
    let shared = CUsharedMemoryMode::CU_SHARED_MEMORY_MODE_ALLOW_NON_PORTABLE;
    let map = MemoryDomainMap { default: 3, remote: 2 };
    let of_window = move |name: &str, find: fn(&CUlaunchAttributeValue) -> f64, number: f64| {
        row("ACCESS_POLICY_WINDOW", |its| its.access_policy = Some(window), find, number)
            .named(name)
    };
    vec![
        row(
            "COOPERATIVE",
            |its| its.cooperative = true,
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.cooperative },
            1,
        ),
        row(
            "CLUSTER_DIMENSION",
            |its| its.cluster = Some([7, 2, 1]),
            |value| {
                // SAFETY: the fields are numbers, for which any bits are valid.
                let its = unsafe { value.clusterDim };
                [its.x, its.y, its.z]
            },
            [7, 2, 1],
        ),
        row(
            "PREFERRED_CLUSTER_DIMENSION",
            |its| its.preferred_cluster = Some([7, 2, 3]),
            |value| {
                // SAFETY: the fields are numbers, for which any bits are valid.
                let its = unsafe { value.preferredClusterDim };
                [its.x, its.y, its.z]
            },
            [7, 2, 3],
        ),
        row(
            "CLUSTER_SCHEDULING_POLICY_PREFERENCE",
            |its| its.cluster_scheduling = Some(spread),
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.clusterSchedulingPolicyPreference },
            spread,
        ),
        row(
            "PORTABLE_CLUSTER_SIZE_MODE",
            |its| its.portable_cluster_mode = Some(portable),
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.portableClusterSizeMode },
            portable,
        ),
        row(
            "PROGRAMMATIC_STREAM_SERIALIZATION",
            |its| its.programmatic_serialization = true,
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.programmaticStreamSerializationAllowed },
            1,
        ),
        row(
            "PRIORITY",
            |its| its.priority = Some(-4),
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.priority },
            -4,
        ),
        row(
            "MEM_SYNC_DOMAIN",
            |its| its.memory_domain = Some(remote),
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.memSyncDomain },
            remote,
        ),
        row(
            "MEM_SYNC_DOMAIN_MAP",
            |its| its.memory_domain_map = Some(map),
            |value| {
                // SAFETY: the fields are numbers, for which any bits are valid.
                let its = unsafe { value.memSyncDomainMap };
                [its.default_, its.remote]
            },
            [3, 2],
        ),
        row(
            "PREFERRED_SHARED_MEMORY_CARVEOUT",
            |its| its.carveout = Some(45),
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.sharedMemCarveout },
            45,
        ),
        row(
            "SHARED_MEMORY_MODE",
            |its| its.shared_memory_mode = Some(shared),
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.sharedMemoryMode },
            shared,
        ),
        row(
            "NVLINK_UTIL_CENTRIC_SCHEDULING",
            |its| its.nvlink_centric = true,
            // SAFETY: the field is a number, for which any bits are valid.
            |value| unsafe { value.nvlinkUtilCentricScheduling },
            1,
        ),
        row(
            "ACCESS_POLICY_WINDOW",
            move |its| its.access_policy = Some(window),
            |value| {
                // SAFETY: the fields are numbers, for which any bits are valid.
                let its = unsafe { value.accessPolicyWindow };
                (its.base_ptr.addr(), its.num_bytes)
            },
            (0x4000, 320),
        ),
        of_window(
            "CUaccessPolicyWindow::hitRatio",
            // SAFETY: the fields are numbers, for which any bits are valid.
            |value| unsafe { value.accessPolicyWindow }.hitRatio.into(),
            0.5,
        ),
        of_window(
            "CUaccessPolicyWindow::hitProp",
            // SAFETY: the fields are numbers, for which any bits are valid.
            |value| unsafe { value.accessPolicyWindow }.hitProp.0.into(),
            2.0,
        ),
        of_window(
            "CUaccessPolicyWindow::missProp",
            // SAFETY: the fields are numbers, for which any bits are valid.
            |value| unsafe { value.accessPolicyWindow }.missProp.0.into(),
            1.0,
        ),
    ]
}

fn events() -> Vec<Row> {
    let programmatic = |at_block_start| {
        move |s: &Stage| {
            let event = s.context.event()?;
            let attributes = LaunchAttributes {
                programmatic_event: Some(ProgrammaticEvent { event: &event, at_block_start }),
                ..Default::default()
            };
            launch_with(s, &attributes)?;
            s.stream.synchronize()?;
            Ok((event.as_raw(), i32::from(at_block_start)))
        }
    };
    let found = || {
        only(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, |value| {
            // SAFETY: the fields are numbers, for which any bits are valid.
            let its = unsafe { value.programmaticEvent };
            (its.event, its.triggerAtBlockStart)
        })
    };
    let name = "CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT";
    vec![
        Row::of(name, programmatic(false)).calls("cuLaunchKernelEx").with_told(found()),
        Row::of(name, programmatic(true)).calls("cuLaunchKernelEx").with_told(found()),
        Row::of("CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT", |s| {
            let event = s.context.event()?;
            let attributes =
                LaunchAttributes { completion_event: Some(&event), ..Default::default() };
            launch_with(s, &attributes)?;
            s.stream.synchronize()?;
            Ok(event.as_raw())
        })
        .calls("cuLaunchKernelEx")
        .with_told(only(
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
            |value| {
                // SAFETY: the fields are numbers, for which any bits are valid.
                unsafe { value.launchCompletionEvent }.event
            },
        )),
    ]
}

fn configs() -> Vec<Row> {
    let cooperative =
        LaunchAttributes { cooperative: true, priority: Some(-1), ..Default::default() };
    let both = move |s: &Stage| launch_with(s, &cooperative);
    let mut ids = vec![
        CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY,
    ];
    ids.sort();
    vec![
        Row::of("CUlaunchConfig::hStream", |s| {
            launch_with(s, &LaunchAttributes::default())?;
            Ok(s.stream.as_raw())
        })
        .calls("cuLaunchKernelEx")
        .with_told(field("config", |its: &CUlaunchConfig| its.hStream)),
        Row::of("CUlaunchConfig::numAttrs", both)
            .calls("cuLaunchKernelEx")
            .with(field("config", |its: &CUlaunchConfig| its.numAttrs), 2),
        Row::of("CUlaunchConfig::attrs", both).calls("cuLaunchKernelEx").with(
            |call| {
                let attributes = call.values::<CUlaunchAttribute>("config.attrs")?;
                let mut ids: Vec<_> = attributes.iter().map(|its| its.id).collect();
                ids.sort();
                Some(ids)
            },
            ids,
        ),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = shapes().collect();
    rows.extend(attributes());
    rows.extend(events());
    rows.extend(configs());
    rows
}
