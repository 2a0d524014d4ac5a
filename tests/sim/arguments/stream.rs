//! Streams: creation, attributes and captures.

use super::{On, Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::stream::{
    AccessProperty, AccessWindow, MemorySyncDomain, MemorySyncDomainMap, SynchronizationPolicy,
};

fn made(options: StreamOptions) -> impl Fn(&Stage) -> Result<()> {
    move |s| s.context.stream_with(options).map(drop)
}

fn options() -> Vec<Row> {
    let function = "cuStreamCreateWithPriority";
    let blocking = StreamOptions { blocking: true, ..Default::default() };
    let urgent = StreamOptions { priority: -3, ..Default::default() };
    let name = "CUstream_flags::CU_STREAM_DEFAULT";
    let non_blocking = "CUstream_flags::CU_STREAM_NON_BLOCKING";
    let plain = StreamOptions::default();
    vec![
        Row::new(name, made(blocking), function, value("flags"), 0_u32),
        Row::new(non_blocking, made(plain), function, value("flags"), 1_u32),
        Row::of("cuStreamCreateWithPriority.priority", made(urgent))
            .calls(function)
            .with(value("priority"), -3),
    ]
}

/// Finds the value of an attribute that is set on a stream.
fn set<T>(
    id: CUstreamAttrID,
    find: impl Fn(&CUstreamAttrValue) -> T,
) -> impl Fn(&Call) -> Option<T> {
    let of_value = field("value", find);
    move |call| match call.values::<CUstreamAttrID>("id")? {
        [its] if *its == id => of_value(call),
        _ => None,
    }
}

fn policies() -> impl Iterator<Item = Row> {
    let id = CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY;
    // SAFETY: the field is a number, for which any bits are valid.
    let found = move || set(id, |value| unsafe { value.syncPolicy });
    [
        ("AUTO", SynchronizationPolicy::Auto, CUsynchronizationPolicy::CU_SYNC_POLICY_AUTO),
        ("SPIN", SynchronizationPolicy::Spin, CUsynchronizationPolicy::CU_SYNC_POLICY_SPIN),
        ("YIELD", SynchronizationPolicy::Yield, CUsynchronizationPolicy::CU_SYNC_POLICY_YIELD),
        (
            "BLOCKING_SYNC",
            SynchronizationPolicy::BlockingSync,
            CUsynchronizationPolicy::CU_SYNC_POLICY_BLOCKING_SYNC,
        ),
    ]
    .into_iter()
    .flat_map(move |(name, policy, raw)| {
        let name = format!("CUsynchronizationPolicy::CU_SYNC_POLICY_{name}");
        let attribute = "CUstreamAttrID::CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY";
        [name.as_str(), attribute].map(|name| {
            let act = move |s: &Stage| s.stream.set_synchronization_policy(policy);
            Row::new(name, act, "cuStreamSetAttribute", found(), raw)
        })
    })
}

/// Sets a window of 24 bytes, and returns their address.
fn set_window(s: &Stage) -> Result<usize> {
    let memory = DeviceBuffer::<u64>::uninit(&s.stream, 4)?;
    let part = memory.slice(1..)?;
    let start = part.as_raw();
    let window = AccessWindow {
        hit_ratio: 0.25,
        hit: AccessProperty::Persisting,
        miss: AccessProperty::Streaming,
        ..Default::default()
    };
    s.stream.set_access_window(part, window)?;
    Ok(usize::try_from(start).expect("64 bits"))
}

fn windows() -> Vec<Row> {
    fn row<T: PartialEq + Debug + 'static>(
        name: &str,
        find: impl Fn(CUaccessPolicyWindow) -> T + 'static,
        raw: T,
    ) -> Row {
        // SAFETY: the fields are numbers, for which any bits are valid.
        let window = |value: &CUstreamAttrValue| unsafe { value.accessPolicyWindow };
        let found = set(CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, move |value| find(window(value)));
        let act = |s: &Stage| set_window(s).map(drop);
        Row::new(name, act, "cuStreamSetAttribute", found, raw)
    }
    let normal = |s: &Stage| {
        let memory = DeviceBuffer::<u64>::uninit(&s.stream, 4)?;
        s.stream.set_access_window(&memory, AccessWindow::default())
    };
    // SAFETY: the fields are numbers, for which any bits are valid.
    let window = |value: &CUstreamAttrValue| unsafe { value.accessPolicyWindow };
    let start =
        set(CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, move |value| window(value).base_ptr.addr());
    let both = set(CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, move |value| {
        (window(value).hitProp, window(value).missProp)
    });
    let bytes = set(CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, move |value| window(value).num_bytes);
    let (persisting, streaming) = (
        CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING,
        CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING,
    );
    let is = CUaccessProperty::CU_ACCESS_PROPERTY_NORMAL;
    let name = "CUstreamAttrID::CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW";
    let function = "cuStreamSetAttribute";
    vec![
        Row::of("CUaccessPolicyWindow::base_ptr", set_window).calls(function).with_told(start),
        row("CUaccessPolicyWindow::num_bytes", |its| its.num_bytes, 24),
        row("CUaccessPolicyWindow::hitRatio", |its| its.hitRatio, 0.25),
        row("CUaccessPolicyWindow::hitProp", |its| its.hitProp, persisting),
        row("CUaccessPolicyWindow::missProp", |its| its.missProp, streaming),
        row("CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING", |its| its.hitProp, persisting),
        row("CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING", |its| its.missProp, streaming),
        Row::new("CUaccessProperty::CU_ACCESS_PROPERTY_NORMAL", normal, function, both, (is, is)),
        row(name, |its| its.num_bytes, 24),
        Row::new(name, |s| s.stream.clear_access_window(), function, bytes, 0),
    ]
}

