//! Resources and their splits: what each version supports, and which combinations are allowed.

use super::code;
use super::{calls, driver, exact, offers, on_each, resource, smallest};
use crate::prelude::*;
use cuda_safe::green::{
    Descriptor, Granularity, GroupFlags, Method, Part, SmGroup, SmProperties, Split,
    WorkqueueScope, Workqueues,
};

fn needs_newer(what: &'static str, major: u16, minor: u16) -> Invalid {
    let since = CudaVersion::new(major, minor);
    Invalid::NeedsNewerDriver { what, since, driver: driver() }
}

#[test]
fn split_flags_and_several_groups_need_12_5() {
    on_each(&["h200@12.4", "h200@12.6", "h200"], |_, context| {
        let flags = SplitFlags::IGNORE_SM_COSCHEDULING;
        let finer = SplitByCount { flags, ..SplitByCount::default() };
        let counted = resource(&context).count_groups(0, flags);
        let split = resource(&context).split_by_count(finer);
        if offers(12, 5) {
            assert_eq!(counted.expect("a count"), 66);
            assert_eq!(split.expect("a split").groups.len(), 66);
        } else {
            let refused = needs_newer("a split with flags", 12, 5);
            assert_eq!(invalid(counted), refused);
            assert_eq!(
                split.expect_err("12.4").to_string(),
                "a split with flags needs CUDA 12.5; this driver offers 12.4"
            );
        }
        let two = smallest(&context).groups.into_iter().take(2);
        match GreenContext::try_new(two) {
            Ok(green) => assert!(offers(12, 5) && green.sm_count() == 16),
            Err(rejected) => {
                assert_eq!(rejected.value.len(), 2, "the groups are returned");
                let refused = needs_newer("a green context with several groups", 12, 5);
                assert_eq!(invalid::<()>(Err(rejected.error)), refused);
                assert!(!offers(12, 5));
            }
        }
    });
}

/// That the driver refuses this, and with which code, follows the documentation and is unverified.
#[test]
fn groups_for_the_largest_clusters_need_compute_capability_9_0() {
    let profiles = ["v100", "a100", "l40s@12.6", "h100@12.6", "h200", "b200@13.5"];
    on_each(&profiles, |profile, context| {
        let flags = SplitFlags::MAX_POTENTIAL_CLUSTER_SIZE;
        let with_clusters = SplitByCount { flags, ..SplitByCount::default() };
        let counted = resource(&context).count_groups(0, flags);
        let split = resource(&context).split_by_count(with_clusters);
        if ["h100@12.6", "h200", "b200@13.5"].contains(&profile) {
            let count = counted.expect("a count") as usize;
            assert_eq!(split.expect("a split").groups.len(), count);
            return;
        }
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        assert_eq!(code(counted), invalid);
        assert_eq!(code(split), invalid);
        let plan = resource(&context).plan(&PartitionRequest {
            sizes: vec![PartitionSize::Sms(16), PartitionSize::Rest],
            flags,
            ..PartitionRequest::default()
        });
        assert_eq!(code(plan), invalid);
        // The other flag does not need clusters.
        resource(&context).count_groups(0, SplitFlags::IGNORE_SM_COSCHEDULING).expect("a count");
    });
}

#[test]
fn work_queues_must_belong_to_the_same_device() {
    in_child!();
    let profile: Profile = "h200@13.5".parse().expect("a profile");
    start(profile.with_devices(2));
    let context = context();
    let other = Device::get(1).expect("there are two");
    let queues = Workqueues::of_device(&other).expect("13.1");
    let with = Descriptor::new(smallest(&context).groups.drain(..1)).with_workqueues(queues);
    let rejected = with.try_create().expect_err("another device's");
    assert_eq!(
        invalid::<()>(Err(rejected.error)),
        Invalid::WorkqueuesOfOtherDevice { its: 1, expected: 0 }
    );
    assert_eq!(rejected.value.sm_count(), 8, "the resource is returned");
    drop((rejected.value, context));
    crate::check();
}

