//! Bulk copies of tensors, compared with a model that looks at each element.

use crate::device::{Memory, launch_with};
use crate::random::Random;
use cuda_ptx::FaultKind;
use cuda_ptx::tensor_map::{Element, Interleave, Mode, RANK, Swizzle, TensorMap};

/// The bytes of shared memory of a kernel.
const SHARED: usize = 8192;

/// A map of bytes with these extents, whose rows begin at multiples of 16 bytes.
fn map(dims: &[u64]) -> TensorMap {
    let mut map = TensorMap {
        address: 0,
        element: Element::U8,
        rank: dims.len(),
        dims: [1; RANK],
        strides: [0; RANK - 1],
        steps: [1; RANK],
        mode: Mode::Tile([1; RANK]),
        interleave: Interleave::None,
        swizzle: Swizzle::None,
        fills_with_nan: false,
    };
    map.dims[..dims.len()].copy_from_slice(dims);
    let mut bytes = dims[0].next_multiple_of(16);
    for (stride, extent) in map.strides.iter_mut().zip(&dims[1..]) {
        *stride = bytes;
        bytes *= extent;
    }
    map
}

/// Returns the bytes of the memory of a map.
fn size(map: &TensorMap) -> usize {
    let extents = map.strides.iter().zip(&map.dims[1..]).take(map.rank - 1);
    let row = map.dims[0].next_multiple_of(16);
    extents.map(|(stride, extent)| stride * extent).max().unwrap_or(row) as usize
}

/// Runs `body` on a thread. `%d1` is the address of the map, `%r10` to `%r14` are the coordinates, and `s` is shared
/// memory. Its bytes are 0xee before and the result afterwards, together with the memory of the tensor, whose bytes are
/// their numbers modulo 251.
fn run(body: &str, map: &TensorMap, at: &[i32]) -> Result<(Vec<u8>, Vec<u8>), FaultKind> {
    let coordinates: String =
        at.iter().enumerate().map(|(axis, at)| format!("mov.b32 %r1{axis}, {at}; ")).collect();
    let text = format!(
        ".version 8.6 .target sm_90 .address_size 64
         .visible .entry k(.param .u64 p0, .param .align 64 .b8 map[128]) {{
         .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<20>; .reg .b64 %d<8>;
         .shared .align 1024 .b8 s[{SHARED}]; .shared .align 8 .b64 bar;
         ld.param.u64 %d0, [p0]; mov.b64 %d1, map; cvta.param.u64 %d1, %d1; {coordinates}
         mov.u32 %r1, 0;
         mov.u32 %r2, 0xeeeeeeee;
         FILL: st.shared.v4.b32 [%r1], {{%r2, %r2, %r2, %r2}}; add.u32 %r1, %r1, 16; setp.lt.u32 %p1, %r1, {SHARED}; @%p1 bra FILL;
         mbarrier.init.shared.b64 [bar], 1;
         {body}
         mov.u32 %r1, 0;
         COPY: ld.shared.v4.b32 {{%r2, %r3, %r4, %r5}}, [%r1]; cvt.u64.u32 %d2, %r1; add.u64 %d2, %d0, %d2;
         st.global.v4.b32 [%d2], {{%r2, %r3, %r4, %r5}}; add.u32 %r1, %r1, 16; setp.lt.u32 %p1, %r1, {SHARED}; @%p1 bra COPY; ret; }}"
    );
    let mut memory = Memory::default();
    let out = memory.bytes(&[0; SHARED]);
    let bytes: Vec<u8> = (0..size(map).next_multiple_of(8)).map(|at| (at % 251) as u8).collect();
    let tensor = memory.bytes(&bytes);
    let mut values = vec![out];
    values.resize(8, 0);
    values.extend(TensorMap { address: tensor, ..*map }.encode());
    launch_with(&text, &memory, (1, 1), &values, |_| {}).map_err(|fault| fault.kind)?;
    let bytes = |address| memory.read(address).into_iter().flat_map(u32::to_le_bytes).collect();
    Ok((bytes(out), bytes(tensor)))
}

