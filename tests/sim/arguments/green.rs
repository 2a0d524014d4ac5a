//! Green contexts: splits, descriptors and work queues.

use super::{Row, Stage, array, field, value};
use crate::prelude::*;
use cuda_safe::green::{Descriptor, ExactSplit, GroupFlags, SmGroup, WorkqueueScope, Workqueues};

fn group(s: &Stage) -> Result<SmGroup> {
    let split = SplitByCount { min: 16, max_groups: Some(1), ..Default::default() };
    let mut split = SmResource::of_device(&s.device)?.split_by_count(split)?;
    Ok(split.groups.pop().expect("a group"))
}

fn green(s: &Stage) -> Result<GreenContext> {
    GreenContext::new([group(s)?])
}

fn by_count(split: SplitByCount) -> impl Fn(&Stage) -> Result<()> {
    move |s| SmResource::of_device(&s.device)?.split_by_count(split.clone()).map(drop)
}

fn counts() -> Vec<Row> {
    let function = "cuDevSmResourceSplitByCount";
    let flags = |name: &str, flags, raw: u32| {
        let name = format!("CUdevSmResourceSplitByCount_flags::CU_DEV_SM_RESOURCE_SPLIT_{name}");
        let split = SplitByCount { flags, ..Default::default() };
        let count =
            move |s: &Stage| SmResource::of_device(&s.device)?.count_groups(8, flags).map(drop);
        let again = move |s: &Stage| {
            let split = SplitByCount { flags, max_groups: Some(2), ..Default::default() };
            group(s)?.split_by_count(split).map(drop)
        };
        [
            Row::new(&name, by_count(split), function, value("flags"), raw),
            Row::new(&name, count, function, value("flags"), raw),
            Row::new(&name, again, function, value("flags"), raw),
        ]
    };
    let three = SplitByCount { min: 24, max_groups: Some(3), ..Default::default() };
    let mut rows = vec![
        Row::of("cuDevSmResourceSplitByCount.nbGroups", by_count(three.clone()))
            .calls(function)
            .with(value("count"), 3_u32),
        Row::of(
            "cuDevSmResourceSplitByCount.nbGroups",
            by_count(SplitByCount { min: 24, ..Default::default() }),
        )
        .calls(function)
        .with(value("count"), 5_u32),
        Row::of("cuDevSmResourceSplitByCount.minCount", by_count(three))
            .calls(function)
            .with(value("min"), 24_u32),
    ];
    rows.extend(flags("IGNORE_SM_COSCHEDULING", SplitFlags::IGNORE_SM_COSCHEDULING, 1));
    rows.extend(flags("MAX_POTENTIAL_CLUSTER_SIZE", SplitFlags::MAX_POTENTIAL_CLUSTER_SIZE, 2));
    rows
}

/// Returns an exact split with one group, and the discovery request before it.
fn exact<T: PartialEq + Debug + Clone + 'static>(
    name: &str,
    request: GroupRequest,
    find: fn(&CU_DEV_SM_RESOURCE_GROUP_PARAMS) -> T,
    raw: T,
) -> [Row; 2] {
    let split = ExactSplit { groups: vec![request], ..Default::default() };
    let act = move |s: &Stage| SmResource::of_device(&s.device)?.split(split.clone()).map(drop);
    let discover =
        move |s: &Stage| SmResource::of_device(&s.device)?.discover(&[request]).map(drop);
    let found = || field("requests", find);
    [
        Row::new(name, act, "cuDevSmResourceSplit", found(), raw.clone()),
        Row::new(name, discover, "cuDevSmResourceSplit", found(), raw),
    ]
}

