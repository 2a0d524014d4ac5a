//! Measures the parser: `cargo bench -p cuda-ptx --bench parse -- [FILE…]`. Without files it parses a text
//! that it generates.

use cuda_ptx::syntax::{Item, Module, Statement, parse};
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long a text is parsed again and again.
const TIME: Duration = Duration::from_secs(2);

fn main() {
    let files = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let mut texts: Vec<String> = files
        .map(|file| {
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"))
        })
        .collect();
    if texts.is_empty() {
        texts.push(generated());
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    let instructions: usize = texts.iter().map(|text| instructions(&module(text))).sum();
    println!("{} texts, {bytes} bytes, {instructions} instructions", texts.len());

    let parsing = || texts.iter().for_each(|text| drop(black_box(parse(black_box(text)))));
    println!("parse: {:.0} MB/s", rate(bytes, parsing));
    let modules: Vec<Module> = texts.iter().map(|text| module(text)).collect();
    let printing = || modules.iter().for_each(|module| drop(black_box(module.to_string())));
    println!("print: {:.0} MB/s of the original text", rate(bytes, printing));
}

fn module(text: &str) -> Module<'_> {
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the number of million bytes per second, for an action that handles so many bytes: the best of
/// all times, because other processes only make it slower.
fn rate(bytes: usize, action: impl Fn()) -> f64 {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    while begin.elapsed() < TIME {
        let start = Instant::now();
        action();
        best = best.min(start.elapsed());
    }
    bytes as f64 / best.as_secs_f64() / 1e6
}

fn instructions(module: &Module) -> usize {
    let functions = module.items.iter().filter_map(|item| match item {
        Item::Function(function) => function.body.as_ref(),
        _ => None,
    });
    functions.map(|body| instructions_of(body)).sum()
}

fn instructions_of(statements: &[Statement]) -> usize {
    let count = |statement: &Statement| match statement {
        Statement::Instruction(_) => 1,
        Statement::Block(statements) => instructions_of(statements),
        _ => 0,
    };
    statements.iter().map(count).sum()
}

/// Returns a text with the instructions that compilers emit most often.
fn generated() -> String {
    let mut text =
        "//\n// Generated\n//\n.version 8.0\n.target sm_80\n.address_size 64\n".to_owned();
    for kernel in 0..4 {
        let name = format!("_Z6kernel{kernel}ILi{kernel}EEvPfS0_i");
        write!(
            text,
            "\n.visible .entry {name}(\n\t.param .u64 {name}_param_0,\n\t.param .u32 {name}_param_1\n)\n\
             .maxntid 256, 1, 1\n{{\n\t.reg .pred \t%p<4>;\n\t.reg .f32 \t%f<300>;\n\
             \t.reg .b32 \t%r<300>;\n\t.reg .b64 \t%rd<300>;\n\n\
             \tld.param.u64 \t%rd1, [{name}_param_0];\n\tcvta.to.global.u64 \t%rd2, %rd1;\n"
        )
        .expect("a string has room");
        for n in 3..200 {
            write!(
                text,
                "\tmov.u32 \t%r{n}, %tid.x;\n\tmad.lo.s32 \t%r{n}, %r1, 256, %r{n};\n\
                 \tsetp.ge.s32 \t%p1, %r{n}, %r2;\n\t@%p1 bra \t$L__BB0_{n};\n\n\
                 \tmul.wide.s32 \t%rd{n}, %r{n}, 4;\n\tadd.s64 \t%rd{n}, %rd2, %rd{n};\n\
                 \tld.global.nc.v2.f32 \t{{%f1, %f2}}, [%rd{n}+{n}];\n\
                 \tfma.rn.f32 \t%f{n}, %f1, 0f3F800000, %f2;\n\
                 \tshfl.sync.bfly.b32 \t%r7|%p2, %r{n}, 16, 31, -1;\n\
                 \tst.global.f32 \t[%rd{n}], %f{n};\n$L__BB0_{n}:\n"
            )
            .expect("a string has room");
        }
        text.push_str("\tret;\n\n}\n");
    }
    text
}
