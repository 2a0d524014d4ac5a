//! racecheck.

use super::findings;
use cuda_ptx::check::{Address, Check};

#[test]
fn a_race_names_both_threads_and_the_address() {
    let found = findings("st.global.u32 [%d0+12], %r1;", (2, 1), Check::Racecheck);
    let [finding] = &found[..] else { panic!("{found:?}") };
    let other = finding.other.as_ref().unwrap();
    assert_eq!((finding.site.block, other.block), ([1, 0, 0], [0; 3]));
    assert_eq!((finding.site.line, finding.site.thread), (other.line, other.thread));
    assert_eq!(finding.address, Some(Address::Global(0x7000_0000_000c)));
}

#[test]
fn an_asynchronous_copy_reads_its_source() {
    let body = "setp.eq.u32 %p3, %r1, 0; @%p3 st.global.u32 [%d0], 1;
                @!%p3 cp.async.ca.shared.global [%r6], [%d0], 4; cp.async.wait_all;";
    let found = findings(body, (2, 1), Check::Racecheck);
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!(finding.site.instruction, "cp.async.ca.shared.global");
    assert_eq!(finding.other.as_ref().unwrap().instruction, "st.global.u32");
}

#[test]
fn a_bulk_reduction_writes_each_of_its_elements() {
    let at = |offset: u32| {
        let body = format!(
            "setp.eq.u32 %p3, %r1, 0; @%p3 bra R; st.global.u32 [%d0+{offset}], 1; bra E;
             R: st.shared.v4.u32 [s], {{1, 2, 3, 4}}; fence.proxy.async;
             cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [s], 16;
             cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:"
        );
        findings(&body, (2, 1), Check::Racecheck).len()
    };
    assert_eq!([0, 4, 12, 16].map(at), [1, 1, 1, 0]);
}
