//! Modules of compilers: `PTX_CORPUS=folder cargo test -p cuda-ptx --test engine corpus -- --nocapture`.

use cuda_ptx::{Program, syntax};
use std::collections::BTreeMap;

#[test]
fn the_modules_of_a_corpus_link() {
    let Ok(folder) = std::env::var("PTX_CORPUS") else {
        println!("skipped: PTX_CORPUS names no folder");
        return;
    };
    let (mut modules, mut unlinked) = (0, BTreeMap::<String, (usize, String)>::new());
    let mut unsupported = BTreeMap::<String, usize>::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let Ok(module) = syntax::parse(&text) else { continue };
        modules += 1;
        match Program::link(&[module]) {
            Ok(program) => {
                let all = program.kernels().iter().flat_map(|kernel| kernel.unsupported());
                for (mnemonic, _) in all {
                    *unsupported.entry(mnemonic.to_owned()).or_default() += 1;
                }
            }
            Err(error) => {
                let text = error.to_string();
                let text = text.split_once(": ").map_or(text.clone(), |(_, text)| text.to_owned());
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                unlinked.entry(text).or_insert((0, format!("{name}: {error}"))).0 += 1;
            }
        }
    }
    println!("{modules} modules; not linked:");
    for (count, example) in unlinked.values() {
        println!("  {count} {example}");
    }
    println!("not supported:");
    for (mnemonic, count) in &unsupported {
        println!("  {count} {mnemonic}");
    }
}
