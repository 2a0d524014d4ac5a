//! PTX.

use cuda_ptx::syntax::parse;

/// A text that parses prints to a text that parses, and that prints to itself. The error of another text
/// has a place in the text.
pub(crate) fn ptx(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match parse(text) {
        Ok(module) => {
            let printed = module.to_string();
            let again = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
            assert_eq!(again.to_string(), printed);
        }
        Err(error) => {
            let line = text.split('\n').nth(error.position.line as usize - 1);
            let columns = line.expect("the line exists").len() + 1;
            assert!((1..=columns).contains(&(error.position.column as usize)), "{error}");
            assert!(!error.expected.is_empty() && !error.found.is_empty(), "{error}");
        }
    }
}
