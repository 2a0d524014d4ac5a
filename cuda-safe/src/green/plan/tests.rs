//! Plans for all small numbers of SMs, compared with partitions made of lists of SMs.

use super::*;
use crate::device::Device;
use crate::green::resource::Description;
use cuda_sys::{CUdevResourceType, CUdevSmResource};

#[inline]
fn resource(sm_count: u32) -> SmResource {
    let mut description = Description::default();
    let raw = description.as_mut_raw();
    raw.type_ = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    raw.__bindgen_anon_1.sm = CUdevSmResource { smCount: sm_count, ..Default::default() };
    SmResource { device: Device::unchecked(0), description, kept: None }
}

/// The partitions of a plan and the other SMs, as the numbers of the SMs, with the number of groups to
/// create.
struct Composed {
    parts: Vec<Vec<u32>>,
    others: Vec<u32>,
    units: usize,
}

/// Makes partitions of whole groups, or returns `None` if there are too few.
#[inline]
fn compose(
    sm_count: u32,
    split: &EqualSplit,
    sizes: &[Option<u32>],
    allow_several: bool,
    require_equal: bool,
) -> Option<Composed> {
    let mut others: Vec<u32> = (0..sm_count).collect();
    let (mut parts, mut taken) = (Vec::new(), 0);
    for size in sizes {
        let mut part = Vec::new();
        let mut groups = 0;
        while (part.len() as u32) < size.unwrap_or(0) {
            if taken == split.groups || groups == 1 && !allow_several {
                return None;
            }
            part.extend(others.drain(..split.sm_count as usize));
            (groups, taken) = (groups + 1, taken + 1);
        }
        parts.push(part);
    }
    let mut units = split.groups;
    if let Some(rest) = sizes.iter().position(Option::is_none) {
        let unit = split.sm_count as usize;
        let unused = (split.groups - taken) as usize;
        let rest_len = match (allow_several, require_equal) {
            // One group: the remainder, which has all SMs if no other groups are created.
            (false, _) if taken > 0 || unused == 0 => others.len(),
            (false, _) => unit,
            (true, true) if unused > 0 => unused * unit,
            (true, _) => others.len(),
        };
        if !allow_several && taken > 0 {
            units = taken;
        }
        if rest_len == 0 {
            return None;
        }
        parts[rest] = others.drain(..rest_len).collect();
    }
    Some(Composed { parts, others, units: units as usize })
}

#[test]
#[inline]
fn partitions_of_equal_groups_are_disjoint_and_sum_up_for_all_small_sizes() {
    let (mut cases, mut plans) = (0, 0);
    let mut compare = |split: EqualSplit, sizes: &[Option<u32>]| {
        let sm_count = split.sm_count * split.groups + split.remaining;
        let resource = resource(sm_count);
        for (allow_several, require_equal) in
            [(false, false), (true, false), (true, true), (false, true)]
        {
            let found = resource.compose_from(&split, sizes, allow_several, require_equal);
            let expected = compose(sm_count, &split, sizes, allow_several, require_equal);
            let expected = expected.map(|its| {
                let sum = its.parts.iter().map(Vec::len).sum::<usize>() + its.others.len();
                assert_eq!(sum, sm_count as usize);
                let counts: Vec<u32> = its.parts.iter().map(|part| part.len() as u32).collect();
                (counts, its.others.len() as u32, its.units as u32)
            });
            cases += 1;
            let found = found.map(|plan| {
                plans += 1;
                let Method::Composed { unit, units } = plan.method else {
                    panic!("{plan:?}");
                };
                assert_eq!(unit, split.sm_count);
                for (part, size) in plan.parts.iter().zip(sizes) {
                    assert_eq!((part.asked, part.size), (*size, *size));
                }
                let counts = plan.parts.iter().map(|part| part.sm_count).collect();
                (counts, plan.remaining, units)
            });
            assert_eq!(found, expected, "{split:?}, {sizes:?}, {allow_several}, {require_equal}");
        }
    };
    let mut lists = vec![Vec::new()];
    for _ in 0..3 {
        let sizes = [None, Some(1), Some(2), Some(3), Some(4), Some(6), Some(u32::MAX)];
        let longer = |list: &Vec<_>| {
            let list = list.clone();
            sizes.into_iter().map(move |next| [&list[..], &[next]].concat())
        };
        lists = lists.iter().flat_map(longer).collect();
        lists.retain(|list| list.iter().filter(|size| size.is_none()).count() <= 1);
        for sm_count in 1..=3 {
            for (groups, remaining) in
                (0..=5).flat_map(|groups| (0..=4).map(move |rest| (groups, rest)))
            {
                let split = EqualSplit { sm_count, groups, remaining };
                lists.iter().for_each(|sizes| compare(split, sizes));
            }
        }
    }
    println!("{cases} cases, of which {plans} have a plan");
    assert!(plans > 10_000 && plans < cases);
}