/// The coordinates in an instruction.
fn coordinates(rank: usize) -> String {
    let names: Vec<String> = (0..rank).map(|axis| format!("%r1{axis}")).collect();
    names.join(", ")
}

/// Returns a load to an offset of shared memory, with a wait.
fn load(rank: usize, mode: &str, to: u64, bytes: u64, offsets: &str) -> String {
    format!(
        "mbarrier.arrive.expect_tx.shared.b64 %d3, [bar], {bytes};
         cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes
             [s+{to}], [%d1, {{{}}}], [bar]{offsets};
         WAIT: mbarrier.test_wait.shared.b64 %p1, [bar], %d3; @!%p1 bra WAIT;",
        coordinates(rank)
    )
}

fn store(rank: usize, opcode: &str, function: &str, from: u64) -> String {
    format!(
        "{opcode}.{rank}d.global.shared::cta{function}.tile.bulk_group [%d1, {{{}}}], [s+{from}];
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        coordinates(rank)
    )
}

/// What a model says of a copy: for each byte the offset in shared memory, and the offset in the tensor if the byte is
/// inside.
type Bytes = Vec<(u64, Option<u64>)>;

/// The bytes of a box: a row for each combination of the outer coordinates.
fn boxed(map: &TensorMap, at: &[i32], to: u64) -> Bytes {
    let Mode::Tile(extents) = map.mode else { panic!("a tile") };
    let slice = map.interleave.bytes().unwrap_or(1);
    let counts: Vec<u64> = (0..map.rank)
        .map(|axis| match axis {
            0 => extents[0].into(),
            axis if slice > 1 && axis == map.rank - 2 => 1,
            axis => extents[axis].div_ceil(map.steps[axis].into()).into(),
        })
        .collect();
    let width = counts[0] * slice;
    let pitch = match map.swizzle.bytes() {
        Some(span) if slice == 1 => span,
        _ => width,
    };
    let rows: u64 = counts[1..].iter().product();
    let mut bytes = Vec::new();
    for (row, column) in (0..rows).flat_map(|row| (0..width).map(move |column| (row, column))) {
        let mut rest = row;
        let mut offset = Some(0);
        for axis in 1..map.rank {
            let its =
                i64::from(at[axis]) + (rest % counts[axis] * u64::from(map.steps[axis])) as i64;
            rest /= counts[axis];
            let is_inside = (0..map.dims[axis] as i64).contains(&its);
            offset =
                offset.filter(|_| is_inside).map(|all| all + map.strides[axis - 1] * its as u64);
        }
        let first = i64::from(at[0]) * slice as i64 + column as i64;
        let is_inside = (0..(map.dims[0] * slice) as i64).contains(&first);
        let offset = offset.filter(|_| is_inside).map(|all| all + first as u64);
        bytes.push((swizzled(map.swizzle, to + row * pitch + column), offset));
    }
    bytes
}

/// The place of a byte in a pattern of 1,024 bytes: eight rows of eight units of 16 bytes.
fn swizzled(swizzle: Swizzle, at: u64) -> u64 {
    let (pattern, row, unit) = (at / 1024, at / 128 % 8, at / 16 % 8);
    let unit = match swizzle {
        Swizzle::None => unit,
        Swizzle::Bytes32 => unit ^ (row % 2),
        Swizzle::Bytes64 => unit ^ (row % 4),
        Swizzle::Bytes128 => unit ^ row,
    };
    1024 * pattern + 128 * row + 16 * unit + at % 16
}

/// Asserts that a load writes the bytes of a model.
fn assert_loaded(shared: &[u8], bytes: &Bytes, case: &str) {
    let mut expected = vec![0xee; SHARED];
    for (to, from) in bytes {
        expected[*to as usize] = from.map_or(0, |from| (from % 251) as u8);
    }
    let at = shared.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(at, None, "{case}");
}