#[test]
fn granularity_follows_the_guide_if_the_driver_does_not_report_it() {
    let table = [
        ("p40@12.4", (1, 1)),
        ("p40@13.0", (2, 2)),
        ("v100@12.6", (2, 2)),
        ("a100@12.4", (4, 2)),
        ("l40s@12.9", (4, 2)),
        ("h200@12.4", (8, 8)),
        ("h200@13.0", (8, 8)),
        ("b200@13.5", (8, 8)),
    ];
    on_each(&table.map(|(profile, _)| profile), |profile, context| {
        let expected = table.iter().find(|(its, _)| *its == profile);
        let (min, multiple) = expected.expect("from the table").1;
        let known = resource(&context).granularity().expect("known");
        assert_eq!(known, Granularity { min, multiple }, "{profile}");
        // The size that the split gives.
        let smallest = smallest(&context);
        assert_eq!(smallest.groups[0].sm_count(), min, "{profile}");
    });
}

#[test]
fn properties_exist_since_their_version() {
    let profiles = ["h200@12.4", "h200@12.9", "h200", "h200@13.1", "h200@13.4", "h200@13.5"];
    on_each(&profiles, |_, context| {
        let its = resource(&context).properties();
        let SmProperties {
            min_partition_size, coscheduled_alignment, flags, locality_domain, ..
        } = its;
        let told = |since| if since { Some(8) } else { None };
        assert_eq!(min_partition_size, told(offers(13, 0)));
        assert_eq!(coscheduled_alignment, told(offers(13, 0)));
        assert_eq!(flags, offers(13, 1).then(GroupFlags::empty));
        assert_eq!(locality_domain, offers(13, 4).then_some(0));
    });
}

#[test]
fn unknown_group_flags_are_refused_without_a_driver_call() {
    on_each(&["h200", "h200@13.5"], |_, context| {
        let group = smallest(&context).groups.remove(0);
        let unknown =
            GroupRequest { flags: GroupFlags::from_bits_retain(0x81), ..GroupRequest::new(8) };
        let refused = Invalid::GroupFlags { index: 1, flags: 0x81 };
        let asked = [GroupRequest::new(8), unknown];
        let whole = resource(&context);
        let log = calls(|| {
            assert_eq!(invalid(whole.discover(&asked)), refused);
            assert_eq!(invalid(whole.split(exact(&asked))), refused);
            assert_eq!(invalid(group.discover(&asked)), refused);
            assert_eq!(invalid(group.split(exact(&asked))), refused);
        });
        assert_eq!(log, [""; 0]);
    });
}

#[test]
fn groups_of_an_exact_split_are_checked_against_the_device() {
    on_each(&["a100@13.5", "h200@13.5"], |profile, context| {
        let whole = resource(&context);
        let rule = |coscheduled, sm_count| {
            let asked = GroupRequest { coscheduled, ..GroupRequest::new(sm_count) };
            match whole.discover(&[asked]) {
                Ok(found) => {
                    assert_eq!((found[0].sm_count, found[0].coscheduled), (sm_count, coscheduled));
                    None
                }
                Err(error) => match invalid::<()>(Err(error)) {
                    Invalid::GroupRequest { rule, .. } => Some(rule),
                    other => panic!("{other}"),
                },
            }
        };
        let odd = Some("the number of co-scheduled SMs must be even");
        assert_eq!(rule(3, 12), odd);
        assert_eq!(rule(33, 66), odd);
        assert_eq!(rule(2, 16), None);
        let large = profile.starts_with("h200");
        let few = "at most 2 SMs can be co-scheduled before compute capability 9.0";
        assert_eq!(rule(4, 16), (!large).then_some(few));
        assert_eq!(rule(32, 64), (!large).then_some(few));
        let many = Some("at most 32 SMs can be co-scheduled");
        assert_eq!(rule(34, 68), many);
    });
}