fn domains() -> Vec<Row> {
    // SAFETY: the field is a number, for which any bits are valid.
    let domain = |value: &CUstreamAttrValue| unsafe { value.memSyncDomain };
    // SAFETY: the fields are numbers, for which any bits are valid.
    let map = |value: &CUstreamAttrValue| unsafe { value.memSyncDomainMap };
    let found = || set(CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, domain);
    let act = |domain| move |s: &Stage| s.stream.set_memory_sync_domain(domain);
    let both = MemorySyncDomainMap { default: 1, remote: 2 };
    let set_map = move |s: &Stage| s.stream.set_memory_sync_domain_map(both);
    let default = CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
    let remote = CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    let function = "cuStreamSetAttribute";
    let name = "CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT";
    let remote_name = "CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE";
    let attribute = "CUstreamAttrID::CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN";
    let map_attribute = "CUstreamAttrID::CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP";
    let part = |part: fn(CUlaunchMemSyncDomainMap) -> u8| {
        set(CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, move |value| part(map(value)))
    };
    vec![
        Row::new(name, act(MemorySyncDomain::Default), function, found(), default),
        Row::new(remote_name, act(MemorySyncDomain::Remote), function, found(), remote),
        Row::new(attribute, act(MemorySyncDomain::Remote), function, found(), remote),
        Row::of("CUlaunchMemSyncDomainMap::default_", set_map)
            .calls(function)
            .with(part(|its| its.default_), 1),
        Row::new("CUlaunchMemSyncDomainMap::remote", set_map, function, part(|its| its.remote), 2),
        Row::new(map_attribute, set_map, function, part(|its| its.remote), 2),
        Row::of("CUstreamAttrID::CU_STREAM_ATTRIBUTE_PRIORITY", |s| s.stream.set_priority(-2))
            .calls(function)
            .with(
                // SAFETY: the field is a number, for which any bits are valid.
                set(CU_STREAM_ATTRIBUTE_PRIORITY, |value| unsafe { value.priority }),
                -2,
            ),
    ]
}

