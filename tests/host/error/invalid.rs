//! `cuda_safe::Invalid`: the texts with computed parts. A test beside the table checks that every text shows the
//! fields of its variant.

use cuda_safe::Invalid;
use cuda_sys::{CUresult, CudaVersion};

const DRIVER: CudaVersion = CudaVersion::new(12, 4);

#[track_caller]
fn has(invalid: Invalid, words: &[&str]) {
    let text = invalid.to_string();
    for word in words {
        assert!(text.contains(word), "{invalid:?} prints {text:?}");
    }
}

#[test]
fn a_pool_without_a_label_is_not_named() {
    let (holder, parts) = (String::new(), 2);
    assert_eq!(
        Invalid::PoolInUse { holder, parts }.to_string(),
        "the partition pool is in use: 2 leased partitions have not been returned. A partition is returned \
         when it, its streams, and the buffers and graphs that use these streams are dropped"
    );
    let text = Invalid::PartitionInUse { holder: String::new() };
    assert!(!text.to_string().contains('"'), "{text}");
    let text = Invalid::SplitInUse { device: 5, holder: String::new() };
    assert!(!text.to_string().contains('"'), "{text}");
}

#[test]
fn partitions_that_do_not_fit_are_told_why() {
    let partitions = |sizes, single| Invalid::NoSuchPartitions { sizes, sm_count: 132, single };
    let single = Some(DRIVER);
    has(partitions(vec![Some(100), None], single), &["132", "100, the rest", "12.5", "12.4"]);
    has(partitions(vec![Some(119), Some(119)], single), &["119, 119", "need 238 SMs"]);
    let none_left = &["132, the rest", "no SMs are left for the rest"];
    has(partitions(vec![Some(132), None], single), none_left);
    has(partitions(vec![Some(65), Some(65)], None), &["65, 65", "equal_splits"]);
    let (index, sm_count, rule) = (3, 10, "a rule");
    let text = Invalid::GroupRequest { index, sm_count, coscheduled: 0, rule }.to_string();
    assert_eq!(text, "group 3 (zero-based) with 10 SMs: a rule");
}

#[test]
fn kernels_are_listed_if_they_are_known() {
    let no_kernel = |available| Invalid::NoSuchKernel { name: "scale".to_owned(), available };
    assert_eq!(no_kernel(None).to_string(), "there is no kernel \"scale\"");
    has(no_kernel(Some(Vec::new())), &["\"scale\"", "no kernels"]);
    let names = vec!["add".to_owned(), "sub".to_owned()];
    has(no_kernel(Some(names)), &["\"scale\"", "add, sub"]);
}

#[test]
fn texts_depend_on_the_values() {
    has(Invalid::MissingRanges { given: 2, existing: 5 }, &["2 of the 5", "drop the others"]);
    has(Invalid::MissingRanges { given: 0, existing: 0 }, &["no ranges"]);
    has(Invalid::PitchSize { size: 3, pitch: None }, &["16 bytes", "3"]);
    has(Invalid::PitchSize { size: 8, pitch: Some(100) }, &["100 bytes", "8 bytes"]);
    let names = "Windows handles (WIN32), fabric handles";
    has(Invalid::PoolHandles { supported: 8 | 2 }, &["POSIX file descriptors", names]);
    has(Invalid::AllocationAlive { allocation: 12, is_taken: false }, &["12", "add_free"]);
    has(Invalid::AllocationAlive { allocation: 12, is_taken: true }, &["12", "drop the buffer"]);
    let code = CUresult::CUDA_ERROR_INVALID_VALUE;
    let text = Invalid::Instantiation { node: None, reason: "a reason", code }.to_string();
    assert!(text.starts_with("the driver cannot instantiate the graph: a reason ("), "{text}");
}