fn requests() -> Vec<Row> {
    const PARAMS: &str = "CU_DEV_SM_RESOURCE_GROUP_PARAMS::";
    const FLAGS: &str = "CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_";
    let request = GroupRequest {
        sm_count: 32,
        coscheduled: 4,
        preferred_coscheduled: 16,
        ..Default::default()
    };
    let flags = |flags| GroupRequest { sm_count: 16, flags, ..Default::default() };
    let in_domain = GroupRequest {
        locality_domain: GroupRequest::ANY_LOCALITY_DOMAIN,
        ..flags(GroupFlags::LOCALITY_DOMAIN_ID)
    };
    let supplemented = GroupRequest {
        flags: GroupFlags::LOCALITY_DOMAIN_ID | GroupFlags::LOCALITY_DOMAIN_SUPPLEMENTAL_SMS,
        ..in_domain
    };
    let rows = [
        exact(&format!("{PARAMS}smCount"), request, |its| its.smCount, 32),
        exact(&format!("{PARAMS}coscheduledSmCount"), request, |its| its.coscheduledSmCount, 4),
        exact(
            &format!("{PARAMS}preferredCoscheduledSmCount"),
            request,
            |its| its.preferredCoscheduledSmCount,
            16,
        ),
        exact(&format!("{PARAMS}flags"), flags(GroupFlags::BACKFILL), |its| its.flags, 1),
        exact(&format!("{PARAMS}localityDomainId"), in_domain, |its| its.localityDomainId, !0),
        exact(&format!("{FLAGS}BACKFILL"), flags(GroupFlags::BACKFILL), |its| its.flags, 1),
        exact(&format!("{FLAGS}LOCALITY_DOMAIN_ID"), in_domain, |its| its.flags, 2),
        exact(
            &format!("{FLAGS}LOCALITY_DOMAIN_SUPPLEMENTAL_SMS"),
            supplemented,
            |its| its.flags,
            2 | 4,
        ),
    ];
    let mut rows: Vec<Row> = rows.into_iter().flatten().collect();
    let two = ExactSplit {
        groups: vec![GroupRequest::new(16), GroupRequest::new(24)],
        ..Default::default()
    };
    let act = move |s: &Stage| SmResource::of_device(&s.device)?.split(two.clone()).map(drop);
    rows.push(
        Row::of("cuDevSmResourceSplit.nbGroups", act)
            .calls("cuDevSmResourceSplit")
            .with(value("count"), 2_u32),
    );
    rows
}

/// The kinds of resources that are queried.
fn kinds() -> impl Iterator<Item = Row> {
    const SM: (&str, u32) = ("SM", 1);
    const CONFIG: (&str, u32) = ("WORKQUEUE_CONFIG", 1000);
    const QUEUES: (&str, u32) = ("WORKQUEUE", 10000);
    type Act = fn(&Stage) -> Result<()>;
    let rows: [(_, Act, _); 9] = [
        (SM, |s| SmResource::of_device(&s.device).map(drop), "cuDeviceGetDevResource"),
        (SM, |s| SmResource::of_context(&s.context).map(drop), "cuCtxGetDevResource"),
        (SM, |s| SmResource::of_green_context(&green(s)?).map(drop), "cuGreenCtxGetDevResource"),
        (SM, |s| SmResource::of_stream(&s.stream).map(drop), "cuStreamGetDevResource"),
        (CONFIG, |s| Workqueues::of_device(&s.device).map(drop), "cuDeviceGetDevResource"),
        (CONFIG, |s| Workqueues::of_context(&s.context).map(drop), "cuCtxGetDevResource"),
        (
            CONFIG,
            |s| Workqueues::of_green_context(&green(s)?).map(drop),
            "cuGreenCtxGetDevResource",
        ),
        (QUEUES, |s| Workqueues::shared_with(&green(s)?).map(drop), "cuGreenCtxGetDevResource"),
        (QUEUES, |s| Workqueues::shared_with_context(&s.context).map(drop), "cuCtxGetDevResource"),
    ];
    rows.into_iter().map(|((name, raw), act, function)| {
        let name = format!("CUdevResourceType::CU_DEV_RESOURCE_TYPE_{name}");
        Row::new(&name, act, function, value("kind"), CUdevResourceType(raw))
    })
}

