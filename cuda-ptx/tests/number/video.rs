//! Values that an H200 computed.

use cuda_ptx::number::Comparison;
use cuda_ptx::number::integer::Overflow;
use cuda_ptx::number::video::{Mad, Operation, Packed, Part, Scalar, Second, Source};

const UNSIGNED: Source = Source { part: Part::Word, signed: false };
const SIGNED: Source = Source { part: Part::Word, signed: true };

fn scalar(
    operation: Operation,
    sources: [Source; 2],
    signed: bool,
    saturate: bool,
    second: Second,
) -> impl Fn(u32, u32, u32) -> u32 {
    let [a, b] = sources;
    let instruction = Scalar { operation, a, b, signed, saturate, second };
    move |a, b, c| instruction.run(a, b, c)
}

#[test]
fn scalar_instructions_are_exact_before_saturation() {
    let both = [SIGNED, SIGNED];
    let add = scalar(Operation::Add, both, true, false, Second::None);
    assert_eq!(add(0x7fff_ffff, 1, 0), 0x8000_0000);
    let add = scalar(Operation::Add, both, true, true, Second::None);
    assert_eq!(add(0x7fff_ffff, 1, 0), 0x7fff_ffff);
    assert_eq!(add(0x8000_0000, 0xffff_ffff, 0), 0x8000_0000);
    let add = scalar(Operation::Add, both, false, true, Second::None);
    assert_eq!(add(0xffff_ffff, 0xffff_ffff, 0), 0);
    assert_eq!(add(0x7fff_ffff, 0x7fff_ffff, 0), 0xffff_fffe);
    let difference = scalar(Operation::AbsDiff, both, false, false, Second::None);
    assert_eq!(difference(0x8000_0000, 0x7fff_ffff, 0), 0xffff_ffff);
    let less =
        scalar(Operation::Set(Comparison::Lt), [SIGNED, UNSIGNED], false, false, Second::None);
    assert_eq!(less(0xffff_ffff, 1, 0), 1);
}

#[test]
fn scalar_operands_are_parts_of_registers() {
    let sources = [
        Source { part: Part::Byte(3), signed: true },
        Source { part: Part::Half(1), signed: true },
    ];
    let add = scalar(Operation::Add, sources, true, false, Second::None);
    assert_eq!(add(0x8000_0000, 0x8000_0000, 0), 0xffff_7f80);
    let merge = scalar(Operation::Add, [SIGNED, SIGNED], true, true, Second::Merge(Part::Byte(1)));
    assert_eq!(merge(0x12345, 1, 0xaabb_ccdd), 0xaabb_7fdd);
}

#[test]
fn the_second_operation_wraps_or_has_the_sign_of_the_result() {
    let add = scalar(Operation::Add, [SIGNED, SIGNED], true, true, Second::Add);
    assert_eq!(add(0x7fff_ffff, 1, 1), 0x8000_0000);
    assert_eq!(add(1, 1, 0x8000_0000), 0x8000_0002);
    let sub = scalar(Operation::Sub, [UNSIGNED, UNSIGNED], true, false, Second::Min);
    assert_eq!(sub(1, 3, 0), 0xffff_fffe);
    assert_eq!(sub(3, 1, 5), 2);
    let min = scalar(Operation::Min, [SIGNED, UNSIGNED], true, false, Second::Max);
    assert_eq!(min(0xffff_ffff, 1, 5), 5);
    assert_eq!(min(0xffff_ffff, 0xffff_fff0, 0x8000_0000), 0xffff_ffff);
}

#[test]
fn scalar_shifts_clamp_or_wrap() {
    let both = [UNSIGNED, UNSIGNED];
    let left = scalar(Operation::ShiftLeft(Overflow::Clamp), both, false, false, Second::None);
    assert_eq!((left(3, 0x21, 0), left(3, 4, 0)), (0, 0x30));
    let left = scalar(Operation::ShiftLeft(Overflow::Wrap), both, false, false, Second::None);
    assert_eq!(left(3, 0x21, 0), 6);
    let both = [SIGNED, UNSIGNED];
    let right = scalar(Operation::ShiftRight(Overflow::Clamp), both, true, false, Second::None);
    assert_eq!(right(0x8000_0000, 0x21, 0), 0xffff_ffff);
}

#[test]
fn unsigned_results_are_clamped_only_at_zero() {
    let both = [UNSIGNED, SIGNED];
    let add = scalar(Operation::Add, both, false, true, Second::None);
    assert_eq!((add(1, 0xffff_fff0, 0), add(0xffff_ffff, 2, 0)), (0, 1));
    let add = scalar(Operation::Add, both, true, true, Second::None);
    assert_eq!(add(0xffff_ffff, 2, 0), 0x7fff_ffff);
}