#[test]
fn a_backfilled_group_may_have_any_even_size() {
    on_each(&["h200@13.1", "h200@13.5"], |_, context| {
        let filled =
            GroupRequest { coscheduled: 8, flags: GroupFlags::BACKFILL, ..GroupRequest::new(12) };
        let plain = GroupRequest { flags: GroupFlags::empty(), ..filled };
        let why = invalid(resource(&context).discover(&[plain]));
        assert!(matches!(why, Invalid::GroupRequest { .. }), "{why}");
        // The group uses the default co-scheduled count of the device, which the driver chooses.
        let usual = resource(&context).discover(&[GroupRequest::new(12)]);
        assert_eq!(code(usual), CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        assert_eq!(resource(&context).discover(&[filled]).expect("an answer")[0].sm_count, 12);
        let all = GroupRequest { flags: GroupFlags::BACKFILL, ..GroupRequest::default() };
        let split = resource(&context).split(exact(&[filled, all]));
        let split = split.expect("a split");
        let sizes: Vec<u32> = split.groups.iter().map(SmGroup::sm_count).collect();
        assert_eq!(sizes, [12, 120]);
        assert!(split.remainder.is_none());
        for group in &split.groups {
            assert_eq!(group.properties().flags, Some(GroupFlags::BACKFILL));
        }
    });
}

#[test]
fn an_empty_remainder_is_discovered_as_a_group_of_zero_sms() {
    on_each(&["h200@13.5"], |_, context| {
        let asked = [GroupRequest::new(128), GroupRequest::default()];
        let found = resource(&context).discover(&asked).expect("an answer");
        assert_eq!((found[0].sm_count, found[1].sm_count), (128, 0));
        let wrong = CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        assert_eq!(code(resource(&context).split(exact(&asked))), wrong);
    });
}

#[test]
fn groups_are_pinned_to_locality_domains() {
    on_each(&["b200@13.1", "b200@13.4", "b200@13.5"], |_, context| {
        let pinned = |locality_domain, sm_count| GroupRequest {
            flags: GroupFlags::LOCALITY_DOMAIN_ID,
            locality_domain,
            preferred_coscheduled: 16,
            ..GroupRequest::new(sm_count)
        };
        let newer = |minor| needs_newer("a group with these flags", 13, minor);
        let whole = || resource(&context);
        if !offers(13, 4) {
            assert_eq!(invalid(whole().discover(&[pinned(0, 0)])), newer(4));
            return;
        }
        let domains =
            context.device().attribute(cuda_safe::device::attribute::LOCALITY_DOMAIN_COUNT);
        assert_eq!(domains.expect("13.4"), 2);
        let asked = [pinned(0, 0), pinned(1, 64)];
        let found = whole().discover(&asked).expect("an answer");
        let sizes: Vec<u32> = found.iter().map(|group| group.sm_count).collect();
        assert_eq!(sizes, [72, 64], "of 74 each, in eights");
        assert!(found.iter().all(|group| group.preferred_coscheduled == 16));
        let split = whole().split(exact(&asked)).expect("a split");
        for (domain, group) in (0..).zip(&split.groups) {
            let its = group.properties();
            assert_eq!(its.locality_domain, Some(domain));
            assert_eq!(its.flags, Some(GroupFlags::LOCALITY_DOMAIN_ID));
        }
        // The two domains cannot form one partition.
        assert_eq!(
            invalid(GreenContext::new(split.groups)),
            Invalid::GroupsThatDiffer { what: "locality domain", first: 0, other: 1 }
        );
        drop(split.remainder);
        let wrong = CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        assert_eq!(code(whole().discover(&[pinned(2, 8)])), wrong);
        assert_eq!(code(whole().discover(&[pinned(0, 80)])), wrong);

        let any = pinned(GroupRequest::ANY_LOCALITY_DOMAIN, 72);
        let more = GroupRequest {
            flags: GroupFlags::LOCALITY_DOMAIN_ID | GroupFlags::LOCALITY_DOMAIN_SUPPLEMENTAL_SMS,
            ..pinned(0, 80)
        };
        if !offers(13, 5) {
            assert_eq!(invalid(whole().discover(&[any])), newer(5));
            assert_eq!(invalid(whole().discover(&[more])), newer(5));
            return;
        }
        let split = whole().split(exact(&[any, any])).expect("a split");
        let domains = split.groups.iter().map(|group| group.properties().locality_domain);
        assert_eq!(domains.collect::<Vec<_>>(), [Some(0), Some(1)]);
        drop(split.groups);
        drop(split.remainder);
        assert_eq!(whole().discover(&[more]).expect("an answer")[0].sm_count, 80);
    });
}

/// As `cuda-safe` asks only newer drivers, with the raw call.
#[test]
fn a_group_in_any_locality_domain_is_refused_before_13_5() {
    on_each(&["b200@13.4", "b200@13.5"], |_, context| {
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        let mut whole = CUdevResource::default();
        succeeds!(cuDeviceGetDevResource(context.device().as_raw(), &raw mut whole, kind));
        let mut asked = CU_DEV_SM_RESOURCE_GROUP_PARAMS::zeroed();
        (asked.smCount, asked.localityDomainId) = (16, GroupRequest::ANY_LOCALITY_DOMAIN);
        asked.flags = CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.0;
        let mut rest = CUdevResource::default();
        let (whole, rest) = (&raw const whole, &raw mut rest);
        let mut group = CUdevResource::default();
        let split = code!(cuDevSmResourceSplit(&raw mut group, 1, whole, rest, 0, &raw mut asked));
        let expected = match offers(13, 5) {
            true => CUresult::CUDA_SUCCESS,
            false => CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        };
        assert_eq!(split, expected);
    });
}

#[test]
fn a_group_with_unknown_flags_or_a_reserved_word_is_refused() {
    on_each(&["h200@13.1"], |_, context| {
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        let mut whole = CUdevResource::default();
        succeeds!(cuDeviceGetDevResource(context.device().as_raw(), &raw mut whole, kind));
        let code = |change: fn(&mut CU_DEV_SM_RESOURCE_GROUP_PARAMS)| {
            let mut asked = CU_DEV_SM_RESOURCE_GROUP_PARAMS::zeroed();
            asked.smCount = 16;
            change(&mut asked);
            let (mut group, mut rest) = (CUdevResource::default(), CUdevResource::default());
            let (group, rest) = (&raw mut group, &raw mut rest);
            code!(cuDevSmResourceSplit(group, 1, &raw const whole, rest, 0, &raw mut asked))
        };
        assert_eq!(code(|_| ()), CUresult::CUDA_SUCCESS);
        assert_eq!(code(|its| its.flags = 1 << 30), INVALID);
        assert_eq!(code(|its| its.reserved[0] = 1), INVALID);
    });
}

#[test]
fn groups_of_one_green_context_need_the_same_scheduling_since_13_1() {
    on_each(&["h200", "h200@13.1", "h200@13.5"], |_, context| {
        let Split { mut groups, remainder } = smallest(&context);
        let both = groups.drain(..1).chain(remainder);
        match GreenContext::try_new(both) {
            Ok(green) => assert!(!offers(13, 1) && green.sm_count() == 20),
            Err(rejected) => {
                assert!(offers(13, 1));
                assert_eq!(rejected.value.len(), 2, "the groups are returned");
                assert_eq!(
                    invalid::<()>(Err(rejected.error)),
                    Invalid::GroupsThatDiffer {
                        what: "co-scheduled alignment",
                        first: 8,
                        other: 2
                    }
                );
            }
        }
    });
}

/// Covers drivers that refuse exact splits but allow partitions composed of groups.
#[test]
fn composed_partitions_exclude_a_remainder_that_cannot_be_mixed() {
    on_each(&["h200", "h200@13.1", "h200@13.5"], |_, context| {
        let fault = Fault::of_function("cuDevSmResourceSplit")
            .with(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)
            .from_then_on()
            .inject(Scope::Process);
        let (none, finer) = (SplitFlags::empty(), SplitFlags::IGNORE_SM_COSCHEDULING);
        let (sms, rest) = (PartitionSize::Sms(24), PartitionSize::Rest);
        let cases = [
            (vec![sms, rest], none, 24),
            (vec![PartitionSize::Sms(128), rest], none, 128),
            (vec![sms, rest], finer, 24),
        ];
        for (sizes, flags, first) in cases {
            let asked = PartitionRequest { sizes, flags, ..PartitionRequest::default() };
            let plan = resource(&context).plan(&asked).expect("a plan");
            assert!(matches!(plan.method, Method::Composed { .. }));
            let split = resource(&context).partition(&asked).expect("partitions");
            let left: u32 = split.remaining.iter().map(SmGroup::sm_count).sum();
            let greens = split.parts.into_iter().map(Part::create);
            let sizes: Vec<u32> =
                greens.map(|green| green.expect("a green context").sm_count()).collect();
            assert_eq!(sizes[0], first);
            assert_eq!(sizes[0] + sizes[1] + left, 132);
            assert_eq!((sizes[1], left), (plan.parts[1].sm_count, plan.remaining));
            if !offers(13, 1) {
                assert_eq!(left, 0, "the remainder may be mixed");
            }
        }
        drop(fault);
    });
}

/// Before 12.5 a partition is one group or the remainder of the split.
#[test]
fn the_rest_is_the_remainder_and_all_groups_that_are_left() {
    on_each(&["h200@12.4", "h200@12.6", "h200"], |_, context| {
        let asked = PartitionRequest {
            sizes: vec![PartitionSize::Sms(8), PartitionSize::Rest],
            ..PartitionRequest::default()
        };
        let plan = resource(&context).plan(&asked).expect("a plan");
        let units = if offers(12, 5) { 15 } else { 1 };
        assert_eq!(plan.method, Method::Composed { unit: 8, units });
        let planned: Vec<u32> = plan.parts.iter().map(|part| part.sm_count).collect();
        assert_eq!((planned.as_slice(), plan.remaining), (&[8, 124][..], 0));
        let made = resource(&context).partition(&asked).expect("partitions");
        let greens = made.parts.into_iter().map(Part::create);
        let sizes: Vec<u32> =
            greens.map(|green| green.expect("a green context").sm_count()).collect();
        assert_eq!(sizes, planned);
    });
}

/// The numbers are in chapter 7 of the guide.
#[test]
fn percentages_that_do_not_fit_leave_sms_that_the_rest_would_use() {
    on_each(&["h200"], |_, context| {
        let plan = |second| {
            let asked = PartitionRequest {
                sizes: vec![PartitionSize::Percent(60), second],
                ..PartitionRequest::default()
            };
            let plan = resource(&context).plan(&asked).expect("a plan");
            let sizes: Vec<u32> = plan.parts.iter().map(|part| part.sm_count).collect();
            (sizes, plan.remaining)
        };
        assert_eq!(plan(PartitionSize::Percent(40)), (vec![72, 48], 12));
        assert_eq!(plan(PartitionSize::Rest), (vec![80, 52], 0));
    });
}

#[test]
fn the_error_names_a_driver_that_allows_one_group_per_partition() {
    on_each(&["h200@12.4", "h200@12.6", "h200"], |_, context| {
        let asked = PartitionRequest {
            sizes: vec![PartitionSize::Sms(100); 2],
            ..PartitionRequest::default()
        };
        let refused = Invalid::NoSuchPartitions {
            sizes: vec![Some(100); 2],
            sm_count: 132,
            single: (!offers(12, 5)).then(driver),
        };
        assert_eq!(invalid(resource(&context).plan(&asked)), refused);
    });
}

#[test]
fn weights_leave_fewer_sms_unused_than_percentages() {
    use PartitionSize::{Equal, Percent, Rest, Sms, Weight};
    let cases: [(Vec<PartitionSize>, &[u32]); 5] = [
        (vec![Percent(83), Percent(16)], &[104, 16]),
        (vec![Weight(5), Weight(1)], &[112, 16]),
        (vec![Weight(1), Equal, Weight(2)], &[32, 32, 64]),
        (vec![Weight(1), Sms(64), Weight(3)], &[16, 64, 48]),
        (vec![Weight(3), Rest, Weight(3)], &[64, 4, 64]),
    ];
    on_each(&["h200@12.6", "h200@13.1", "h200@13.5"], |_, context| {
        for (sizes, expected) in &cases {
            let asked = PartitionRequest { sizes: sizes.clone(), ..PartitionRequest::default() };
            let plan = resource(&context).plan(&asked).expect("a plan");
            let given: Vec<u32> = plan.parts.iter().map(|part| part.sm_count).collect();
            assert_eq!(given, *expected, "{sizes:?}");
        }
        // A share of less than one SM gets the smallest partition.
        let asked = PartitionRequest {
            sizes: vec![Weight(1000), Weight(1)],
            ..PartitionRequest::default()
        };
        let plan = resource(&context).plan(&asked).expect("a plan");
        assert!(plan.parts[0].sm_count >= 112 && plan.parts[1].sm_count == 8, "{plan:?}");
    });
}

#[test]
fn invalid_split_flags_are_refused_even_if_smaller_percentages_need_none() {
    on_each(&["h200", "h200@13.5"], |_, context| {
        let flags = SplitFlags::all();
        let asked = PartitionRequest {
            sizes: vec![PartitionSize::Percent(50); 2],
            flags,
            ..PartitionRequest::default()
        };
        let flags = flags.bits();
        assert_eq!(invalid(resource(&context).plan(&asked)), Invalid::SplitFlags { flags });
    });
}

#[test]
fn a_group_is_split_exactly_since_13_1() {
    on_each(&["h200@12.4", "h200", "h200@13.1", "h200@13.5"], |_, context| {
        let split =
            resource(&context).split_by_count(SplitByCount { min: 24, ..SplitByCount::default() });
        let Split { groups, remainder } = split.expect("a split");
        let [group, ..]: [SmGroup; 5] = groups.try_into().expect("five of 24, and 12");
        let remainder = remainder.expect("12");
        let asked = [GroupRequest::new(16), GroupRequest::default()];
        if !offers(13, 1) {
            let driver = driver();
            let words =
                format!("cuDevSmResourceSplit needs CUDA 13.1; this driver offers {driver}");
            let log = calls(|| {
                let error = group.discover(&asked).expect_err("older");
                assert_eq!(error.to_string(), words);
                let rejected = group.try_split(exact(&asked)).expect_err("older");
                assert_eq!(rejected.error.to_string(), words);
                assert_eq!(rejected.value.sm_count(), 24);
            });
            assert_eq!(log, [""; 0], "no green context is created for it");
            return;
        }
        let found = group.discover(&asked).expect("an answer");
        assert_eq!((found[0].sm_count, found[1].sm_count), (16, 8));
        assert_eq!(cuda_sim::alive().green_contexts, 0, "the query has ended");
        let smaller = group.split(exact(&asked)).expect("a split");
        assert_eq!(cuda_sim::alive().green_contexts, 1, "through a green context of the group");
        let sizes: Vec<u32> = smaller.groups.iter().map(SmGroup::sm_count).collect();
        assert_eq!(sizes, [16, 8]);

        // A remainder is split without a green context.
        let asked = [GroupRequest::new(8)];
        let log = calls(|| {
            assert_eq!(remainder.discover(&asked).expect("an answer")[0].sm_count, 8);
            let smaller = remainder.split(exact(&asked)).expect("a split");
            assert_eq!(smaller.groups[0].sm_count(), 8);
            assert_eq!(smaller.remainder.expect("4").sm_count(), 4);
        });
        assert_eq!(log, ["cuDevSmResourceSplit"; 2]);
        // The device is in use through the resource and its parts.
        let rejected = resource(&context).split_by_count(SplitByCount::default());
        assert!(matches!(invalid(rejected), Invalid::SplitInUse { .. }));
        drop(smaller);
        smallest(&context);
    });
}

/// Drivers are known to refuse a group that comes from a split, whatever the documentation says.
#[test]
fn a_remainder_the_driver_refuses_to_split_is_split_through_a_green_context() {
    on_each(&["h200@13.5"], |_, context| {
        let remainder = smallest(&context).remainder.expect("12");
        let refused = Fault::of_function("cuDevSmResourceSplit")
            .with(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)
            .inject(Scope::Process);
        let split = remainder.split(exact(&[GroupRequest::new(8)]));
        drop(refused);
        let split = split.expect("a split");
        assert_eq!(cuda_sim::alive().green_contexts, 1);
        let part = GreenContext::new(split.groups).expect("a green context");
        assert_eq!(part.sm_count(), 8);
        drop(split.remainder);
        assert_eq!(cuda_sim::alive().green_contexts, 2, "the whole group stays");
    });
}

#[test]
fn unknown_work_queue_settings_are_refused() {
    on_each(&["h200@13.1", "h200@13.5"], |_, context| {
        let queues = Workqueues::of_device(&context.device()).expect("13.1");
        let unknown = queues.clone().with_scope(WorkqueueScope::Other(77));
        let none = queues.clone().with_concurrency_limit(0);
        let mut groups: Vec<SmGroup> = smallest(&context).groups.drain(..1).collect();
        for (wrong, setting) in [(unknown, "scope"), (none, "concurrency limit")] {
            let descriptor = Descriptor::new(groups).with_workqueues(wrong);
            let rejected = descriptor.try_create().expect_err("refused");
            let why = invalid::<()>(Err(rejected.error));
            assert!(
                matches!(why, Invalid::WorkqueueSetting { setting: its, .. } if its == setting),
                "{why}"
            );
            groups = rejected.value.into_groups();
        }
        Descriptor::new(groups).with_workqueues(queues).create().expect("settings of the driver");
    });
}

#[test]
fn a_plan_of_a_driver_with_exact_splits_is_exact() {
    on_each(&["h200@13.5"], |_, context| {
        let sizes = vec![PartitionSize::Sms(16), PartitionSize::Sms(24), PartitionSize::Rest];
        let asked = PartitionRequest { sizes, ..Default::default() };
        let plan = resource(&context).plan(&asked).expect("a plan");
        let counts: Vec<u32> = plan.parts.iter().map(|part| part.sm_count).collect();
        assert_eq!((plan.method, counts), (Method::Exact, vec![16, 24, 88]));
    });
}
