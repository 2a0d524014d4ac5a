//! The section "The seeds" of COVERAGE.md: the statements of the project's source documents, each with
//! the tests that assert it.
//!
//! The statements are in `xtask/seeds/`, one file for each document. Each statement names existing tests
//! or a reason.

use crate::root;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

/// The files of `xtask/seeds/`, in the order of the report.
const DOCUMENTS: [&str; 4] =
    ["green-contexts", "context-stack", "memory-manager", "array-interface"];

/// A file of `xtask/seeds/`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// The heading of its subsection.
    title: String,
    /// The origin of the document, as Markdown.
    source: String,
    chapters: Vec<Chapter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chapter {
    title: String,
    statements: Vec<Statement>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Statement {
    /// The statement of the document, restated.
    pub(crate) says: String,
    /// The tests that assert it: `tests/driver/green/mod.rs::name`, with inline modules before the name.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
    /// The names of changes of the code that violate the statement. One of the tests fails with each.
    #[serde(default)]
    pub(crate) mutants: Vec<String>,
    /// Why no change of the code can violate the statement for its tests.
    unmutated: Option<String>,
    /// Why there is no test, or how this library differs intentionally.
    reason: Option<String>,
}

/// A change of the code that violates statements.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) file: String,
    /// Text that occurs once in the file, before `from`; or empty.
    #[serde(default)]
    pub(crate) after: String,
    /// An expression, or a statement that ends with a semicolon. It occurs once in the file, or its first occurrence
    /// behind `after` is meant.
    pub(crate) from: String,
    /// An expression of the same type, or statements.
    pub(crate) to: String,
}

impl Mutant {
    /// Returns the place of the expression in the text of the file. Line breaks do not matter.
    pub(crate) fn place(&self, text: &str) -> Result<Range<usize>> {
        let Self { name, file, from, .. } = self;
        ensure!(*from != self.to, "{MUTANTS}: {name}: the texts do not differ");
        let (text, places) = without_breaks(text);
        let once = |part: &str| {
            let (text, part) = (&text, without_breaks(part).0);
            let count = text.matches(&part).count();
            ensure!(
                count == 1,
                "{MUTANTS}: {name}: {count} places in {file} have the text {part:?}, not one"
            );
            text.find(&part).context("a text that was counted")
        };
        let expression = without_breaks(from).0;
        let start = if self.after.is_empty() {
            once(from)?
        } else {
            let start = once(&self.after)? + without_breaks(&self.after).0.len();
            let found = text[start..].find(&expression);
            let none = || format!("{MUTANTS}: {name}: {file} has no {from:?} after the text");
            start + found.with_context(none)?
        };
        let last = start + expression.len() - 1;
        Ok(places[start]..places[last] + 1)
    }
}

/// Returns a text without spaces and line breaks, and without the commas that are necessary only before a line break,
/// and the place of each of its bytes in the text.
fn without_breaks(text: &str) -> (String, Vec<usize>) {
    let (mut short, mut places) = (String::new(), Vec::new());
    for (place, character) in text.char_indices() {
        let next = text[place + character.len_utf8()..].trim_start().chars().next();
        let ends = matches!(next, Some(')' | ']' | '}'));
        if character.is_whitespace() || character == ',' && ends {
            continue;
        }
        short.push(character);
        places.extend(place..place + character.len_utf8());
    }
    (short, places)
}

const MUTANTS: &str = "xtask/seeds/mutants.toml";

/// Reads the mutants and the statements that name them.
pub(crate) fn mutants() -> Result<(Vec<Mutant>, Vec<Statement>)> {
    let documents = read_documents()?;
    let statements = statements(&documents).map(|(_, its)| its.clone());
    Ok((read_mutants()?, statements.collect()))
}

fn read_mutants() -> Result<Vec<Mutant>> {
    let mutants: BTreeMap<String, Mutant> =
        toml::from_str(&read(MUTANTS)?).with_context(|| format!("reading {MUTANTS}"))?;
    let named = mutants.into_iter().map(|(name, its)| Mutant { name, ..its });
    Ok(named.collect())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("reading {path}"))
}

fn read_documents() -> Result<Vec<(String, Document)>> {
    let mut documents = Vec::new();
    for name in DOCUMENTS {
        let path = format!("xtask/seeds/{name}.toml");
        let document = toml::from_str(&read(&path)?).with_context(|| format!("reading {path}"))?;
        documents.push((path, document));
    }
    Ok(documents)
}

/// Returns the statements of all documents, with the files that they are in.
fn statements(documents: &[(String, Document)]) -> impl Iterator<Item = (&str, &Statement)> {
    documents.iter().flat_map(|(path, document)| {
        let statements = document.chapters.iter().flat_map(|its| &its.statements);
        statements.map(|its| (path.as_str(), its))
    })
}

