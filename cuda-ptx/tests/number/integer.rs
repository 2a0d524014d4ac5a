use cuda_ptx::number::integer::{self, Overflow, Permutation};

#[test]
fn division_by_zero_sets_all_bits() {
    assert_eq!(integer::div(7u32, 0), u32::MAX);
    assert_eq!(integer::div(7i32, 0), -1);
    assert_eq!(integer::rem(7i64, 0), -1);
    assert_eq!(integer::rem(0u16, 0), u16::MAX);
    assert_eq!(integer::div(i32::MIN, -1), i32::MIN);
    assert_eq!(integer::rem(i64::MIN, -1), 0);
    assert_eq!(integer::rem(-7i32, 2), -1);
}

#[test]
fn upper_halves_of_products() {
    assert_eq!(integer::mul_hi(u64::MAX, u64::MAX), u64::MAX - 1);
    assert_eq!(integer::mul_hi(i64::MIN, i64::MIN), 1 << 62);
    assert_eq!(integer::mul_hi(-1i32, 1), -1);
    assert_eq!(integer::mul_hi(0x8000u16, 2), 1);
    assert_eq!(integer::mad_hi_sat(i32::MAX, i32::MAX, i32::MAX), i32::MAX);
}

#[test]
fn products_of_24_bits() {
    assert_eq!(integer::mul24(0xff00_0003, 0x0100_0005, false, false), 15);
    assert_eq!(integer::mul24(0x00ff_ffff, 2, true, false), (-2i32) as u32);
    assert_eq!(integer::mul24(0x00ff_ffff, 0x00ff_ffff, false, true), 0xffff_fe00);
    assert_eq!(integer::mad24_hi_sat(0x007f_ffff, 0x007f_ffff, 0x7fff_ffff), 0x7fff_ffff);
}

#[test]
fn the_carry_is_set_when_there_is_no_borrow() {
    assert_eq!(integer::add_carry(u32::MAX, 0, true), (0, true));
    assert_eq!(integer::sub_carry(5u32, 5, true), (0, true));
    assert_eq!(integer::sub_carry(4u32, 5, true), (u32::MAX, false));
    assert_eq!(integer::sub_carry(5u64, 5, false), (u64::MAX, false));
}

#[test]
fn shifts_beyond_the_width_give_zero_or_the_sign() {
    assert_eq!(integer::shl(1u32, 32), 0);
    assert_eq!(integer::shl(1u64, 64), 0);
    assert_eq!(integer::shl(0x8001u16, 15), 0x8000);
    assert_eq!(integer::shl(1u16, 16), 0);
    assert_eq!(integer::shr(-8i32, 1), -4);
    assert_eq!(integer::shr(-8i16, 99), -1);
    assert_eq!(integer::shr(8i64, u32::MAX), 0);
    assert_eq!(integer::shr(u32::MAX, 31), 1);
    assert_eq!(integer::shr(u32::MAX, 32), 0);
    assert_eq!(integer::shf_l(0x8000_0000, 1, 1, Overflow::Wrap), 3);
    assert_eq!(integer::shf_l(7, 1, 33, Overflow::Clamp), 7);
    assert_eq!(integer::shf_r(1, 3, 1, Overflow::Wrap), 0x8000_0000);
    assert_eq!(integer::shf_r(1, 3, 32, Overflow::Clamp), 3);
    assert_eq!(integer::shf_r(1, 3, 32, Overflow::Wrap), 1);
}

/// The definition of the manual: bit by bit.
fn extracted(bits: u64, width: u32, signed: bool, position: u32, length: u32) -> u64 {
    let (position, length, last) = (position & 0xff, length & 0xff, width - 1);
    let bit = |i: u32| bits >> i & 1;
    let fill = if !signed || length == 0 { 0 } else { bit((position + length - 1).min(last)) };
    (0..width).fold(0, |result, i| {
        let taken = if i < length && position + i <= last { bit(position + i) } else { fill };
        result | taken << i
    })
}

fn inserted(a: u64, b: u64, width: u32, position: u32, length: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    (0..length)
        .filter(|i| position + i < width)
        .fold(b, |result, i| result & !(1 << (position + i)) | (a >> i & 1) << (position + i))
}

#[test]
fn bit_fields_follow_the_definition_bit_by_bit() {
    let a = 0x9234_5678_f0f1_8185;
    let b = 0x0fed_cba9_7654_3210;
    let edges = [0, 1, 7, 8, 15, 16, 31, 32, 33, 47, 63, 64, 65, 127, 128, 255, 256, 257];
    for position in edges {
        for length in edges {
            let shown = format!("{position} {length}");
            let unsigned = integer::bfe(a as u32, position, length);
            assert_eq!(
                u64::from(unsigned),
                extracted(a & 0xffff_ffff, 32, false, position, length),
                "{shown}"
            );
            let signed = integer::bfe(a as i32, position, length) as u32;
            assert_eq!(
                u64::from(signed),
                extracted(a & 0xffff_ffff, 32, true, position, length),
                "{shown}"
            );
            assert_eq!(
                integer::bfe(a, position, length),
                extracted(a, 64, false, position, length),
                "{shown}"
            );
            let signed = integer::bfe(a as i64, position, length) as u64;
            assert_eq!(signed, extracted(a, 64, true, position, length), "{shown}");
            let word = integer::bfi(a as u32, b as u32, position, length);
            assert_eq!(
                u64::from(word),
                inserted(a, b & 0xffff_ffff, 32, position, length),
                "{shown}"
            );
            assert_eq!(
                integer::bfi(a, b, position, length),
                inserted(a, b, 64, position, length),
                "{shown}"
            );
        }
    }
}

