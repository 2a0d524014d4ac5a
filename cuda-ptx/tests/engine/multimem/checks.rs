//! What the checks find at multicast addresses.

use super::{message, text};
use crate::device::{Memory, launch_with};
use cuda_ptx::Launch;
use cuda_ptx::check::{Address, Check, Checks, Finding};

/// Runs a body with a check. `%d0` is a multicast address, and `%d1` and `%d2` those of the memory of the devices, in which
/// nothing was written.
fn findings(body: &str, shape: (u32, u32), check: Check) -> (Vec<Finding>, [u64; 2]) {
    let mut memory = Memory::default();
    let members = [memory.unwritten(64), memory.unwritten(64)];
    let address = memory.multicast_of(&members);
    let values = [address, members[0], members[1]];
    let change = |launch: &mut Launch<'_>| launch.checks = Checks::MEMCHECK.with(check);
    launch_with(&text(body), &memory, shape, &values, change)
        .unwrap_or_else(|fault| panic!("{fault}"));
    (std::mem::take(&mut *memory.findings.lock().unwrap()), members)
}

#[test]
fn initcheck_sees_the_memory_of_each_device() {
    let using = "setp.eq.u32 %p1, %r5, 7; @%p1 bra E; E:";
    let load = "multimem.ld_reduce.add.u32 %r5, [%d0];";
    // The body, and the device whose memory has no value where it is used.
    for (body, missing) in [
        (format!("st.global.u32 [%d1], 1; st.global.u32 [%d2], 1; {load}"), None),
        (format!("st.global.u32 [%d2], 1; {load}"), Some((0, 0))),
        (format!("st.global.u32 [%d1], 1; {load}"), Some((1, 0))),
        (format!("multimem.st.u32 [%d0], %r0; {load}"), None),
        ("multimem.st.u32 [%d0], %r0; ld.global.u32 %r5, [%d1];".to_owned(), None),
        ("multimem.st.u32 [%d0], %r0; ld.global.u32 %r5, [%d2];".to_owned(), None),
        ("multimem.st.u32 [%d0], %r0; ld.global.u32 %r5, [%d2+4];".to_owned(), Some((1, 4))),
        (
            "multimem.st.v4.f32 [%d0], {%f1, %f1, %f1, %f1}; ld.global.u32 %r5, [%d2+12];"
                .to_owned(),
            None,
        ),
        // A value without all of its bits is stored.
        (
            "ld.global.u32 %r6, [%d1+8]; multimem.st.u32 [%d0], %r6; ld.global.u32 %r5, [%d2];"
                .to_owned(),
            Some((1, 0)),
        ),
        // A reduction does not give a value.
        ("multimem.red.add.u32 [%d0], 1; ld.global.u32 %r5, [%d2];".to_owned(), Some((1, 0))),
        (
            "multimem.st.u32 [%d0], 1; multimem.red.add.u32 [%d0], 1; ld.global.u32 %r5, [%d2];"
                .to_owned(),
            None,
        ),
        (
            "st.global.u32 [%d1], 1; multimem.red.max.u32 [%d0], 1; ld.global.u32 %r5, [%d1];"
                .to_owned(),
            None,
        ),
        (
            "multimem.st.u32 [%d0], 1; ld.global.u32 %r6, [%d1+8];
             multimem.red.or.b32 [%d0], %r6; ld.global.u32 %r5, [%d1];"
                .to_owned(),
            Some((0, 0)),
        ),
        // The bits of halves.
        (
            "st.global.u32 [%d1], 1; st.global.u16 [%d2], %r0;
             multimem.ld_reduce.add.v2.f16 {%h1, %h2}, [%d0]; cvt.u32.u16 %r5, %h1;"
                .to_owned(),
            None,
        ),
        (
            "st.global.u32 [%d1], 1; st.global.u16 [%d2], %r0;
             multimem.ld_reduce.add.v2.f16 {%h1, %h2}, [%d0]; cvt.u32.u16 %r5, %h2;"
                .to_owned(),
            Some((1, 2)),
        ),
    ] {
        let (found, members) = findings(&format!("{body} {using}"), (1, 1), Check::Initcheck);
        let at: Vec<_> = found.iter().map(|its| its.address).collect();
        let expected = missing.map(|(device, offset)| {
            let address: u64 = members[device as usize] + offset;
            Some(Address::Global(address))
        });
        assert_eq!(at, Vec::from_iter(expected), "{body}");
    }
    // An address.
    let body = "multimem.st.u32 [%d0], 8; ld.global.u32 %r5, [%d1+4]; mul.lo.u32 %r5, %r5, 0;
        cvt.u64.u32 %d5, %r5; add.u64 %d5, %d0, %d5; multimem.ld_reduce.add.u32 %r6, [%d5];";
    let (found, _) = findings(body, (1, 1), Check::Initcheck);
    assert!(found.len() == 1 && found[0].text.starts_with("an address depends"), "{found:?}");
}

