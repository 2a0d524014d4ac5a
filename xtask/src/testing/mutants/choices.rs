//! Writes changes into a source file, as choices at run time.

use std::cmp::Reverse;
use std::ops::Range;

use super::operators::{Change, Form};

/// The name of a crate whose function `on` says whether the change with a number is in effect.
pub(crate) const SWITCH: &str = "mutant_switch";

/// The source of that crate. `CUDA_MUTANT` is the number of the change. With `CUDA_MUTANT_REACHED`, no change is in
/// effect, and the numbers of the choices that run are appended to that file, as `u32`. Nothing is allocated after the
/// first choice, because some tests count allocations.
pub(crate) const SWITCH_SOURCE: &str = r#"
use std::env::var_os;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const UNKNOWN: usize = usize::MAX;
const RECORDING: usize = usize::MAX - 1;
static CHOSEN: AtomicUsize = AtomicUsize::new(UNKNOWN);
static REACHED: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];
static FILE: OnceLock<Option<File>> = OnceLock::new();

#[inline]
pub fn on(id: usize) -> bool {
    match CHOSEN.load(Relaxed) {
        UNKNOWN | RECORDING => look(id),
        chosen => chosen == id,
    }
}

#[cold]
fn look(id: usize) -> bool {
    let file = FILE.get_or_init(|| {
        let path = var_os("CUDA_MUTANT_REACHED")?;
        Some(File::options().append(true).create(true).open(path).expect("a file"))
    });
    if let Some(mut file) = file.as_ref() {
        CHOSEN.store(RECORDING, Relaxed);
        if !REACHED[id].swap(true, Relaxed) {
            // One call, because the processes of a test may write at once.
            file.write_all(&(id as u32).to_ne_bytes()).expect("a file");
        }
        return false;
    }
    let chosen = var_os("CUDA_MUTANT").map(|id| id.to_str().unwrap_or("").parse().expect("a number"));
    CHOSEN.store(chosen.unwrap_or(0), Relaxed);
    chosen == Some(id)
}
"#;

/// A source file with choices.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) text: String,
    /// The bytes of each change in the text.
    changes: Vec<(Range<usize>, usize)>,
    /// The bytes of each choice in the text, with the originals, and the numbers of its changes.
    choices: Vec<(Range<usize>, Vec<usize>)>,
}

impl Written {
    /// Writes the changes, which have the given numbers, into the source.
    pub(crate) fn new(source: &str, changes: &[(usize, &Change)]) -> Self {
        let mut changes = changes.to_vec();
        changes.sort_by_key(|(id, its)| (its.range.start, Reverse(its.range.end), its.form, *id));
        let mut written = Self::default();
        written.write(source, 0..source.len(), &changes);
        written
    }

    /// Writes a part of the source with its changes. A change only contains the original code, since only one change
    /// is in effect. So the text remains small if choices are nested.
    fn write(&mut self, source: &str, part: Range<usize>, mut changes: &[(usize, &Change)]) {
        let mut place = part.start;
        while let Some(&(_, first)) = changes.first() {
            let is_other =
                |(_, its): &(usize, &Change)| (&its.range, its.form) != (&first.range, first.form);
            let count = changes.iter().position(is_other).unwrap_or(changes.len());
            let (same, rest) = changes.split_at(count);
            let is_outside = |(_, its): &(usize, &Change)| its.range.start >= first.range.end;
            let count = rest.iter().position(is_outside).unwrap_or(rest.len());
            let (inner, rest) = rest.split_at(count);
            self.text.push_str(&source[place..first.range.start]);
            let begin = self.text.len();
            match first.form {
                Form::Guard => {
                    let ids = same.iter().map(|(id, _)| format!("!::{SWITCH}::on({id})"));
                    let ids: Vec<_> = ids.collect();
                    self.text.push_str(&format!(" if {} ", ids.join(" && ")));
                }
                Form::Value => {
                    self.text.push('(');
                    self.choose(source, same, inner);
                    self.text.push(')');
                }
                Form::Statement => self.choose(source, same, inner),
            }
            let ids = same.iter().map(|(id, _)| *id).collect();
            self.choices.push((begin..self.text.len(), ids));
            place = first.range.end;
            changes = rest;
        }
        self.text.push_str(&source[place..part.end]);
    }

