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