/// Returns a map, coordinates of a box, and the offset of the box in shared memory.
fn any(random: &mut Random) -> (TensorMap, Vec<i32>, u64) {
    let rank = 1 + random.below(5) as usize;
    let mut dims = vec![1 + random.below(100)];
    dims.extend((1..rank).map(|_| 1 + random.below(6)));
    let mut its = map(&dims);
    its.swizzle = Swizzle::from_code(random.below(4) as u32).unwrap();
    let units = its.swizzle.bytes().unwrap_or(96) / 16;
    let mut extents = [1; RANK];
    extents[0] = 16 * (1 + random.below(units)) as u16;
    for (extent, step) in extents.iter_mut().zip(&mut its.steps).take(rank).skip(1) {
        *extent = 1 + random.below(5) as u16;
        *step = 1 + random.below(3) as u8;
    }
    its.steps[0] = 1 + random.below(8) as u8;
    let is_interleaved = rank >= 3 && random.below(4) == 0;
    if is_interleaved {
        its.interleave = Interleave::from_code(1 + random.below(2) as u32).unwrap();
        let slice = its.interleave.bytes().unwrap();
        (its.dims[0], extents[0]) = (1 + random.below(6), 1 + random.below(5) as u16);
        let mut stride = slice * its.dims[0];
        for axis in 1..rank {
            its.strides[axis - 1] = stride;
            stride *= its.dims[axis];
        }
    }
    its.mode = Mode::Tile(extents);
    let mut at = vec![match is_interleaved {
        true => random.below(9) as i32 - 4,
        false => 16 * (random.below(12) as i32 - 5),
    }];
    at.extend((1..rank).map(|_| random.below(9) as i32 - 3));
    (its, at, 128 * random.below(10))
}

#[test]
fn loads_of_boxes_have_the_elements_of_a_model() {
    let mut random = Random(1);
    let mut cases = 0;
    while cases < 600 {
        let (map, at, to) = any(&mut random);
        let bytes = boxed(&map, &at, to);
        if bytes.iter().any(|(to, _)| *to as usize >= SHARED) {
            continue;
        }
        let code = load(map.rank, "tile", to, bytes.len() as u64, "");
        let (shared, _) = run(&code, &map, &at).unwrap_or_else(|kind| panic!("{map:?}: {kind:?}"));
        assert_loaded(&shared, &bytes, &format!("{map:?} at {at:?}"));
        cases += 1;
    }
    println!("{cases} loads");
}

#[test]
fn stores_of_boxes_write_the_units_that_are_inside_in_part() {
    let mut random = Random(2);
    let [mut cases, mut refused] = [0; 2];
    while cases < 200 {
        let (map, at, from) = any(&mut random);
        let mut units = map;
        if map.interleave == Interleave::None {
            units.dims[0] = map.dims[0].next_multiple_of(16);
        }
        let bytes = boxed(&units, &at, from);
        if bytes.iter().any(|(from, _)| *from as usize >= SHARED) {
            continue;
        }
        // Shared memory has other bytes than the tensor.
        let code = format!(
            "mov.u32 %r1, 0; NUMBER: shr.u32 %r2, %r1, 4; st.shared.u8 [%r1], %r2; add.u32 %r1, %r1, 1;
             setp.lt.u32 %p1, %r1, {SHARED}; @%p1 bra NUMBER;
             {}",
            store(map.rank, "cp.async.bulk.tensor", "", from)
        )
        .replace("mbarrier.init.shared.b64 [bar], 1;", "");
        let stored = run(&code, &map, &at);
        if at.iter().any(|its| *its < 0) {
            assert_eq!(stored.err(), Some(FaultKind::IllegalInstruction), "{map:?} at {at:?}");
            refused += 1;
            continue;
        }
        let (_, tensor) = stored.unwrap_or_else(|kind| panic!("{map:?}: {kind:?}"));
        let mut expected: Vec<u8> = (0..tensor.len()).map(|at| (at % 251) as u8).collect();
        for (from, to) in bytes {
            if let Some(to) = to {
                expected[to as usize] = (from >> 4) as u8;
            }
        }
        assert_eq!(tensor, expected, "{map:?} at {at:?}");
        cases += 1;
    }
    println!("{cases} stores, {refused} are refused");
}

