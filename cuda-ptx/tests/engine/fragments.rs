//! Fragments: `wmma` loads, multiplies and stores matrices whose layout in registers PTX does not state.

use crate::device::{Memory, kernel, launch, launch_with, link};
use cuda_ptx::FaultKind;
use cuda_ptx::check::Checks;

/// A multiplication: its shape, the type of the factors, and those of `d` and `c`.
#[derive(Clone, Copy, Debug)]
struct Product {
    extents: [usize; 3],
    factor: &'static str,
    d: &'static str,
    c: &'static str,
}

impl Product {
    fn shape(&self) -> String {
        let [m, n, k] = self.extents;
        format!("m{m}n{n}k{k}")
    }

    /// Returns the modifiers of `wmma.mma` after the shape.
    fn types(&self) -> String {
        let Self { factor, d, c, .. } = *self;
        match factor {
            "f16" => format!("{d}.{c}"),
            "b1" => format!("{d}.b1.b1.{c}.and.popc"),
            _ => format!("{d}.{factor}.{factor}.{c}"),
        }
    }

    /// Returns the registers of a fragment, which begin at a number.
    fn registers(&self, matrix: char, ty: &str, first: usize) -> String {
        let [m, n, k] = self.extents;
        let elements = match matrix {
            'a' => m * k,
            'b' => k * n,
            _ => m * n,
        };
        let (letter, count) = match bits(ty) {
            64 => ('g', elements / 32),
            16 if ty == "f16" && matrix != 'c' => ('r', 8),
            bits => ('r', elements * bits / 1024),
        };
        let names = (first..first + count).map(|at| format!("%{letter}{at}"));
        format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
    }
}

fn bits(ty: &str) -> usize {
    match ty {
        "b1" => 1,
        "s4" | "u4" => 4,
        "s8" | "u8" => 8,
        "f16" | "bf16" => 16,
        "f64" => 64,
        _ => 32,
    }
}

/// Returns the bits of a small integer in a type.
fn encode(ty: &str, value: i32) -> u64 {
    let single = u64::from((value as f32).to_bits());
    match ty {
        "f64" => f64::from(value).to_bits(),
        "f32" | "tf32" => single,
        "bf16" => single >> 16,
        "f16" => {
            let (sign, magnitude) = (u64::from(value < 0) << 15, u64::from(value.unsigned_abs()));
            match magnitude.checked_ilog2() {
                None => sign,
                Some(exponent) => {
                    sign | u64::from(15 + exponent) << 10 | (magnitude << (10 - exponent)) & 0x3ff
                }
            }
        }
        _ => value as u64 & (u64::MAX >> (64 - bits(ty))),
    }
}

/// A matrix of small integers in memory.
struct Stored {
    columns: usize,
    is_row: bool,
    stride: usize,
    ty: &'static str,
}

impl Stored {
    /// Returns the number of bits before an element.
    fn offset(&self, row: usize, column: usize) -> usize {
        let (line, place) = if self.is_row { (row, column) } else { (column, row) };
        (line * self.stride + place) * bits(self.ty)
    }

    fn bytes(&self, values: &[i32]) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        for (at, value) in values.iter().enumerate() {
            let offset = self.offset(at / self.columns, at % self.columns);
            let encoded = encode(self.ty, *value) << (offset % 8);
            for (byte, value) in bytes[offset / 8..].iter_mut().zip(encoded.to_le_bytes()) {
                *byte |= value;
            }
        }
        bytes
    }
}

/// Returns the values of a matrix, which a type can represent.
fn values(ty: &str, count: usize, seed: i32) -> Vec<i32> {
    let range = match ty {
        "b1" => 0..2,
        "u4" | "u8" => 0..16,
        _ => -8..8,
    };
    let width = range.end - range.start;
    (0..count as i32)
        .map(|at| range.start + (at * at * 3 + at * 5 + seed).rem_euclid(width))
        .collect()
}