#[test]
#[inline]
fn shares_by_weight_are_the_largest_multiples_that_fit_for_all_weights() {
    let numbers = (0..=20).chain([132, u32::MAX - 1, u32::MAX]);
    let weights = [1, 2, 3, 7, u32::MAX];
    let mut cases = 0;
    for (sms, multiple) in numbers.flat_map(|sms| [1, 2, 3, 8].map(|multiple| (sms, multiple))) {
        for number in 0..weights.len().pow(3) {
            let weights = [number % 5, number / 5 % 5, number / 25].map(|place| weights[place]);
            let sum: u64 = weights.into_iter().map(u64::from).sum();
            for min in [0, 1, 2, 8] {
                let shared = Shared { sms, weights: sum, multiple, min };
                let mut total = 0;
                for weight in weights {
                    let share = u128::from(shared.share(weight));
                    let exact = u128::from(sms) * u128::from(weight);
                    let (sum, multiple) = (u128::from(sum), u128::from(multiple));
                    let fits = |share: u128| share * sum <= exact;
                    let is_largest =
                        share % multiple == 0 && fits(share) && !fits(share + multiple);
                    let is_min = share == u128::from(min)
                        && !fits(share.next_multiple_of(multiple).max(multiple));
                    let is_right = share >= u128::from(min) && (is_largest || is_min);
                    assert!(is_right, "{share} of {sms} for {weight} of {weights:?}");
                    total += share;
                    cases += 1;
                }
                assert!(min != 0 || total <= u128::from(sms), "{total} of {sms} for {weights:?}");
            }
        }
    }
    println!("{cases} cases");
}

#[test]
#[inline]
fn percentages_are_rounded_to_the_next_number_for_all_small_devices() {
    let mut cases = 0;
    for sm_count in (1..=40).chain([132, 144, u32::MAX]) {
        let resource = resource(sm_count);
        for percent in (1..=100).chain([101, 200, 1000, u32::MAX]) {
            let sizes = [PartitionSize::Percent(percent)];
            let count = |rounding| {
                let counts = resource.counts(&sizes, rounding, Shared::default());
                counts.into_iter().flatten().next().map(u128::from).expect("a size")
            };
            let hundredths = u128::from(sm_count) * u128::from(percent);
            let up = count(Rounding::Up);
            let is_next = up * 100 >= hundredths && (up - 1) * 100 < hundredths;
            let is_too_large = hundredths > 100 * u128::from(u32::MAX);
            let is_limit = is_too_large && up == u128::from(u32::MAX);
            assert!(is_next || is_limit, "{percent} % of {sm_count}: {up}");
            for step in [1, 2, 8] {
                let down = count(Rounding::Down(step));
                let step = u128::from(step);
                let is_next = down % step == 0
                    && down * 100 <= hundredths
                    && (down + step) * 100 > hundredths;
                let is_least = down == 1 && step * 100 > hundredths;
                let is_limit = is_too_large && down == u128::from(u32::MAX);
                assert!(is_next || is_least || is_limit, "{percent} % of {sm_count}: {down}");
                cases += 2;
            }
        }
    }
    println!("{cases} cases");
}