/// Returns the bytes of columns: all pixels of the bounding boxes of all images in order, from the first one on.
fn columns(map: &TensorMap, at: &[i32], offsets: &[u16], to: u64) -> Bytes {
    let Mode::Im2col { lower, upper, channels, pixels } = map.mode else { panic!("columns") };
    let images = map.rank - 1;
    let ranges: Vec<Vec<i64>> = (1..images)
        .map(|axis| {
            let first = i64::from(lower[axis - 1]);
            let last = map.dims[axis] as i64 + i64::from(upper[axis - 1]);
            (first..last).step_by(map.steps[axis].into()).collect()
        })
        .collect();
    let mut all = Vec::new();
    for image in (at[images].into()..).step_by(map.steps[images].into()).take(40) {
        let count: usize = ranges.iter().map(Vec::len).product();
        for index in 0..count {
            let mut rest = index;
            let mut pixel: Vec<i64> = Vec::new();
            for range in &ranges {
                pixel.push(range[rest % range.len()]);
                rest /= range.len();
            }
            pixel.push(image);
            all.push(pixel);
        }
    }
    let first: Vec<i64> = at[1..].iter().map(|its| i64::from(*its)).collect();
    let start = all.iter().position(|pixel| *pixel == first).expect("a pixel of a bounding box");
    let mut bytes = Vec::new();
    let pitch = map.swizzle.bytes().unwrap_or(channels.into());
    for (row, pixel) in all[start..].iter().take(pixels.into()).enumerate() {
        let mut offset = Some(0);
        for (axis, its) in (1..).zip(pixel) {
            let its = its + i64::from(offsets.get(axis - 1).copied().unwrap_or(0));
            let is_inside = (0..map.dims[axis] as i64).contains(&its);
            offset =
                offset.filter(|_| is_inside).map(|all| all + map.strides[axis - 1] * its as u64);
        }
        for channel in 0..u64::from(channels) {
            let its = at[0] as u64 + channel;
            let offset = offset.filter(|_| its < map.dims[0]).map(|all| all + its);
            bytes.push((swizzled(map.swizzle, to + row as u64 * pitch + channel), offset));
        }
    }
    bytes
}

#[test]
fn loads_of_columns_have_the_pixels_of_a_model() {
    let mut random = Random(3);
    let mut cases = 0;
    while cases < 200 {
        let rank = 3 + random.below(3) as usize;
        let mut dims = vec![1 + random.below(60)];
        dims.extend((1..rank).map(|_| 2 + random.below(4)));
        let mut its = map(&dims);
        its.swizzle = Swizzle::from_code(random.below(4) as u32).unwrap();
        let corner = |random: &mut Random| random.below(3) as i16 - 1;
        let lower = std::array::from_fn(|_| corner(&mut random));
        let upper = std::array::from_fn(|_| corner(&mut random));
        let units = its.swizzle.bytes().unwrap_or(64) / 16;
        let channels = 16 * (1 + random.below(units)) as u16;
        let pixels = 1 + random.below(40) as u16;
        its.mode = Mode::Im2col { lower, upper, channels, pixels };
        let mut at = vec![16 * random.below(4) as i32];
        for axis in 1..rank - 1 {
            its.steps[axis] = 1 + random.below(2) as u8;
            at.push(lower[axis - 1].into());
        }
        its.steps[rank - 1] = 1 + random.below(2) as u8;
        at.push(random.below(dims[rank - 1]) as i32);
        let is_empty = |axis: usize| {
            i64::from(lower[axis - 1]) >= its.dims[axis] as i64 + i64::from(upper[axis - 1])
        };
        if (1..rank - 1).any(is_empty) {
            continue;
        }
        let offsets: Vec<u16> = (2..rank).map(|_| random.below(3) as u16).collect();
        let to = 128 * random.below(10);
        let bytes = columns(&its, &at, &offsets, to);
        let list: Vec<String> = offsets.iter().map(u16::to_string).collect();
        let code =
            load(rank, "im2col", to, bytes.len() as u64, &format!(", {{{}}}", list.join(", ")));
        let (shared, _) = run(&code, &its, &at).unwrap_or_else(|kind| panic!("{its:?}: {kind:?}"));
        assert_loaded(&shared, &bytes, &format!("{its:?} at {at:?} with {offsets:?}"));
        cases += 1;
    }
    println!("{cases} loads");
}

