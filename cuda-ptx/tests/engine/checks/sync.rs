//! synccheck.

use super::findings;
use cuda_ptx::check::{Address, Check};

#[test]
fn a_finding_names_both_instructions_and_the_address() {
    let body = ".loc 1 77 0\ncp.async.ca.shared.global [%r6], [%d1], 4;\n.loc 1 78 0\nld.shared.u32 %r7, [%r6];\n";
    let found = findings(body, (3, 64), Check::Synccheck);
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.check, finding.kernel.as_str()), (Check::Synccheck, "k"));
    assert_eq!(finding.site.instruction, "ld.shared.u32");
    let other = finding.other.as_ref().unwrap();
    assert_eq!(other.instruction, "cp.async.ca.shared.global");
    assert_eq!(finding.site.line, other.line + 2);
    assert_eq!((finding.site.block, finding.site.thread), ([0; 3], [0; 3]));
    assert_eq!(finding.address, Some(Address::Shared { block: [0; 3], offset: 0 }));
}

#[test]
fn accesses_beside_an_mbarrier_object_are_correct() {
    let at = |place: &str| {
        let body = format!(
            ".shared .align 8 .b64 three[3]; mbarrier.init.shared.b64 [three+8], 1;
             st.shared.u8 [three+{place}], %r0;"
        );
        findings(&body, (1, 1), Check::Synccheck).len()
    };
    assert_eq!(["7", "8", "15", "16"].map(at), [0, 1, 1, 0]);
}
