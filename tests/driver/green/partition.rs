use crate::common;
use crate::green::{again, context_alone, refusal, resource_alone, smallest};
use crate::module::kernels::RecordSmid;
use cuda_safe::green::{
    ExactSplit, GreenContext, GroupFlags, GroupRequest, Method, PartitionRequest, PartitionSize,
    Partitions, SmGroup, SmResource, SplitByCount, SplitFlags,
};
use cuda_safe::{Context, CudaVersion, Error, Invalid};
use std::collections::BTreeSet;

fn request_of(sizes: &[PartitionSize]) -> PartitionRequest {
    PartitionRequest { sizes: sizes.to_vec(), ..PartitionRequest::default() }
}

#[test]
fn the_table_of_equal_splits_agrees_with_the_splits() {
    let (_alone, resource) = or_skip!(resource_alone());
    let device = resource.device();
    let splits = resource.equal_splits(SplitFlags::empty()).expect("a table");
    assert_eq!(splits.last().expect("the whole").sm_count, resource.sm_count());
    for planned in splits {
        let split = again(&device)
            .split_by_count(SplitByCount { min: planned.sm_count, ..SplitByCount::default() });
        let split = split.expect("a split");
        let sizes: BTreeSet<u32> = split.groups.iter().map(SmGroup::sm_count).collect();
        assert_eq!(sizes, BTreeSet::from([planned.sm_count]));
        assert_eq!(split.groups.len(), planned.groups as usize);
        assert_eq!(split.remainder.as_ref().map_or(0, SmGroup::sm_count), planned.remaining);
    }
}

#[test]
fn partitions_follow_the_plan_and_run_on_disjoint_sms() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let device = resource.device();
    let record = RecordSmid::new(&context);
    let unit = resource.granularity().expect("known").min;
    let several = cuda_safe::version().expect("a driver") >= CudaVersion::new(12, 5);
    let mut cases = vec![
        vec![PartitionSize::Sms(1), PartitionSize::Sms(1)],
        vec![PartitionSize::Sms(unit), PartitionSize::Sms(unit), PartitionSize::Sms(unit)],
        vec![PartitionSize::Percent(25), PartitionSize::Percent(25)],
    ];
    if several {
        cases.push(vec![
            PartitionSize::Sms(4 * unit),
            PartitionSize::Sms(2 * unit),
            PartitionSize::Sms(unit),
        ]);
        cases.push(vec![PartitionSize::Sms(unit), PartitionSize::Rest]);
        cases.push(vec![PartitionSize::Rest, PartitionSize::Percent(10)]);
    }
    // Miri tests the cases with all remaining SMs.
    for case in cases.into_iter().skip(if cfg!(miri) { 4 } else { 0 }) {
        let asked = request_of(&case);
        let plan = again(&device).plan(&asked).expect("a plan");
        let partitions = again(&device).partition(&asked).expect("partitions");
        assert_eq!(partitions.method, plan.method);
        let left: u32 = partitions.remaining.iter().map(SmGroup::sm_count).sum();
        assert_eq!(left, plan.remaining, "{case:?}");
        let mut seen = BTreeSet::new();
        for (part, planned) in partitions.parts.into_iter().zip(&plan.parts) {
            assert_eq!((part.asked, part.sm_count()), (planned.asked, planned.sm_count));
            assert!(part.sm_count() >= part.asked.unwrap_or(1), "{case:?}");
            let partition = part.create().expect("a partition");
            assert_eq!(partition.sm_count(), planned.sm_count);
            let sms = record.sms(&partition.stream().expect("a stream"));
            assert_eq!(sms.len(), planned.sm_count as usize, "{case:?}");
            assert!(seen.is_disjoint(&sms), "{case:?}");
            seen.extend(sms);
        }
    }
}

#[test]
fn the_rest_gets_all_sms_that_the_others_leave() {
    let (_alone, resource) = or_skip!(resource_alone());
    let (all, unit) = (resource.sm_count(), resource.granularity().expect("known").min);
    // If a partition is one resource, `Rest` is the remainder of the split.
    let asked = request_of(&[PartitionSize::Sms(unit), PartitionSize::Rest]);
    let Partitions { parts, remaining, .. } = resource.partition(&asked).expect("partitions");
    let given: u32 = parts.iter().map(|part| part.sm_count()).sum();
    let left: u32 = remaining.iter().map(SmGroup::sm_count).sum();
    assert_eq!(given + left, all);
    assert!(left < unit.max(8), "{left} are left over");
}