/// Multiplies matrices that are in global memory, and compares the product with a simple one.
fn check(product: Product, layouts: [bool; 4], gap: usize) {
    let [m, n, k] = product.extents;
    let Product { factor, d, c, .. } = product;
    let extents = [(m, k, factor), (k, n, factor), (m, n, c), (m, n, d)];
    let stored: Vec<Stored> = extents
        .iter()
        .zip(layouts)
        .map(|((rows, columns, ty), is_row)| {
            let line = if is_row { *columns } else { *rows };
            // A gap of bytes.
            Stored { columns: *columns, is_row, stride: line + 8 * gap / bits(ty), ty }
        })
        .collect();
    let layout = |index: usize| if layouts[index] { "row" } else { "col" };
    let shape = product.shape();
    let stride = |index: usize| match gap {
        0 => String::new(),
        _ => format!(", {}", stored[index].stride),
    };
    let registers = [
        product.registers('a', factor, 0),
        product.registers('b', factor, 8),
        product.registers('c', c, 16),
        product.registers('c', d, 24),
    ];
    // Fragments of doubles have names of their own.
    let registers = registers.map(|list| list.replace("%g24", "%g4").replace("%g25", "%g5"));
    let loads: String = ["a", "b", "c"]
        .iter()
        .enumerate()
        .map(|(index, matrix)| {
            format!(
                "ld.param.u64 %d0, [p{index}];
                 wmma.load.{matrix}.sync.aligned.{}.{shape}.{} {}, [%d0]{};\n",
                layout(index),
                stored[index].ty,
                registers[index],
                stride(index)
            )
        })
        .collect();
    let body = format!(
        "{loads} wmma.mma.sync.aligned.{}.{}.{shape}.{} {}, {}, {}, {};
         ld.param.u64 %d0, [p3];
         wmma.store.d.sync.aligned.{}.{shape}.{d} [%d0], {}{};",
        layout(0),
        layout(1),
        product.types(),
        registers[3],
        registers[0],
        registers[1],
        registers[2],
        layout(3),
        registers[3],
        stride(3)
    );
    let a = values(factor, m * k, 1);
    let b = values(factor, k * n, 2);
    let sum = values(c, m * n, 3);
    let mut memory = Memory::default();
    let addresses = [
        memory.bytes(&stored[0].bytes(&a)),
        memory.bytes(&stored[1].bytes(&b)),
        memory.bytes(&stored[2].bytes(&sum)),
        memory.bytes(&[0; 4096]),
    ];
    let text = kernel(4, &body);
    launch(&text, &memory, (1, 32), &addresses).unwrap_or_else(|fault| panic!("{fault}: {body}"));
    let expected: Vec<i32> = (0..m * n)
        .map(|at| {
            let (row, column) = (at / n, at % n);
            let products = (0..k).map(|inner| a[row * k + inner] * b[inner * n + column]);
            sum[at] + products.sum::<i32>()
        })
        .collect();
    let expected = stored[3].bytes(&expected);
    let found: Vec<u8> =
        memory.read(addresses[3]).iter().flat_map(|its| its.to_le_bytes()).collect();
    assert_eq!(found, expected, "{product:?}, {layouts:?}, {gap}");
}

/// The multiplications with all layouts.
fn products() -> Vec<Product> {
    let mut all = Vec::new();
    for extents in [[16, 16, 16], [8, 32, 16], [32, 8, 16]] {
        for (d, c) in [("f16", "f16"), ("f16", "f32"), ("f32", "f16"), ("f32", "f32")] {
            all.push(Product { extents, factor: "f16", d, c });
        }
        all.push(Product { extents, factor: "bf16", d: "f32", c: "f32" });
        for factor in ["s8", "u8"] {
            all.push(Product { extents, factor, d: "s32", c: "s32" });
        }
    }
    all.push(Product { extents: [16, 16, 8], factor: "tf32", d: "f32", c: "f32" });
    all.push(Product { extents: [8, 8, 4], factor: "f64", d: "f64", c: "f64" });
    all
}

#[test]
fn a_product_of_fragments_is_that_of_the_matrices_in_memory() {
    for product in products() {
        for layouts in 0..16 {
            let layouts = std::array::from_fn(|index| layouts >> index & 1 != 0);
            check(product, layouts, 0);
            check(product, layouts, 32);
        }
    }
}

#[test]
fn factors_of_less_than_a_byte_have_one_layout() {
    for (extents, factor) in [([8, 8, 32], "s4"), ([8, 8, 32], "u4"), ([8, 8, 128], "b1")] {
        let product = Product { extents, factor, d: "s32", c: "s32" };
        for (is_c_row, is_d_row) in [(true, true), (true, false), (false, true), (false, false)] {
            check(product, [true, false, is_c_row, is_d_row], 0);
            check(product, [true, false, is_c_row, is_d_row], 32);
        }
    }
    for wrong in [
        "load.a.sync.aligned.col.m8n8k32.s4 {%r1}, [%d0]",
        "load.b.sync.aligned.row.m8n8k128.b1 {%r1}, [%d0]",
    ] {
        let text = kernel(0, &format!("wmma.{wrong};"));
        let module = cuda_ptx::syntax::parse(&text).unwrap();
        assert!(cuda_ptx::Program::link(&[module]).is_err(), "{wrong}");
    }
}