/// Finds the configuration of work queues in the resources of a descriptor.
fn queues<T>(find: impl Fn(&CUdevWorkqueueConfigResource) -> T) -> impl Fn(&Call) -> Option<T> {
    move |call| {
        let resources = array::<CUdevResource>("resources")(call)?;
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG;
        let its = resources.iter().find(|its| its.type_ == kind)?;
        // SAFETY: the fields are numbers, for which any bits are valid.
        Some(find(unsafe { &its.__bindgen_anon_1.wqConfig }))
    }
}

fn with_queues(change: fn(Workqueues) -> Workqueues) -> impl Fn(&Stage) -> Result<()> {
    move |s| {
        let queues = change(Workqueues::of_device(&s.device)?);
        let descriptor = Descriptor::new([group(s)?]).with_workqueues(queues);
        descriptor.create().map(drop)
    }
}

fn descriptors() -> Vec<Row> {
    let function = "cuDevResourceGenerateDesc";
    let scope = |name: &str, change, raw| {
        let name = format!("CUdevWorkqueueConfigScope::CU_WORKQUEUE_SCOPE_{name}");
        Row::new(&name, with_queues(change), function, queues(|its| its.sharingScope), raw)
    };
    let balanced = CUdevWorkqueueConfigScope::CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED;
    let to_balanced: fn(Workqueues) -> _ =
        |its| its.with_scope(WorkqueueScope::GreenContextBalanced);
    let flags = |name: &str, act: fn(&Stage) -> Result<()>, raw: u32| {
        let name = format!("CUgreenCtxCreate_flags::CU_GREEN_CTX_{name}");
        Row::new(&name, act, "cuGreenCtxCreate", value("flags"), raw)
    };
    vec![
        scope(
            "DEVICE_CTX",
            |its| its.with_scope(WorkqueueScope::DeviceContexts),
            CUdevWorkqueueConfigScope::CU_WORKQUEUE_SCOPE_DEVICE_CTX,
        ),
        scope("GREEN_CTX_BALANCED", to_balanced, balanced),
        Row::of("CUdevWorkqueueConfigResource::sharingScope", with_queues(to_balanced))
            .calls(function)
            .with(queues(|its| its.sharingScope), balanced),
        Row::of(
            "CUdevWorkqueueConfigResource::wqConcurrencyLimit",
            with_queues(|its| its.with_concurrency_limit(3)),
        )
        .calls(function)
        .with(queues(|its| its.wqConcurrencyLimit), 3),
        flags("DEFAULT_STREAM", |s| green(s).map(drop), 1),
        flags(
            "NONE",
            |s| Descriptor::new([group(s)?]).without_default_stream().create().map(drop),
            0,
        ),
    ]
}

fn streams() -> Vec<Row> {
    let urgent = StreamOptions { priority: -2, ..Default::default() };
    let function = "cuGreenCtxStreamCreate";
    let act = move |s: &Stage| green(s)?.stream_with(urgent).map(drop);
    vec![
        Row::new("cuGreenCtxStreamCreate.priority", act, function, value("priority"), -2),
        Row::new("CUstream_flags::CU_STREAM_NON_BLOCKING", act, function, value("flags"), 1_u32),
        Row::call("cuGreenCtxDestroy", green),
        Row::call("cuGreenCtxGetId", |s| green(s)?.id()),
        Row::call("cuGreenCtxRecordEvent", |s| green(s)?.record_event(&s.context.event()?)),
        Row::call("cuGreenCtxWaitEvent", |s| green(s)?.wait_event(&s.context.event()?)),
        Row::call("cuCtxFromGreenCtx", |s| green(s)?.as_raw_context()),
        Row::call("cuStreamGetGreenCtx", |s| {
            let stream = green(s)?.stream()?;
            // SAFETY: the stream outlives the borrowed stream.
            let borrowed = unsafe { Stream::borrow_raw(stream.as_raw(), stream.context()) }?;
            GreenContext::of_stream(&borrowed)
        }),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = counts();
    rows.extend(requests());
    rows.extend(kinds());
    rows.extend(descriptors());
    rows.extend(streams());
    rows
}
