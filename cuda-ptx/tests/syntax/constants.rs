//! Constants and constant expressions. The values are those of ptxas.

use crate::{body, parsed, round_trip, with_kernel};
use cuda_ptx::syntax::{Immediate, Operand, Statement, parse};

#[track_caller]
fn value(expression: &str) -> Immediate {
    let text = with_kernel(&format!("mov.b64 a, {expression};"));
    round_trip(&text);
    let module = parsed(&text);
    let [Statement::Instruction(instruction)] = body(&module) else {
        panic!("{text}");
    };
    let [_, Operand::Immediate(value)] = instruction.operands[..] else {
        panic!("{:?}", instruction.operands);
    };
    value
}

fn signed(value: i64) -> Immediate {
    Immediate::Integer { bits: value as u64, is_unsigned: false }
}

fn unsigned(bits: u64) -> Immediate {
    Immediate::Integer { bits, is_unsigned: true }
}

#[test]
fn integers_have_four_radixes_and_a_suffix() {
    for (text, expected) in [
        ("0", signed(0)),
        ("42", signed(42)),
        ("0x2A", signed(42)),
        ("0X2a", signed(42)),
        ("052", signed(42)),
        ("0b101010", signed(42)),
        ("0B101010", signed(42)),
        ("42U", unsigned(42)),
        ("0x2aU", unsigned(42)),
        ("9223372036854775807", signed(i64::MAX)),
        ("9223372036854775808", unsigned(1 << 63)),
        ("0xffffffffffffffff", unsigned(u64::MAX)),
        ("WARP_SZ", signed(32)),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn floating_point_numbers_are_decimal_or_bits() {
    for (text, expected) in [
        ("0f3F800000", Immediate::Single(0x3f80_0000)),
        ("0FFFC00000", Immediate::Single(0xffc0_0000)),
        ("0d3FF8000000000000", Immediate::Double(1.5)),
        ("0DbFF8000000000000", Immediate::Double(-1.5)),
        ("1.5", Immediate::Double(1.5)),
        ("1.", Immediate::Double(1.0)),
        (".5", Immediate::Double(0.5)),
        ("1e3", Immediate::Double(1000.0)),
        ("25.0E-1", Immediate::Double(2.5)),
        ("1e+2", Immediate::Double(100.0)),
        ("09.5", Immediate::Double(9.5)),
        ("0e0", Immediate::Double(0.0)),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
    let Immediate::Double(nan) = value("0dFFF0000000000001") else { panic!() };
    assert_eq!(nan.to_bits(), 0xfff0_0000_0000_0001);
}

#[test]
fn expressions_have_the_values_and_types_of_ptxas() {
    for (text, expected) in [
        ("-7 % 3", unsigned(0)),
        ("7 % -3", unsigned(7)),
        ("(7 % 3) - 2 >> 1", unsigned(i64::MAX as u64)),
        ("-7 / 2", signed(-3)),
        ("-7 / 2U", unsigned(9_223_372_036_854_775_804)),
        ("7U / -1", unsigned(0)),
        ("-7 >> 1", signed(-4)),
        ("-7 >> 1U", signed(-4)),
        ("-7U >> 1", unsigned(9_223_372_036_854_775_804)),
        ("1 << 64", signed(1)),
        ("1 << 65", signed(2)),
        ("1 << -1", signed(i64::MIN)),
        ("-1 >> 64", signed(-1)),
        ("-1U >> 64", unsigned(u64::MAX)),
        ("(~0) >> 1", unsigned(i64::MAX as u64)),
        ("(-1 & -1) >> 1", signed(-1)),
        ("(-1 & -1U) >> 1", unsigned(i64::MAX as u64)),
        ("(-1U | 0) >> 1", unsigned(i64::MAX as u64)),
        ("(-1 ^ 0) >> 1", signed(-1)),
        ("(3 < 4) - 2 >> 1", signed(-1)),
        ("-1 < 1U", signed(0)),
        ("-1 < 1", signed(1)),
        ("-1 >= 1", signed(0)),
        ("1 < 1", signed(0)),
        ("1U < 1", signed(0)),
        ("2 <= 1", signed(0)),
        ("2 > 1U", signed(1)),
        ("!5", signed(0)),
        ("!0U - 2 >> 1", signed(-1)),
        ("(1 ? -1 : 1U) >> 1", signed(-1)),
        ("(1U ? 2U : 3) - 4 >> 1", unsigned(i64::MAX as u64)),
        ("9223372036854775808 >> 1", unsigned(1 << 62)),
        ("-9223372036854775808 / -1", unsigned(0)),
        ("(.s64)-1U >> 1", signed(-1)),
        ("(.u64)-1 >> 1", unsigned(i64::MAX as u64)),
        ("2 + 3 * 4 << 1", signed(28)),
        ("1 | 2 ^ 3 & 4", signed(3)),
        ("1 | 1 ^ 1", signed(1)),
        ("1 && 2", signed(1)),
        ("2 && 0", signed(0)),
        ("1 ? 2 : 0 ? 3 : 4", signed(2)),
        ("0 ? 2 : 1 ? 3 : 4", signed(3)),
        ("1 == 1 == 1", signed(1)),
        ("1 != 1 || 2 && 0", signed(0)),
        ("WARP_SZ - 33 >> 1", signed(-1)),
        ("5 - 3 - 1", signed(1)),
        ("64 / 4 / 2", signed(8)),
        ("- -5", signed(5)),
        ("1 < 2 & 3", signed(1)),
        ("6 & 2 == 2", signed(0)),
        ("1 << 2 + 1", signed(8)),
        ("1.5 + 2.25", Immediate::Double(3.75)),
        ("3.0 / 2.0 - 1.0 * .5", Immediate::Double(1.0)),
        ("1.5 < 2.0", signed(1)),
        ("1.5 == 1.5", signed(1)),
        ("-1.5", Immediate::Double(-1.5)),
        ("-0d3FF0000000000000", Immediate::Double(-1.0)),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn the_least_integer_prints_as_a_signed_number() {
    assert_eq!(value("(.s64)0x8000000000000000"), signed(i64::MIN));
    assert_eq!(value("-9223372036854775807 - 1"), signed(i64::MIN));
}

#[test]
fn incorrect_numbers_and_operations_are_errors() {
    for (text, message) in [
        ("09", "expected a number of at most 64 bits, found `09`"),
        (
            "18446744073709551616",
            "expected a number of at most 64 bits, found `18446744073709551616`",
        ),
        ("0x", "expected a number of at most 64 bits, found `0x`"),
        ("5u", "expected a number of at most 64 bits, found `5u`"),
        ("1.5f", "expected a number of at most 64 bits, found `1.5f`"),
        ("0f3F80", "expected a number of at most 64 bits, found `0f3F80`"),
        ("0d3F800000", "expected a number of at most 64 bits, found `0d3F800000`"),
        ("1_0", "expected a number of at most 64 bits, found `1_0`"),
        ("1 / 0", "expected a divisor other than zero, found `0`"),
        ("1 % (2 - 2)", "expected a divisor other than zero, found `(`"),
        ("1.0 / 0.0", "expected a divisor other than zero, found `0.0`"),
        ("1.5 + 1", "expected a decimal number, found `1`"),
        ("1 + 1.5", "expected an integer constant, found `1.5`"),
        ("1.0 & 2.0", "expected an integer constant, found `2.0`"),
        ("~1.5", "expected an integer constant, found `1.5`"),
        ("(.s64)1.5", "expected an integer constant, found `1.5`"),
        ("1.5 ? 1 : 2", "expected an integer constant, found `1.5`"),
        ("-0f3F800000", "expected an integer or decimal number, found `0f3F800000`"),
        ("0f3F800000 + 1", "expected `,` or `;`, found `+`"),
        ("(1", "expected an operator or `)`, found `;`"),
        ("(.s32)1", "expected a constant, found `.s32`"),
        ("1 ? 2", "expected `:`, found `;`"),
        ("7%3", "expected `,` or `;`, found `%3`"),
        ("1 +", "expected a constant, found `;`"),
    ] {
        let kernel = with_kernel(&format!("mov.b64 a, {text};"));
        let error = parse(&kernel).expect_err(text).to_string();
        assert_eq!(error.split_once(": ").map(|(_, rest)| rest), Some(message), "{text}");
    }
}