#[test]
fn equal_parts_are_as_large_as_possible() {
    let (_alone, mut resource) = or_skip!(resource_alone());
    let device = resource.device();
    let all = resource.sm_count();
    let splits = resource.equal_splits(SplitFlags::empty()).expect("a table");
    for many in 1..=4 {
        let asked = request_of(&vec![PartitionSize::Equal; many as usize]);
        let plan = resource.plan(&asked).expect("a plan");
        let size = plan.parts[0].sm_count;
        let enough = splits.iter().filter(|split| split.groups >= many);
        let largest = enough.map(|split| split.sm_count).max().expect("some");
        assert!(size >= largest && size * many <= all, "{many}: {size}");
        let made = resource.partition(&asked).expect("partitions");
        let given: Vec<u32> = made.parts.iter().map(|part| part.sm_count()).collect();
        assert_eq!(given, vec![size; many as usize]);
        drop(made);
        resource = again(&device);
    }
}

#[test]
fn equal_parts_share_the_sms_that_the_others_leave() {
    let (_alone, resource) = or_skip!(resource_alone());
    or_skip!(common::since(12, 5));
    let unit = resource.granularity().expect("known").min;
    let asked =
        request_of(&[PartitionSize::Equal, PartitionSize::Sms(2 * unit), PartitionSize::Equal]);
    let plan = resource.plan(&asked).expect("a plan");
    let [one, sized, other] = plan.parts[..] else { panic!("three sizes") };
    assert_eq!(one.sm_count, other.sm_count);
    assert!(one.sm_count >= unit && sized.sm_count >= 2 * unit, "{plan:?}");
    let more = PartitionSize::Sms(one.sm_count + 1);
    let why = resource.plan(&request_of(&[more, PartitionSize::Sms(2 * unit), more]));
    let why = refusal(why.expect_err("more SMs than the device has"));
    assert!(matches!(why, Invalid::NoSuchPartitions { .. }), "{why}");
}

#[test]
fn weights_divide_the_sms_that_the_others_leave() {
    let (_alone, resource) = or_skip!(resource_alone());
    let all = resource.sm_count();
    let plan = |sizes: &[PartitionSize]| resource.plan(&request_of(sizes)).expect("a plan");
    for many in 1..=3 {
        let (equal, weighted) = (PartitionSize::Equal, PartitionSize::Weight(7));
        let (equal, weighted) = (plan(&vec![equal; many]), plan(&vec![weighted; many]));
        assert_eq!(equal, weighted, "{many}");
    }
    or_skip!(common::since(12, 5));
    let sizes = [1, 2, 1].map(PartitionSize::Weight);
    let planned = plan(&sizes);
    let made = resource.partition(&request_of(&sizes)).expect("partitions");
    let given: Vec<u32> = made.parts.iter().map(|part| part.sm_count()).collect();
    let counts: Vec<u32> = planned.parts.iter().map(|part| part.sm_count).collect();
    assert_eq!(given, counts);
    let [one, two, other] = given[..] else { panic!("three sizes") };
    assert!(one == other && one < two && 3 * two > all, "{planned:?}");
    assert_eq!(one + two + other + planned.remaining, all);
}

#[test]
fn shares_are_rounded_down_if_they_exceed_the_device() {
    let (_alone, resource) = or_skip!(resource_alone());
    let (all, units) = (resource.sm_count(), resource.granularity().expect("known"));
    let step = units.min.max(units.multiple);
    let mut cases = vec![vec![50, 50], vec![33, 33, 33], vec![25, 25, 25, 25], vec![10; 10]];
    if common::since(12, 5).is_some() {
        cases.push(vec![50, 25, 25]);
    }
    for shares in cases {
        let asked: Vec<PartitionSize> =
            shares.iter().map(|share| PartitionSize::Percent(*share)).collect();
        let plan = resource.plan(&request_of(&asked)).expect("a plan");
        let given: u32 = plan.parts.iter().map(|part| part.sm_count).sum();
        assert_eq!(given + plan.remaining, all);
        for (part, share) in plan.parts.iter().zip(shares) {
            let whole = (all * share).div_ceil(100);
            assert_eq!(part.asked, Some(whole));
            assert!(part.sm_count + step >= whole, "{part:?}");
        }
    }
}