/// The tests of the files that were read so far.
struct Tests<'a> {
    /// Returns the text of a file.
    read: &'a dyn Fn(&str) -> Result<String>,
    known: BTreeMap<String, BTreeSet<String>>,
}

/// Reads the statements, checks that their tests exist, and returns the section.
pub(super) fn render() -> Result<String> {
    let documents = read_documents()?;
    check(&documents, &read)?;
    check_mutants(&read_mutants()?, &documents, &read)?;
    section(&documents)
}

/// Checks that each mutant can be applied, and that the mutants and the statements name each other.
fn check_mutants(
    mutants: &[Mutant],
    documents: &[(String, Document)],
    read: &dyn Fn(&str) -> Result<String>,
) -> Result<()> {
    let known: BTreeSet<&str> = mutants.iter().map(|its| its.name.as_str()).collect();
    let mut named = BTreeSet::new();
    let mut problems = Vec::new();
    for (path, statement) in statements(documents) {
        let says = &statement.says;
        let has_mutants = !statement.mutants.is_empty();
        let answers = usize::from(has_mutants) + usize::from(statement.unmutated.is_some());
        if answers != usize::from(!statement.tests.is_empty()) {
            problems.push(format!(
                "{path}: a statement with tests has mutants or says why it is unmutated, and no other has: {says:?}"
            ));
        }
        for name in &statement.mutants {
            named.insert(name.as_str());
            if !known.contains(name.as_str()) {
                problems.push(format!("{path}: {MUTANTS} has no {name} (for {says:?})"));
            }
        }
    }
    for mutant in mutants {
        if !named.contains(mutant.name.as_str()) {
            problems.push(format!("{MUTANTS}: no statement names {}", mutant.name));
        }
        if let Err(error) = read(&mutant.file).and_then(|text| mutant.place(&text)) {
            problems.push(format!("{error:#}"));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Checks that each statement has a test or a reason, and that all tests exist.
fn check(documents: &[(String, Document)], read: &dyn Fn(&str) -> Result<String>) -> Result<()> {
    let mut tests = Tests { read, known: BTreeMap::new() };
    let mut problems = Vec::new();
    for (path, statement) in statements(documents) {
        let says = &statement.says;
        if statement.tests.is_empty() && statement.reason.is_none() {
            problems.push(format!("{path}: neither a test nor a reason for {says:?}"));
        }
        for test in &statement.tests {
            if let Err(error) = tests.find(test) {
                problems.push(format!("{path}: {error:#} (for the statement {says:?})"));
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

impl Tests<'_> {
    /// Checks that a test exists.
    fn find(&mut self, test: &str) -> Result<()> {
        let (path, name) = split(test)?;
        if !self.known.contains_key(path) {
            let text = (self.read)(path)?;
            let all = if path.ends_with(".py") {
                of_python(&text)
            } else {
                let file = syn::parse_file(&text).with_context(|| format!("parsing {path}"))?;
                let mut all = BTreeSet::new();
                of_rust(&file.items, "", &mut all);
                all
            };
            self.known.insert(path.to_owned(), all);
        }
        let exists = self.known.get(path).is_some_and(|all| all.contains(name));
        ensure!(exists, "the test {test} does not exist");
        Ok(())
    }
}

/// Splits the name of a test into the path of its file and its name there.
pub(crate) fn split(test: &str) -> Result<(&str, &str)> {
    test.split_once("::").with_context(|| format!("{test} does not have the form FILE::TEST"))
}

/// Collects functions with `#[test]`, and items whose documentation must not compile, with their inline
/// modules.
fn of_rust(items: &[Item], module: &str, all: &mut BTreeSet<String>) {
    for item in items {
        let name = match item {
            Item::Fn(item) if item.attrs.iter().any(is_test) => &item.sig.ident,
            Item::Struct(item) if has_compile_fail(&item.attrs) => &item.ident,
            Item::Mod(item) => {
                if let Some((_, items)) = &item.content {
                    of_rust(items, &format!("{module}{}::", item.ident), all);
                }
                continue;
            }
            _ => continue,
        };
        all.insert(format!("{module}{name}"));
    }
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("test")
}

fn has_compile_fail(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::NameValue(meta) = &attribute.meta else {
            return false;
        };
        let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &meta.value else {
            return false;
        };
        meta.path.is_ident("doc") && line.value().trim().starts_with("```compile_fail")
    })
}

/// Returns the functions at the top level that pytest collects.
fn of_python(text: &str) -> BTreeSet<String> {
    let named = text.lines().filter_map(|line| line.strip_prefix("def "));
    named
        .filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
        .filter(|name| name.starts_with("test_"))
        .map(str::to_owned)
        .collect()
}

/// Returns a line of the totals: statements, statements with tests, statements with only a reason.
fn totals<'a>(documents: impl IntoIterator<Item = &'a Document>) -> [usize; 3] {
    let mut totals = [0; 3];
    let chapters = documents.into_iter().flat_map(|its| &its.chapters);
    for statement in chapters.flat_map(|its| &its.statements) {
        totals[0] += 1;
        totals[if statement.tests.is_empty() { 2 } else { 1 }] += 1;
    }
    totals
}

fn section(documents: &[(String, Document)]) -> Result<String> {
    let documents: Vec<&Document> = documents.iter().map(|(_, document)| document).collect();
    let [all, tested, explained] = totals(documents.iter().copied());
    let of_all = documents.iter().flat_map(|its| &its.chapters);
    let mutated = of_all.flat_map(|its| &its.statements);
    let (mutated, other): (Vec<_>, Vec<_>) =
        mutated.filter(|its| !its.tests.is_empty()).partition(|its| its.unmutated.is_none());
    let (mutated, other) = (mutated.len(), other.len());
    let mut out = format!(
        "
## The seeds

This project is based on documents about green contexts, contexts and the context stack, external memory
managers, and the CUDA Array Interface. This section restates each of their {all} statements and names the
tests that assert it: {tested} have tests, {explained} have a reason instead.

- A reason without tests explains why no test applies: the statement describes another library, or has no
  effect that a test can observe.
- A reason with tests explains how this library intentionally differs from the document. The tests then
  assert the behavior of this library.
- Tests in `tests/driver` run on a GPU and on the software driver, those in `tests/gpu` only on a GPU, and
  those in `tests/sim` and `tests/host` without a GPU. `must_not_compile.rs` contains code that the compiler
  must reject.

The statements are in `xtask/seeds/`. `cargo xtask coverage --check` fails if one of these tests does not
exist. For {mutated} statements, `xtask/seeds/mutants.toml` has a change of the code that violates the
statement, and `cargo xtask seeds --mutants` checks that one of its tests fails. No change can violate the
other {other} statements with tests.

| Document | Statements | With tests | With a reason only |
|---|--:|--:|--:|
"
    );
    for document in &documents {
        let [all, tested, explained] = totals([*document]);
        let title = &document.title;
        writeln!(out, "| {title} | {all} | {tested} | {explained} |")?;
    }
    writeln!(out, "| **All** | {all} | {tested} | {explained} |")?;
    for document in documents {
        writeln!(out, "\n### {}\n\n{}", document.title, document.source)?;
        for Chapter { title, statements } in &document.chapters {
            writeln!(out, "\n**{title}**\n\n| Statement | Test |\n|---|---|")?;
            for statement in statements {
                writeln!(out, "| {} | {} |", statement.says, shown_by(statement)?)?;
            }
        }
    }
    Ok(out)
}

/// Returns the right cell of a statement: links to the files of its tests, and the reason.
fn shown_by(statement: &Statement) -> Result<String> {
    let mut parts = Vec::new();
    for test in &statement.tests {
        let (path, name) = split(test)?;
        parts.push(format!("[`{name}`]({path})"));
    }
    let mut cell = parts.join(", ");
    if let Some(reason) = &statement.reason {
        if !cell.is_empty() {
            cell.push_str(". ");
        }
        cell.push_str(reason);
    }
    Ok(cell)
}

#[cfg(test)]
mod tests {
    use super::{Document, Mutant, check, check_mutants, section, totals};
    use anyhow::{Context, Result};

    const RUST: &str = "
        #[test]
        fn a_test() {}

        fn helper() {}

        /// ```compile_fail,E0382
        /// nonsense
        /// ```
        struct Refused;

        /// ```
        /// sense
        /// ```
        struct Accepted;

        mod provoked {
            #[test]
            fn inside() {}
        }
    ";
    const PYTHON: &str = "
def test_a_list(device):
    def test_inside():
        pass

def helper():
    pass
";

    fn document(statement: &str) -> (String, Document) {
        let text = format!(
            "title = 'A document'\nsource = 'Somebody wrote it.'\n[[chapters]]\ntitle = 'One'\n\
             statements = [{{ says = 'It holds.', {statement} }}]"
        );
        let document = toml::from_str(&text).expect("a document");
        ("its.toml".to_owned(), document)
    }

    fn checked(statement: &str) -> Result<()> {
        let read = |path: &str| {
            let text = match path {
                "a.rs" => Some(RUST),
                "a.py" => Some(PYTHON),
                _ => None,
            };
            text.map(str::to_owned).context("no such file")
        };
        check(&[document(statement)], &read)
    }

    #[test]
    fn tests_that_exist_are_found() {
        for test in ["a.rs::a_test", "a.rs::provoked::inside", "a.rs::Refused", "a.py::test_a_list"]
        {
            checked(&format!("tests = ['{test}']")).expect(test);
        }
        checked("tests = ['a.rs::a_test', 'a.py::test_a_list'], reason = 'both'").expect("both");
    }

    #[test]
    fn a_test_that_does_not_exist_is_an_error_with_its_name_and_statement() {
        for test in [
            "a.rs::gone",
            "a.rs::helper",
            "a.rs::inside",
            "a.rs::Accepted",
            "a.py::test_inside",
            "a.py::helper",
        ] {
            let statement = format!("tests = ['a.rs::a_test', '{test}'], reason = 'a reason'");
            let error = checked(&statement).expect_err(test).to_string();
            assert!(error.contains(test) && error.contains("It holds."), "{error}");
        }
        checked("tests = ['b.rs::a_test']").expect_err("no such file");
        checked("tests = ['a_test']").expect_err("no file");
    }

    #[test]
    fn a_statement_needs_a_test_or_a_reason() {
        let error = checked("tests = []").expect_err("neither").to_string();
        assert!(error.contains("neither a test nor a reason"), "{error}");
        checked("reason = 'It describes another library.'").expect("a reason");
    }

    #[test]
    fn statements_are_counted_and_written_with_links() {
        let documents = [
            document("tests = ['a.rs::a_test', 'a.py::test_a_list'], reason = 'Not quite.'"),
            document("reason = 'It describes another library.'"),
        ];
        assert_eq!(totals(documents.iter().map(|its| &its.1)), [2, 1, 1]);
        let text = section(&documents).expect("a section");
        let rows = [
            "| It holds. | [`a_test`](a.rs), [`test_a_list`](a.py). Not quite. |\n",
            "| It holds. | It describes another library. |\n",
            "| **All** | 2 | 1 | 1 |\n",
        ];
        for row in rows {
            assert!(text.contains(row), "{row} is not in {text}");
        }
    }

    #[test]
    fn a_mutant_is_named_by_a_statement_and_applies_to_one_place() {
        let mutant = |from: &str| Mutant {
            name: "no-wait".to_owned(),
            file: "a.rs".to_owned(),
            after: String::new(),
            from: from.to_owned(),
            to: String::new(),
        };
        let read = |_: &str| Ok("wait(); wait(1); end();".to_owned());
        let names = [document("tests = ['a.rs::a_test'], mutants = ['no-wait']")];
        let no_names = [document("tests = ['a.rs::a_test']")];
        check_mutants(&[mutant("wait();")], &names, &read).expect("one place");
        for (mutants, documents) in [
            (vec![mutant("wait(")], &names),
            (vec![mutant("gone")], &names),
            (vec![mutant("wait();")], &no_names),
            (vec![], &names),
        ] {
            let error = check_mutants(&mutants, documents, &read).expect_err("a problem");
            assert!(error.to_string().contains("no-wait"), "{error}");
        }
        let after = |after: &str| Mutant { after: after.to_owned(), ..mutant("wait(") };
        let place = after("wait();").place("wait(); wait(1); end();");
        assert_eq!(place.expect("one place"), 8..13);
        after("end").place("wait(); end();").expect_err("nothing after it");
        let broken = "let x = self\n    .wait(\n        1,\n    );";
        let place = mutant("self.wait(1)").place(broken).expect("one place");
        assert_eq!(&broken[place], "self\n    .wait(\n        1,\n    )");
    }

    #[test]
    fn a_statement_with_tests_has_mutants_or_says_why_not() {
        let read = |_: &str| Ok(String::new());
        let checked = |fields: &str| check_mutants(&[], &[document(fields)], &read);
        checked("tests = ['a.rs::a_test'], unmutated = 'The compiler checks it.'")
            .expect("a reason");
        checked("reason = 'It describes another library.'").expect("no test");
        for fields in [
            "tests = ['a.rs::a_test']",
            "tests = ['a.rs::a_test'], mutants = ['no-wait'], unmutated = 'The compiler checks it.'",
            "reason = 'It describes another library.', unmutated = 'The compiler checks it.'",
        ] {
            let error = checked(fields).expect_err(fields).to_string();
            assert!(error.contains("says why it is unmutated"), "{error}");
        }
    }
}