#[test]
fn bfind_of_zero_and_minus_one_finds_nothing() {
    assert_eq!(integer::bfind(0i32, false), u32::MAX);
    assert_eq!(integer::bfind(-1i32, true), u32::MAX);
    assert_eq!(integer::bfind(-2i64, false), 0);
    assert_eq!(integer::bfind(0x0001_0000u32, false), 16);
    assert_eq!(integer::bfind(0x0001_0000u32, true), 15);
    assert_eq!(integer::bfind(1u64, true), 63);
    assert_eq!(integer::bfind(-1i32 as u32, false), 31);
}

#[test]
fn masks_and_extensions_clamp_or_wrap() {
    assert_eq!(integer::bmsk(4, 8, Overflow::Clamp), 0xff0);
    assert_eq!(integer::bmsk(0, 32, Overflow::Clamp), u32::MAX);
    assert_eq!(integer::bmsk(0, 32, Overflow::Wrap), 0);
    assert_eq!(integer::bmsk(33, 1, Overflow::Wrap), 2);
    assert_eq!(integer::bmsk(33, 1, Overflow::Clamp), 0);
    assert_eq!(integer::bmsk(31, 31, Overflow::Wrap), 0x8000_0000);
    assert_eq!(integer::szext(0x80, 8, Overflow::Clamp, true), 0xffff_ff80);
    assert_eq!(integer::szext(0x180, 8, Overflow::Clamp, false), 0x80);
    assert_eq!(integer::szext(0x8000_0000, 99, Overflow::Clamp, true), 0x8000_0000);
    assert_eq!(integer::szext(0xff, 32, Overflow::Wrap, true), 0);
}

#[test]
fn lop3_looks_up_each_bit_in_the_table() {
    let (a, b, c) = (0xf0f0_f0f0, 0xcccc_cccc, 0xaaaa_aaaa);
    for table in 0..=255u8 {
        // The operands enumerate the rows of the table in each byte.
        assert_eq!(integer::lop3(a, b, c, table), u32::from_le_bytes([table; 4]));
    }
}

#[test]
fn prmt_selects_bytes_in_each_mode() {
    let (a, b) = (0x8322_2120, 0x2726_2524);
    let select = |selector, permutation| integer::prmt(a, b, selector, permutation);
    assert_eq!(select(0x7531, Permutation::Index), 0x2725_8321);
    assert_eq!(select(0xb3c8, Permutation::Index), 0xff83_0000);
    assert_eq!(select(1, Permutation::Forward), 0x2483_2221);
    assert_eq!(select(0, Permutation::Backward), 0x2526_2720);
    assert_eq!(select(2, Permutation::Replicate8), 0x2222_2222);
    assert_eq!(select(2, Permutation::ClampLeft), 0x8322_2222);
    assert_eq!(select(1, Permutation::ClampRight), 0x2121_2120);
    assert_eq!(select(3, Permutation::Replicate16), 0x8322_8322);
}

#[test]
fn fns_counts_set_bits_from_the_base() {
    let mask = 0b1011_0010;
    assert_eq!(integer::fns(mask, 0, 1), 1);
    assert_eq!(integer::fns(mask, 1, 1), 1);
    assert_eq!(integer::fns(mask, 0, 3), 5);
    assert_eq!(integer::fns(mask, 0, 5), u32::MAX);
    assert_eq!(integer::fns(mask, 7, -2), 5);
    assert_eq!(integer::fns(mask, 7, 0), 7);
    assert_eq!(integer::fns(mask, 6, 0), u32::MAX);
    assert_eq!(integer::fns(mask, 99, i32::MIN), 0);
}

#[test]
fn dot_products_extend_each_operand() {
    assert_eq!(integer::dp4a(0x0102_0304, 0x0101_0101, 5, false, false), 15);
    assert_eq!(integer::dp4a(0xff00_0000, 0xff00_0000, 0, true, false), (-255i32) as u32);
    assert_eq!(integer::dp4a(0xff00_0000, 0xff00_0000, 0, true, true), 1);
    assert_eq!(integer::dp2a(0xffff_0002, 0x0304_0506, 0, true, false, false), 12 - 5);
    assert_eq!(integer::dp2a(0xffff_0002, 0x0304_0506, 0, false, false, true), 8 + 3 * 0xffff);
    assert_eq!(integer::dp2a(0x8000_8000, 0xffff_ffff, 0, false, false, false), 255 * 0x1_0000);
}

#[test]
fn sums_of_absolute_differences_and_saturation() {
    assert_eq!(integer::sad(3u32, 5, 10), 12);
    assert_eq!(integer::sad(i32::MIN, i32::MAX, 1), 0);
    assert_eq!(integer::sad(u64::MAX, 0, 0), u64::MAX);
    assert_eq!(integer::add_sat(i32::MAX, 1), i32::MAX);
    assert_eq!(integer::sub_sat(i32::MIN, 1), i32::MIN);
    assert_eq!(integer::increment(7, 7), 0);
    assert_eq!(integer::increment(6, 7), 7);
    assert_eq!(integer::decrement(0, 7), 7);
    assert_eq!(integer::decrement(8, 7), 7);
    assert_eq!(integer::decrement(7, 7), 6);
}