#[test]
fn encoded_maps_are_decoded() {
    let mut random = Random(4);
    for _ in 0..10_000 {
        let (mut map, ..) = any(&mut random);
        map.address = random.below(1 << 57);
        map.element = Element::from_code(random.below(13) as u32).unwrap();
        map.dims[random.below(5) as usize] = 1 << 32;
        map.strides[random.below(4) as usize] = random.below(1 << 40);
        map.fills_with_nan = random.below(2) == 0;
        match random.below(3) {
            0 => map.mode = Mode::Im2colWide,
            1 => {
                let mut corner = || std::array::from_fn(|_| random.below(1 << 16) as i16);
                let (lower, upper) = (corner(), corner());
                map.mode = Mode::Im2col { lower, upper, channels: 256, pixels: 1024 };
            }
            _ => {}
        }
        let words = map.encode();
        assert_eq!(TensorMap::decode(&words), Some(map));
        assert_eq!(words[0], map.address);
        let mut other = words;
        other[15] ^= 1 << random.below(64);
        assert_eq!(TensorMap::decode(&other), None);
    }
    assert_eq!(TensorMap::decode(&[0; 16]), None);
}

#[test]
fn copies_with_wrong_operands_end_the_kernel() {
    let mut plane = map(&[64, 8]);
    plane.mode = Mode::Tile([32, 4, 1, 1, 1]);
    let fault = |code: &str, map: &TensorMap, at: &[i32]| run(code, map, at).map(drop).unwrap_err();
    let tile = |to| load(2, "tile", to, 128, "");
    assert!(run(&tile(128), &plane, &[0, 0]).is_ok());
    assert_eq!(fault(&tile(64), &plane, &[0, 0]), FaultKind::MisalignedAddress);
    assert_eq!(fault(&tile(0), &plane, &[8, 0]), FaultKind::IllegalInstruction);
    assert_eq!(fault(&tile(1 << 20), &plane, &[0, 0]), FaultKind::IllegalAddress);
    let three = load(3, "tile", 0, 128, "");
    assert_eq!(fault(&three, &plane, &[0, 0, 0]), FaultKind::IllegalInstruction);
    let mut cube = map(&[64, 4, 4]);
    cube.mode = Mode::Tile([32, 2, 2, 1, 1]);
    let columns = load(3, "im2col", 0, 128, ", {0}");
    assert_eq!(fault(&columns, &cube, &[0, 0, 0]), FaultKind::IllegalInstruction);
    cube.mode = Mode::Im2col { lower: [0; 3], upper: [0; 3], channels: 32, pixels: 4 };
    assert!(run(&columns, &cube, &[0, 0, 0]).is_ok());
    assert_eq!(fault(&three, &cube, &[0, 0, 0]), FaultKind::IllegalInstruction);
    // The bounding box has two pixels.
    cube.mode = Mode::Im2col { lower: [1; 3], upper: [-1; 3], channels: 32, pixels: 4 };
    for (at, is_inside) in [(0, false), (1, true), (2, true), (3, false)] {
        let done = run(&columns, &cube, &[0, at, 0]).map(drop);
        let expected = if is_inside { Ok(()) } else { Err(FaultKind::IllegalInstruction) };
        assert_eq!(done, expected, "from {at}");
    }
    // A store has no bounding box before the first pixel.
    let back = store(3, "cp.async.bulk.tensor", "", 0).replace("tile", "im2col_no_offs");
    for (first, expected) in [(0, Ok(())), (-1, Err(FaultKind::IllegalInstruction))] {
        cube.mode = Mode::Im2col { lower: [first; 3], upper: [0; 3], channels: 32, pixels: 1 };
        assert_eq!(run(&back, &cube, &[0, 2, 0]).map(drop), expected, "a box from {first}");
    }
    cube.mode = Mode::Im2colWide;
    assert_eq!(fault(&columns, &cube, &[0, 0, 0]), FaultKind::IllegalInstruction);
    let other = tile(0).replace("[%d1,", "[%d0,");
    assert_eq!(fault(&other, &plane, &[0, 0]), FaultKind::IllegalInstruction, "no map");
    // Bytes have no sums.
    let sum = store(2, "cp.reduce.async.bulk.tensor", ".add", 0);
    assert_eq!(fault(&sum, &plane, &[0, 0]), FaultKind::IllegalInstruction);
    // Signed elements of 64 bits have the minimum, and no sum.
    plane.element = Element::S64;
    plane.dims[0] /= 8;
    plane.mode = Mode::Tile([4, 4, 1, 1, 1]);
    assert_eq!(fault(&sum, &plane, &[0, 0]), FaultKind::IllegalInstruction);
    assert!(run(&sum.replace(".add", ".min"), &plane, &[0, 0]).is_ok());
}