#[test]
fn impossible_partitions_are_refused() {
    let (_alone, resource) = or_skip!(resource_alone());
    let all = resource.sm_count();
    let cases = [
        (vec![], true),
        (vec![PartitionSize::Sms(0)], true),
        (vec![PartitionSize::Equal, PartitionSize::Percent(0)], true),
        (vec![PartitionSize::Weight(0)], true),
        (vec![PartitionSize::Rest, PartitionSize::Rest], true),
        (vec![PartitionSize::Sms(all), PartitionSize::Sms(1)], false),
        (vec![PartitionSize::Percent(60), PartitionSize::Percent(60)], false),
        (vec![PartitionSize::Sms(u32::MAX)], false),
        (vec![PartitionSize::Sms(all), PartitionSize::Equal], false),
        (vec![PartitionSize::Weight(u32::MAX); 200], false),
    ];
    for (case, is_nonsense) in cases {
        let why = refusal(resource.partition(&request_of(&case)).expect_err("refused"));
        assert_eq!(
            is_nonsense,
            matches!(
                why,
                Invalid::NoGroups | Invalid::ZeroPartitionSize { .. } | Invalid::SeveralRests
            ),
            "{case:?}: {why}"
        );
    }
    smallest(resource);
}

#[test]
fn a_group_is_split_again_into_subgroups() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let device = resource.device();
    let record = RecordSmid::new(&context);
    let units = resource.granularity().expect("known");
    let mut groups = resource
        .split_by_count(SplitByCount {
            min: 2 * units.min.max(units.multiple),
            label: "twice".to_owned(),
            ..SplitByCount::default()
        })
        .expect("a split")
        .groups;
    // The second group: the first one has the SMs that a split of the whole device begins with.
    let (first, second) = (groups.remove(1), groups.remove(0));
    drop(groups);
    let size = first.sm_count();
    let too_large = SplitByCount { min: size + 1, ..SplitByCount::default() };
    let rejected = first.try_split_by_count(too_large).expect_err("too many SMs");
    let split = rejected.value.split_by_count(SplitByCount::default()).expect("a split");
    // Whether the remainder forms another group depends on the location of its SMs.
    assert!(split.groups.len() > 1 || split.remainder.is_some());
    let whole = GreenContext::new([second]).expect("a partition");
    let other = record.sms(&whole.stream().expect("a stream"));
    let mut seen = BTreeSet::new();
    for group in split.groups.into_iter().chain(split.remainder) {
        let given = group.sm_count();
        let partition = GreenContext::new([group]).expect("a partition");
        let sms = record.sms(&partition.stream().expect("a stream"));
        assert_eq!(sms.len(), given as usize);
        assert!(seen.is_disjoint(&sms) && other.is_disjoint(&sms));
        seen.extend(sms);
    }
    assert_eq!(seen.len(), size as usize, "together they are the group");
    // All SMs are returned.
    drop(whole);
    smallest(again(&device));
}

#[test]
fn a_group_is_split_exactly_or_the_error_names_the_needed_version() {
    let (_alone, resource) = or_skip!(resource_alone());
    let device = resource.device();
    let unit = resource.granularity().expect("known").multiple.max(2);
    let split = resource.split_by_count(SplitByCount {
        min: 4 * unit,
        max_groups: Some(2),
        ..SplitByCount::default()
    });
    let mut groups = split.expect("a split").groups;
    let (group, other) = (groups.remove(0), groups.remove(0));
    let size = group.sm_count();
    let asked = ExactSplit {
        groups: vec![GroupRequest::new(unit), GroupRequest::new(2 * unit)],
        ..ExactSplit::default()
    };
    if !common::offers(13, 1) {
        let driver = cuda_safe::version().expect("a driver");
        let expected = format!("cuDevSmResourceSplit needs CUDA 13.1; this driver offers {driver}");
        let error = group.discover(&asked.groups).expect_err("older");
        assert_eq!(error.to_string(), expected);
        let rejected = group.try_split(asked).expect_err("older");
        assert_eq!(rejected.error.to_string(), expected);
        GreenContext::new([rejected.value]).expect("the whole resource is returned");
        return;
    }
    let too_many = ExactSplit {
        groups: vec![GroupRequest::new(size), GroupRequest::new(unit)],
        ..ExactSplit::default()
    };
    let rejected = group.try_split(too_many).expect_err("too many SMs");
    let group = rejected.value;
    let found = group.discover(&asked.groups).expect("an answer");
    assert_eq!([found[0].sm_count, found[1].sm_count], [unit, 2 * unit]);
    let context = Context::primary(&device).expect("a primary context");
    let record = RecordSmid::new(&context);
    let sms = |group: SmGroup| {
        let partition = GreenContext::new([group]).expect("a partition");
        record.sms(&partition.stream().expect("a stream"))
    };
    let others = sms(other);
    let split = group.split(asked).expect("a split");
    let mut seen = BTreeSet::new();
    for (group, size) in split.groups.into_iter().zip([unit, 2 * unit]) {
        assert_eq!(group.sm_count(), size);
        let its = sms(group);
        assert_eq!(its.len() as u32, size);
        assert!(seen.is_disjoint(&its) && others.is_disjoint(&its));
        seen.extend(its);
    }
}

