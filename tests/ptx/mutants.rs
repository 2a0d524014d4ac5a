//! Compares what the engine and NVIDIA's assembler accept: forms with one word of an instruction changed.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::common::random::Random;
use crate::engine::{self, Verdict};
use crate::form::Form;
use crate::kernel;

/// Numbers that replace an operand.
const NUMBERS: [&str; 8] = ["0", "1", "-1", "33", "65536", "0x100000000", "1.5", "0f3F800000"];

/// Prints the mutants that only one of both accepts. Returns how many each of both accepts of all.
///
/// # Errors
/// The assembler cannot be started, or a file cannot be written.
pub(crate) fn compare(
    forms: &[Form],
    assembler: &str,
    count: usize,
    seed: u64,
) -> Result<bool, String> {
    let words = Words::of(forms);
    let mut random = Random(seed);
    let file = std::env::temp_dir().join(format!("mutant-{}.ptx", std::process::id()));
    let mut counts = BTreeMap::new();
    for _ in 0..count {
        let form = &forms[random.below(forms.len())];
        let mutant = Form { code: words.mutant(&form.code, &mut random), ..form.clone() };
        let text = kernel::module([(0, &mutant)]);
        std::fs::write(&file, &text).map_err(|error| error.to_string())?;
        let run = Command::new(assembler)
            .args(["-arch=sm_90", "-o", "/dev/null"])
            .arg(&file)
            .output()
            .map_err(|error| format!("{assembler}: {error}"))?;
        let theirs = run.status.success();
        let (ours, why) = engine::verdict(&text);
        *counts.entry((ours, theirs)).or_insert(0) += 1;
        let code = mutant.code.replace('\n', " ");
        match (ours, theirs) {
            (Verdict::Accepted, false) => {
                let errors = String::from_utf8_lossy(&run.stderr);
                println!("accepted: {code}\n    {}", errors.lines().next().unwrap_or_default());
            }
            (Verdict::Rejected, true) => println!("rejected: {code}\n    {why}"),
            _ => {}
        }
    }
    // A file that is left does no harm.
    let _ = std::fs::remove_file(file);
    let of = |ours, theirs| counts.get(&(ours, theirs)).copied().unwrap_or(0);
    println!(
        "{count} mutants: both accept {}, both reject {}, only the engine accepts {}, only the assembler {}; the \
         engine refuses {} that the assembler accepts, and {} others",
        of(Verdict::Accepted, true),
        of(Verdict::Rejected, false),
        of(Verdict::Accepted, false),
        of(Verdict::Rejected, true),
        of(Verdict::Refused, true),
        of(Verdict::Refused, false),
    );
    Ok(of(Verdict::Accepted, false) + of(Verdict::Rejected, true) == 0)
}

/// The words of all forms, from which mutants are made.
struct Words {
    opcodes: Vec<String>,
    modifiers: Vec<String>,
}

impl Words {
    fn of(forms: &[Form]) -> Self {
        let (mut opcodes, mut modifiers) = (BTreeSet::new(), BTreeSet::new());
        for word in forms.iter().flat_map(|form| split(&form.code)) {
            match word.as_bytes()[0] {
                b'.' if word.len() > 1 => modifiers.insert(word),
                b'a'..=b'z' => opcodes.insert(word),
                _ => false,
            };
        }
        let sorted = |set: BTreeSet<&str>| set.into_iter().map(str::to_owned).collect();
        Self { opcodes: sorted(opcodes), modifiers: sorted(modifiers) }
    }

    /// Returns the code with one word changed.
    fn mutant(&self, code: &str, random: &mut Random) -> String {
        let words: Vec<&str> = split(code).collect();
        let mut changed: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let of = |list: &[String], random: &mut Random| list[random.below(list.len())].clone();
        let is_operand = |word: &&str| {
            let first = word.as_bytes()[0];
            first == b'%' || first.is_ascii_digit()
        };
        loop {
            let at = random.below(words.len());
            match words[at].as_bytes()[0] {
                b'.' if words[at].len() > 1 => match random.below(4) {
                    0 => changed[at].clear(),
                    1 => changed[at] = of(&self.modifiers, random) + words[at],
                    _ => changed[at] = of(&self.modifiers, random),
                },
                b'a'..=b'z' => changed[at] = of(&self.opcodes, random),
                _ if is_operand(&words[at]) => {
                    let operands: Vec<&str> =
                        words.iter().copied().filter(is_operand).chain(NUMBERS).collect();
                    changed[at] = operands[random.below(operands.len())].to_owned();
                }
                b',' if at + 1 < words.len() => {
                    changed[at].clear();
                    changed[at + 1].clear();
                }
                _ => continue,
            }
            return changed.concat();
        }
    }
}

/// Splits code into its words, with the spaces as words of their own. A modifier begins with its point.
fn split(code: &str) -> impl Iterator<Item = &str> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_$%".contains(&byte);
    let mut rest = code;
    std::iter::from_fn(move || {
        let bytes = rest.as_bytes();
        let first = *bytes.first()?;
        let starts_word = is_part(first) || first == b'.';
        let more = bytes[1..].iter().position(|byte| !(starts_word && is_part(*byte)));
        let word;
        (word, rest) = rest.split_at(more.map_or(bytes.len(), |more| more + 1));
        Some(word)
    })
}