#[test]
fn a_load_may_write_the_registers_of_its_address_and_stride() {
    // Each lane has two doubles of `c`, of which the first one becomes the address.
    let body = "ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %r0, 8;
        wmma.load.c.sync.aligned.row.m8n8k4.f64 {%d0, %d2}, [%d0], %r0;
        wmma.load.c.sync.aligned.row.m8n8k32.s32 {%r0, %r1}, [%d1], %r0;
        ld.param.u64 %d3, [p2]; mov.u32 %r2, %tid.x; mul.wide.u32 %d4, %r2, 16; add.u64 %d3, %d3, %d4;
        st.global.v2.u64 [%d3], {%d0, %d2}; st.global.v2.u32 [%d3+512], {%r0, %r1};";
    let mut memory = Memory::default();
    let words: Vec<u32> = (0..128).collect();
    let [doubles, singles] = [&words[..], &words[..64]].map(|words| memory.words(words));
    let results = memory.words(&[0; 256]);
    launch(&kernel(3, body), &memory, (1, 32), &[doubles, singles, results]).unwrap();
    let found = memory.read(results);
    // A row of eight elements belongs to four lanes.
    assert_eq!(found[..128], words);
    for lane in 0..32 {
        assert_eq!(found[128 + 4 * lane..][..2], words[2 * lane..][..2], "lane {lane}");
    }
}

/// Runs code on a warp, with 512 bytes of global memory at `%d0` that may have values, and 512 bytes of shared memory at
/// `%r1`. Returns the findings of all checks.
fn findings(body: &str, has_values: bool, block: u32) -> Vec<(String, String)> {
    let text = kernel(
        1,
        &format!(
            ".shared .align 32 .b8 s[512]; ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; {body}"
        ),
    );
    let mut memory = Memory::default();
    let address = if has_values { memory.written(512) } else { memory.unwritten(512) };
    let change = |launch: &mut cuda_ptx::Launch<'_>| launch.checks = Checks::ALL;
    launch_with(&text, &memory, (1, block), &[address], change).unwrap();
    let found = memory.findings.into_inner().unwrap();
    found.into_iter().map(|its| (its.check.name().to_owned(), its.site.instruction)).collect()
}

/// A load of 256 halves, and a store of them to shared memory.
const LOAD: &str = "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%d0];";
const STORE: &str =
    "wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%r1], {%r10, %r11, %r12, %r13};";

#[test]
fn checks_see_the_elements_that_a_lane_accesses() {
    let of = |check: &str, instruction: &str| vec![(check.to_owned(), instruction.to_owned())];
    assert_eq!(findings(&format!("{LOAD} {STORE}"), true, 32), []);
    // A condition on a half that nothing wrote.
    let used = format!("{LOAD} setp.eq.u32 %p1, %r12, 0; @%p1 mov.u32 %r20, 1;");
    assert_eq!(findings(&used, true, 32), []);
    assert_eq!(findings(&used, false, 32), of("initcheck", "mov.u32"));
    // Another thread reads an element without a barrier.
    let raced = |barrier: &str| {
        format!(
            "{LOAD} {STORE} {barrier} mad.lo.u32 %r2, %r0, -4, %r1; ld.shared.u32 %r3, [%r2+124];"
        )
    };
    assert_eq!(findings(&raced("bar.warp.sync -1;"), true, 32), []);
    let found = findings(&raced(""), true, 32);
    assert!(found.iter().all(|(check, _)| check == "racecheck") && !found.is_empty(), "{found:?}");
    // The warp has lanes without a thread.
    let found = findings(LOAD, true, 16);
    assert!(
        found.contains(&(
            "synccheck".to_owned(),
            "wmma.load.a.sync.aligned.row.m16n16k16.f16".to_owned()
        )),
        "{found:?}"
    );
}

#[test]
fn an_access_outside_of_memory_or_misaligned_is_a_fault_of_the_instruction() {
    for (address, stride, kind) in [
        ("%d0", "", None),
        ("%d0+4", "", Some(FaultKind::IllegalAddress)),
        ("%d0+2", "", Some(FaultKind::MisalignedAddress)),
        ("%d0", ", 24", Some(FaultKind::IllegalAddress)),
    ] {
        let load = format!(
            "ld.param.u64 %d0, [p0]; {}",
            LOAD.replace("[%d0]", &format!("[{address}]{stride}"))
        );
        let mut memory = Memory::default();
        let words = memory.words(&[0; 128]);
        let found = launch(&kernel(1, &load), &memory, (1, 32), &[words]).map_err(|fault| {
            assert_eq!(fault.instruction, "wmma.load.a.sync.aligned.row.m16n16k16.f16");
            fault.kind
        });
        assert_eq!(found.err(), kind, "{address}{stride}");
    }
}

#[test]
fn a_guard_holds_for_all_of_a_load() {
    let body = format!("setp.ne.u32 %p1, %r0, %r0; @%p1 {LOAD} {STORE}");
    // The registers stay zero, and have values.
    assert_eq!(findings(&body, false, 32), []);
    let program = link(&kernel(0, &body.replace("[%r1]", "[%d1]").replace(".shared", "")));
    let loads = program.instructions(0).filter(|its| its.name.starts_with("wmma.load"));
    assert!(loads.count() > 4, "the address, four loads and their copies");
}