    fn choose(&mut self, source: &str, same: &[(usize, &Change)], inner: &[(usize, &Change)]) {
        for (id, change) in same {
            self.text.push_str(&format!("if ::{SWITCH}::on({id}) {{ "));
            let begin = self.text.len();
            self.text.push_str(&change.text);
            self.changes.push((begin..self.text.len(), *id));
            self.text.push_str(" } else ");
        }
        self.text.push_str("{ ");
        self.write(source, same[0].1.range.clone(), inner);
        self.text.push_str(" }");
    }

    /// Returns the changes that contain a place of the text.
    pub(crate) fn at(&self, place: &Range<usize>) -> Vec<usize> {
        let changes = self.changes.iter().filter(|(range, _)| contains(range, place));
        changes.map(|(_, id)| *id).collect()
    }

    /// Returns the changes of the smallest choice around a place of the text, else of the nearest choice.
    pub(crate) fn near(&self, place: &Range<usize>) -> Option<&[usize]> {
        let nearest = self.choices.iter().min_by_key(|(range, _)| match contains(range, place) {
            true => (0, range.len()),
            false => (1, range.start.abs_diff(place.start)),
        });
        nearest.map(|(_, ids)| &ids[..])
    }
}

fn contains(range: &Range<usize>, place: &Range<usize>) -> bool {
    range.start <= place.start && place.end <= range.end
}

#[cfg(test)]
mod tests {
    use super::{Change, Written};
    use crate::testing::mutants::operators::changes;

    fn written(source: &str, names: &[&str]) -> String {
        let (changes, _) = changes(source).expect("a source");
        let chosen = names
            .iter()
            .map(|name| changes.iter().find(|its| its.name.starts_with(name)).expect("a change"));
        let chosen: Vec<(usize, &Change)> = (1..).zip(chosen).collect();
        Written::new(source, &chosen).text.replace("::mutant_switch::on", "on")
    }

    #[test]
    fn changes_of_one_expression_form_a_chain() {
        assert_eq!(
            written("fn f() { g(a < b); }", &["replace < with >", "replace < with =="]),
            "fn f() { g((if on(1) { a > b } else if on(2) { a == b } else { a < b })); }"
        );
    }

    #[test]
    fn a_nested_change_is_in_the_original_only() {
        assert_eq!(
            written("fn f() { a(1); b }", &["replace 1", "remove a(1)", "return"]),
            "fn f() {if on(3) { return ; } else {  } if on(2) {  } else { a((if on(1) { 2 } else { 1 })); } b }"
        );
    }

    #[test]
    fn a_removed_arm_gets_a_guard() {
        assert_eq!(
            written("fn f() { match a { A => b, _ => 1 } }", &["remove the arm A", "replace 1"]),
            "fn f() { match a { A  if !on(1) => b, _ => (if on(2) { 2 } else { 1 }) } }"
        );
    }

    #[test]
    fn an_error_belongs_to_the_change_or_choice_around_it() {
        let source = "fn f() { g(a + 1); }";
        let (changes, _) = changes(source).expect("a source");
        let find = |name: &str| changes.iter().find(|its| its.name.starts_with(name));
        let sum = find("replace + with -").expect("a change");
        let one = find("replace 1").expect("a change");
        let written = Written::new(source, &[(1, sum), (2, one)]);
        let at = |part: &str| {
            let start = written.text.find(part).expect("a part of the text");
            start..start + part.len()
        };
        assert_eq!(written.at(&at("a - 1")), [1]);
        assert_eq!(written.at(&at("a +")), [0; 0]);
        assert_eq!(written.near(&at("a +")), Some(&[1][..]));
        assert_eq!(written.near(&at("1 })")), Some(&[2][..]));
        assert_eq!(written.near(&at("fn f")), Some(&[1][..]));
    }
}