#[test]
fn vmad_shifts_the_exact_sum() {
    let signed = Mad { a: SIGNED, b: SIGNED, signed: true, ..Mad::default() };
    let shifted = Mad { shift: 7, ..signed };
    assert_eq!(shifted.run(0x7fff_ffff, 0x7fff_ffff, 5), 0xfe00_0000);
    assert_eq!(shifted.run(0x10, 0x10, 1), 2);
    let clamped = Mad { shift: 15, saturate: true, ..signed };
    assert_eq!(clamped.run(0x7fff_ffff, 0x7fff_ffff, 5), 0x7fff_ffff);
    assert_eq!(clamped.run(0x8000_0000, 0x7fff_ffff, 0), 0x8000_0000);
    assert_eq!(Mad { plus_one: true, ..Mad::default() }.run(3, 4, 5), 0x12);
    assert_eq!(Mad { negate_product: true, ..signed }.run(3, 4, 5), 0xffff_fff9);
    assert_eq!(Mad { negate_addend: true, signed: true, ..Mad::default() }.run(3, 4, 5), 7);
}

fn halves(operation: Operation, signed: bool) -> Packed<2> {
    Packed {
        operation,
        a: [0, 1],
        b: [2, 3],
        a_signed: signed,
        b_signed: signed,
        signed,
        saturate: false,
        add: false,
        mask: [true; 2],
    }
}

fn bytes(operation: Operation) -> Packed<4> {
    Packed {
        operation,
        a: [0, 1, 2, 3],
        b: [4, 5, 6, 7],
        a_signed: false,
        b_signed: false,
        signed: false,
        saturate: false,
        add: false,
        mask: [true; 4],
    }
}

#[test]
fn packed_lanes_do_not_carry_into_each_other() {
    let add = halves(Operation::Add, true);
    let saturated = Packed { saturate: true, ..add };
    assert_eq!(add.run(0x7fff_8000, 0x0001_ffff, 0), 0x8000_7fff);
    assert_eq!(saturated.run(0x7fff_8000, 0x0001_ffff, 0), 0x7fff_8000);
    assert_eq!(Packed { signed: false, ..saturated }.run(0xffff_0001, 0xffff_0001, 0), 2);
    assert_eq!(Packed { add: true, ..add }.run(0x7fff_8000, 0x0001_ffff, 3), 2);
    let sub = Packed { saturate: true, ..bytes(Operation::Sub) };
    assert_eq!(sub.run(0x0180_0580, 0x0205_0302, 0), 0x007b_027e);
    let difference = Packed { add: true, ..bytes(Operation::AbsDiff) };
    assert_eq!(difference.run(0x0180_0580, 0x0205_0302, 7), 0x103);
    let difference = halves(Operation::AbsDiff, true);
    assert_eq!(difference.run(0x8000_7fff, 0x7fff_8000, 0), 0xffff_ffff);
    assert_eq!(
        Packed { saturate: true, ..difference }.run(0x8000_7fff, 0x7fff_8000, 0),
        0x7fff_7fff
    );
}

#[test]
fn packed_means_extremes_and_comparisons() {
    let mean = halves(Operation::Average, true);
    assert_eq!(mean.run(0xffff_0003, 2, 0), 0xffff_0003);
    assert_eq!(mean.run(0xfffd_fffe, 1, 0), 0xfffe_ffff);
    assert_eq!(bytes(Operation::Average).run(0xff03_0201, 0xfe00_0203, 0), 0xff02_0202);
    assert_eq!(halves(Operation::Min, true).run(0x8000_7fff, 0x7fff_8000, 0), 0x8000_8000);
    let max = Packed { a_signed: true, ..bytes(Operation::Max) };
    assert_eq!(max.run(0x8001_7fff, 0x7fff_8000, 0), 0x7fff_8000);
    let less = halves(Operation::Set(Comparison::Lt), true);
    assert_eq!(less.run(0x8000_7fff, 0x7fff_8000, 0), 0x0001_0000);
    let differ = Packed { add: true, ..bytes(Operation::Set(Comparison::Ne)) };
    assert_eq!(differ.run(0x8000_7fff, 0x7f00_7f00, 0x10), 0x12);
}

#[test]
fn packed_operands_are_lanes_of_both_registers() {
    let add = halves(Operation::Add, true);
    let masked = Packed { b: [0, 1], mask: [false, true], ..add };
    assert_eq!(masked.run(0x0003_0005, 0x0001_0001, 0xaaaa_bbbb), 0x0006_bbbb);
    let crossed = Packed { a: [2, 3], b: [1, 0], ..add };
    assert_eq!(crossed.run(0x0003_0005, 0x0010_0020, 0x40), 0x0015_0023);
    let first = Packed { add: true, mask: [true, false], ..add };
    assert_eq!(first.run(0x0003_0005, 0x0010_0020, 0x40), 0x65);
    let four =
        Packed { a: [0, 1, 6, 7], mask: [true, false, true, false], ..bytes(Operation::Add) };
    assert_eq!(four.run(0x0403_0201, 0x4030_2010, 0xffff_ffff), 0xff60_ff11);
}