#[test]
fn reductions_combine_the_elements_that_are_inside() {
    let mut words = map(&[48, 4]);
    words.element = Element::U32;
    words.dims[0] = 12;
    words.mode = Mode::Tile([8, 3, 1, 1, 1]);
    for (function, expected) in [
        (".add", u32::wrapping_add as fn(u32, u32) -> u32),
        (".min", u32::min),
        (".max", u32::max),
        (".and", |a, b| a & b),
        (".or", |a, b| a | b),
        (".xor", |a, b| a ^ b),
    ] {
        let code = store(2, "cp.reduce.async.bulk.tensor", function, 0);
        let (_, tensor) = run(&code, &words, &[8, 2]).unwrap();
        for (at, word) in tensor.chunks_exact(4).enumerate() {
            let word = u32::from_le_bytes(word.try_into().unwrap());
            let before =
                u32::from_le_bytes(std::array::from_fn(|byte| ((4 * at + byte) % 251) as u8));
            let is_inside = at % 12 >= 8 && at / 12 >= 2;
            let value = if is_inside { expected(before, 0xeeee_eeee) } else { before };
            assert_eq!(word, value, "{function} at {at}");
        }
    }
}

#[test]
fn reductions_combine_whole_units_that_are_inside_in_part() {
    let mut words = map(&[48, 4]);
    words.element = Element::U32;
    words.mode = Mode::Tile([8, 3, 1, 1, 1]);
    let code = store(2, "cp.reduce.async.bulk.tensor", ".or", 0);
    for (dim, end) in [(9, 12), (10, 12), (12, 12), (13, 16)] {
        words.dims[0] = dim;
        words.strides[0] = 64;
        let (_, tensor) = run(&code, &words, &[8, 2]).unwrap();
        let last = tensor[2 * 64..3 * 64].chunks_exact(4);
        let is_combined = |word: &[u8]| word.iter().all(|byte| byte & 0xee == 0xee);
        let combined: Vec<usize> =
            last.enumerate().filter(|(_, word)| is_combined(word)).map(|(at, _)| at).collect();
        assert_eq!(combined, (8..end).collect::<Vec<_>>(), "{dim}");
    }
    for at in [[-4, 0], [0, -1]] {
        let kind = run(&code, &words, &at).map(drop).unwrap_err();
        assert_eq!(kind, FaultKind::IllegalInstruction, "{at:?}");
    }
}

#[test]
fn elements_outside_of_a_tensor_are_nan_on_request() {
    for (code, bits) in [(6, 0x7ff7_7ff7), (9, 0x7ff7_7ff7), (7, 0x7ff7_7ff7), (8, 0x7ff7_7ff7)] {
        let mut its = map(&[64]);
        its.element = Element::from_code(code).unwrap();
        its.dims[0] = 64 / its.element.bytes();
        its.fills_with_nan = true;
        its.mode = Mode::Tile([(32 / its.element.bytes()) as u16, 1, 1, 1, 1]);
        let at = [its.dims[0] as i32];
        let (shared, _) = run(&load(1, "tile", 0, 32, ""), &its, &at).unwrap();
        let words = shared[..32].chunks_exact(4);
        let words: Vec<u32> =
            words.map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [bits; 8], "{code}");
    }
}
