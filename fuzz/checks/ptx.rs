//! PTX.

use cuda_ptx::check::SiteId;
use cuda_ptx::syntax::{Module, parse};
use cuda_ptx::{Access, Device, Launch, Program, Region, run};
use std::sync::atomic::AtomicU64;

/// A text that parses prints to a text that parses, and that prints to itself. The error of another text
/// has a place in the text. A module that links runs, with a limit of operations.
pub(crate) fn ptx(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse(text) {
        Ok(module) => {
            let printed = module.to_string();
            let again = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
            assert_eq!(again.to_string(), printed);
            run_kernels(&module);
        }
        Err(error) => {
            let line = text.split('\n').nth(error.position.line as usize - 1);
            let columns = line.expect("the line exists").len() + 1;
            assert!((1..=columns).contains(&(error.position.column as usize)), "{error}");
            assert!(!error.expected.is_empty() && !error.found.is_empty(), "{error}");
        }
    }
}

/// The address of the memory, and of each variable.
const BASE: u64 = 0x7000_0000;

struct Memory(Vec<AtomicU64>);

impl Device for Memory {
    fn region(
        &self,
        _address: u64,
        _len: u64,
        _access: Access,
        _: SiteId,
    ) -> Result<Region<'_>, String> {
        Ok(Region::new(BASE, &self.0))
    }

    fn print(&self, _text: &str) {}

    fn allocate(&self, size: u64) -> Option<u64> {
        (size <= 64).then_some(BASE)
    }

    fn free(&self, _address: u64) -> Result<(), String> {
        Ok(())
    }

    fn set_conditional(&self, _handle: u64, _value: u32) -> Result<(), String> {
        Ok(())
    }
}

fn run_kernels(module: &Module) {
    let Ok(program) = Program::link(std::slice::from_ref(module)) else {
        return;
    };
    let variables = vec![BASE; program.variables().len()];
    for (index, kernel) in program.kernels().iter().enumerate().take(4) {
        let params: Vec<u8> = BASE.to_le_bytes().repeat(kernel.param_bytes().div_ceil(8));
        let memory = Memory((0..128).map(|_| AtomicU64::new(0x3f80_0000_3f80_0001)).collect());
        let mut launch = Launch::new(&program, index);
        launch.grid = launch.cluster;
        launch.block = [40, 1, 1];
        launch.dynamic_shared = 64;
        launch.params = &params;
        launch.variables = &variables;
        launch.stack = 1 << 12;
        launch.steps = 1_000;
        // A fault is a correct end.
        let _ = run(&launch, &memory);
    }
}