#[test]
fn contexts_partitions_and_streams_report_their_sms() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let all = resource.sm_count();
    let of_context = SmResource::of_context(&context).expect("an answer");
    assert_eq!(of_context.sm_count(), all);
    let group = smallest(resource).groups.remove(0);
    let size = group.sm_count();
    let partition = GreenContext::new([group]).expect("a partition");
    let of_partition = SmResource::of_green_context(&partition).expect("an answer");
    assert_eq!(of_partition.sm_count(), size);
    let streams =
        [(partition.stream().expect("a stream"), size), (context.stream().expect("a stream"), all)];
    for (stream, expected) in streams {
        match SmResource::of_stream(&stream) {
            Ok(resource) => assert_eq!(resource.sm_count(), expected),
            Err(Error::Missing(missing)) => assert!(missing.needs_newer_driver()),
            Err(error) => panic!("{error}"),
        }
    }
    // The partitions are in use.
    let error = of_partition.split_by_count(SplitByCount::default()).expect_err("in use");
    assert!(matches!(refusal(error), Invalid::SplitInUse { .. }));
}

#[test]
fn exact_splits_give_the_requested_sizes_or_the_error_names_the_needed_version() {
    let (_alone, resource) = or_skip!(resource_alone());
    let device = resource.device();
    let unit = resource.granularity().expect("known").multiple.max(2);
    let split = |groups: Vec<GroupRequest>| ExactSplit { groups, ..ExactSplit::default() };
    let sizes = [4 * unit, unit];
    let asked = sizes.map(GroupRequest::new);
    let driver = cuda_safe::version().expect("a driver");
    if driver < CudaVersion::new(13, 1) {
        let error = resource.discover(&asked).expect_err("older").to_string();
        let expected = format!("cuDevSmResourceSplit needs CUDA 13.1; this driver offers {driver}");
        assert_eq!(error, expected);
        let error = resource.split(split(asked.to_vec())).expect_err("older");
        assert_eq!(error.to_string(), expected);
        smallest(resource);
        return;
    }
    let known = resource.discover(&asked).expect("an answer");
    assert_eq!(known[0].sm_count, sizes[0]);
    let all = resource.discover(&[GroupRequest::default()]).expect("an answer");
    assert!(all[0].sm_count > 0 && all[0].coscheduled > 0);
    let given = resource.split(split(asked.to_vec())).expect("a split");
    let got: Vec<u32> = given.groups.iter().map(SmGroup::sm_count).collect();
    assert_eq!(got, sizes);
    assert!(given.remainder.is_some());
    assert!(given.groups[0].properties().flags.is_some());
    let partition = GreenContext::new(given.groups).expect("a partition of both");
    assert_eq!(partition.sm_count(), 5 * unit);
    drop((partition, given.remainder));

    let resource = again(&device);
    let together =
        |coscheduled, sm_count| GroupRequest { coscheduled, ..GroupRequest::new(sm_count) };
    let unknown =
        GroupRequest { flags: GroupFlags::from_bits_retain(1 << 20), ..GroupRequest::new(unit) };
    let refused = [
        vec![],
        vec![GroupRequest::new(3)],
        vec![together(4, 6)],
        vec![together(3, 6)],
        vec![together(34, 68)],
        vec![unknown],
        vec![GroupRequest::new(resource.sm_count() / 2 * 2), GroupRequest::new(2)],
    ];
    for groups in refused {
        refusal(resource.discover(&groups).expect_err("refused"));
    }
    let domain = GroupRequest { flags: GroupFlags::LOCALITY_DOMAIN_ID, ..GroupRequest::new(unit) };
    match resource.discover(&[domain]) {
        Ok(groups) => assert_eq!(groups[0].sm_count, unit),
        Err(error) => assert!(matches!(refusal(error), Invalid::NeedsNewerDriver { .. })),
    }
    // The portable request uses the exact split if it is available.
    let plan = resource.plan(&request_of(&[PartitionSize::Sms(unit), PartitionSize::Rest]));
    assert_eq!(plan.expect("a plan").method, Method::Exact);
}