#[test]
fn racecheck_sees_the_memory_of_each_device() {
    let first = "setp.eq.u32 %p1, %r1, 0;";
    for (body, device) in [
        // Two stores of each device race, and the first one is reported.
        ("multimem.st.u32 [%d0], %r1;", Some(0)),
        ("multimem.st.relaxed.gpu.u32 [%d0], %r1;", None),
        ("multimem.ld_reduce.add.u32 %r5, [%d0];", None),
        ("multimem.red.add.u32 [%d0], 1;", None),
        ("multimem.red.add.v4.f32 [%d0], {%f1, %f1, %f1, %f1};", None),
        ("@%p1 multimem.st.u32 [%d0], 1; @!%p1 ld.global.u32 %r5, [%d1];", Some(0)),
        ("@%p1 multimem.st.u32 [%d0], 1; @!%p1 ld.global.u32 %r5, [%d2];", Some(1)),
        ("@%p1 multimem.st.u32 [%d0], 1; @!%p1 ld.global.u32 %r5, [%d2+4];", None),
        ("@%p1 multimem.red.add.u32 [%d0], 1; @!%p1 ld.global.u32 %r5, [%d2];", Some(1)),
        ("@%p1 multimem.red.add.u32 [%d0], 1; @!%p1 ld.relaxed.gpu.u32 %r5, [%d2];", None),
        ("@%p1 multimem.ld_reduce.add.u32 %r5, [%d0]; @!%p1 st.global.u32 [%d2], 1;", Some(1)),
        // A reduction of an element does not race with one of another vector.
        (
            "@%p1 multimem.red.add.v2.f32 [%d0], {%f1, %f1}; @!%p1 red.global.add.f32 [%d2+4], 0f00000000;",
            None,
        ),
        // A scope without the other thread.
        ("multimem.red.relaxed.cta.add.u32 [%d0], 1;", Some(0)),
    ] {
        let (found, members) = findings(&format!("{first} {body}"), (2, 1), Check::Racecheck);
        let at = found.first().map(|its| its.address);
        assert_eq!(
            at,
            device.map(|device: usize| Some(Address::Global(members[device]))),
            "{body}"
        );
    }
}

#[test]
fn a_reduction_releases_and_a_load_acquires_on_each_device() {
    let flag = "multimem.red.release.gpu.add.u32 [%d0+8], 1";
    let acquire = "ld.acquire.gpu.global.u32 %r5, [%d2+8]";
    let both = "multimem.ld_reduce.acquire.gpu.add.u32 %r5, [%d0+8]";
    for (flag, wait, is_right) in [
        (flag, acquire, true),
        (flag, both, true),
        ("multimem.st.release.sys.u32 [%d0+8], 1", both, true),
        ("fence.acq_rel.gpu; multimem.red.add.u32 [%d0+8], 1", acquire, true),
        // Each element of a vector releases.
        (
            "multimem.red.release.gpu.add.v2.f32 [%d0+8], {%f1, 0f3F800000}",
            "ld.acquire.gpu.global.u32 %r5, [%d2+12]",
            true,
        ),
        ("multimem.red.add.u32 [%d0+8], 1", acquire, false),
        (flag, "multimem.ld_reduce.relaxed.gpu.add.u32 %r5, [%d0+8]", false),
    ] {
        let (found, _) = findings(&message(flag, wait), (2, 1), Check::Racecheck);
        assert_eq!(found.is_empty(), is_right, "{flag}, {wait}: {found:?}");
    }
}