/// Queries of a stream.
fn asked() -> Vec<Row> {
    let row = |name, act: fn(&Stream) -> Result<()>, id| {
        let name = format!("CUstreamAttrID::CU_STREAM_ATTRIBUTE_{name}");
        let act = move |s: &Stage| act(&s.stream);
        Row::new(&name, act, "cuStreamGetAttribute", value::<CUstreamAttrID>("id"), id)
    };
    vec![
        row(
            "ACCESS_POLICY_WINDOW",
            |stream| stream.access_window().map(drop),
            CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        ),
        row(
            "SYNCHRONIZATION_POLICY",
            |stream| stream.synchronization_policy().map(drop),
            CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY,
        ),
        row(
            "MEM_SYNC_DOMAIN",
            |stream| stream.memory_sync_domain().map(drop),
            CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN,
        ),
        row(
            "MEM_SYNC_DOMAIN_MAP",
            |stream| stream.memory_sync_domain_map().map(drop),
            CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
        ),
    ]
}

fn modes() -> impl Iterator<Item = Row> {
    [
        ("GLOBAL", CaptureMode::Global, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL),
        (
            "THREAD_LOCAL",
            CaptureMode::ThreadLocal,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        ),
        ("RELAXED", CaptureMode::Relaxed, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED),
    ]
    .into_iter()
    .flat_map(|(name, mode, raw)| {
        let name = format!("CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_{name}");
        let begin = move |s: &Stage| s.stream.begin_capture(mode)?.end().map(drop);
        let exchange = move |_: &Stage| mode.with(|| ());
        let found = || value("mode");
        [
            Row::new(&name, begin, "cuStreamBeginCapture_v2", found(), raw),
            Row::new(&name, exchange, "cuThreadExchangeStreamCaptureMode", found(), raw),
        ]
    })
}

fn graph(s: &Stage) -> Result<Graph> {
    s.stream.begin_capture(CaptureMode::Relaxed)?.end()
}

fn calls() -> Vec<Row> {
    let raw = |s: &Stage| s.stream.as_raw();
    vec![
        Row::call("cuStreamSynchronize", |s| s.stream.synchronize()),
        Row::call("cuStreamQuery", |s| s.stream.is_complete()),
        Row::call("cuStreamDestroy_v2", |s| s.context.stream()),
        Row::call("cuStreamGetPriority", |s| s.stream.priority()),
        Row::call("cuStreamGetFlags", |s| s.stream.is_blocking()),
        Row::call("cuStreamGetId", |s| s.stream.id()),
        Row::call("cuStreamIsCapturing", |s| s.stream.capture_status()),
        Row::call("cuStreamGetCaptureInfo_v3", |s| s.stream.capture_id()),
        Row::call("cuStreamGetCaptureInfo_v2", |s| s.stream.capture_id()).on(On::Oldest),
        Row::of("cuStreamCopyAttributes", |s| {
            let other = s.context.stream()?;
            other.copy_attributes_from(&s.stream)?;
            Ok([other.as_raw(), s.stream.as_raw()])
        })
        .calls("cuStreamCopyAttributes")
        .with_told(|call| Some([value("to")(call)?, value("from")(call)?])),
        Row::call("cuStreamGetCtx", move |s| {
            // SAFETY: the stream outlives the borrowed stream.
            unsafe { Stream::borrow_checked(raw(s), &s.context) }
        }),
        Row::call("cuStreamAddCallback", |s| s.stream.completion()),
        Row::call("cuLaunchHostFunc", |s| s.stream.launch_host_function(|| ())),
        Row::call("cuStreamEndCapture", graph),
        Row::call("cuGraphDestroy", graph),
        Row::call("cuGraphExecDestroy", |s| graph(s)?.instantiate()),
        Row::call("cuGraphLaunch", |s| {
            let graph = graph(s)?.instantiate()?;
            // SAFETY: the graph is empty.
            unsafe { graph.launch_unchecked(&s.stream) }?;
            s.stream.synchronize()
        }),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = options();
    rows.extend(policies());
    rows.extend(windows());
    rows.extend(domains());
    rows.extend(asked());
    rows.extend(modes());
    rows.extend(calls());
    rows
}
