//! Parser for the items of a PTX module: variables, and functions that the module imports.

use crate::code::{Limits, Variable};

/// An item at the top level of a module: the text up to its `;`, or up to its body.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) head: &'a str,
    pub(super) body: Option<&'a str>,
}

/// Returns the items of a text without comments, or `None` if one does not end.
pub(super) fn items(text: &str) -> Option<Vec<Item<'_>>> {
    let mut items = Vec::new();
    let (mut start, mut depth, mut body) = (0, 0usize, None);
    for (at, c) in text.char_indices() {
        match c {
            '{' => {
                // The braces of initial values are part of a declaration.
                if depth == 0 && !text[start..at].contains('=') {
                    body = Some(at + 1);
                }
                depth += 1;
            }
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth != 0 {
                    continue;
                }
                if let Some(begin) = body.take() {
                    items.push(Item {
                        head: text[start..begin - 1].trim(),
                        body: Some(&text[begin..at]),
                    });
                    start = at + 1;
                }
            }
            ';' if depth == 0 => {
                let head = text[start..at].trim();
                items.push(Item { head, body: None });
                start = at + 1;
            }
            _ => {}
        }
    }
    let rest = &text[start..];
    (depth == 0 && !rest.contains(".entry")).then_some(items)
}

/// Parses a declaration such as `.align 4 .u32 table[2] = {1, 2}`, with any words before it.
pub(super) fn variable(text: &str) -> Option<Variable> {
    let (declared, values) = match text.split_once('=') {
        Some((declared, values)) => (declared, values),
        None => (text, ""),
    };
    let declared = declared.trim_end();
    let (words, extents) = declared.split_once('[').unwrap_or((declared, ""));
    let words: Vec<&str> = words.split_whitespace().collect();
    let name = words.last().filter(|name| !name.starts_with('.'))?;
    let mut lanes = 1;
    let mut element = None;
    for word in &words {
        match *word {
            ".v2" => lanes = 2,
            ".v4" => lanes = 4,
            word => element = element.or_else(|| bits(word)),
        }
    }
    let element = element? / 8 * lanes;
    let align = words.iter().position(|word| *word == ".align");
    let align = align.and_then(|at| words.get(at + 1)?.parse().ok());
    let mut size = element;
    for extent in extents.split(']').map(|it| it.trim().trim_start_matches('[')) {
        if !extent.is_empty() {
            size = size.checked_mul(extent.trim().parse().ok()?)?;
        }
    }
    // The launch determines the size of `.extern .shared .b8 all[]`.
    if extents.starts_with(']') {
        size = 0;
    }
    Some(Variable {
        name: (*name).to_owned(),
        size,
        align: align.unwrap_or(element).max(1),
        initial: initial(values, element / lanes, size),
        managed: text.contains(".managed"),
    })
}

/// Returns the number of bits of a PTX type such as `.u32`, `.b8` or `.f16x2`.
fn bits(word: &str) -> Option<usize> {
    let name = word.strip_prefix('.')?;
    let number = name.strip_prefix(['b', 'u', 's', 'f'])?;
    match number.split_once('x') {
        Some((number, twice)) => Some(number.parse::<usize>().ok()? * twice.parse::<usize>().ok()?),
        None => number.parse().ok(),
    }
}

/// Returns the bytes of initial values; zeros where a value is missing or is not a number.
fn initial(values: &str, element: usize, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let words = values.split(['{', '}', ',']).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        let number = number(word).unwrap_or(0);
        bytes.extend(number.to_le_bytes().iter().take(element));
    }
    bytes.truncate(size);
    bytes
}

fn number(word: &str) -> Option<u64> {
    if let Some(hex) =
        ["0x", "0X", "0f", "0F", "0d", "0D"].iter().find_map(|prefix| word.strip_prefix(prefix))
    {
        return u64::from_str_radix(hex, 16).ok();
    }
    let signed = word.parse::<i64>().ok();
    let bits = signed.map(|number| u64::from_ne_bytes(number.to_ne_bytes()));
    bits.or_else(|| word.parse().ok())
}

/// Returns the name of a `.func`, and whether it is imported.
pub(super) fn function(item: &Item<'_>) -> Option<(String, bool)> {
    let (before, rest) = item.head.split_once(".func")?;
    let mut rest = rest.trim_start();
    if let Some(results) = rest.strip_prefix('(') {
        rest = results.split_once(')')?.1.trim_start();
    }
    let end = rest.find(|c: char| !is_of_a_name(c)).unwrap_or(rest.len());
    let wanted = item.body.is_none() && before.trim_end().ends_with(".extern");
    (end != 0).then(|| (rest[..end].to_owned(), wanted))
}

pub(super) fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

/// Returns the limits that the directives after a kernel's parameters, its body and the module's shared
/// variables give.
pub(super) fn limits(head: &str, body: &str, shared: &[Variable], target: u32) -> Limits {
    let after = head.rsplit_once(')').map_or(head, |(_, after)| after);
    let extents = |directive: &str| -> Option<[u32; 3]> {
        let (_, rest) = after.split_once(directive)?;
        let rest = rest.split('.').next().unwrap_or_default();
        let mut extents = [1; 3];
        for (extent, word) in extents.iter_mut().zip(rest.split(',')) {
            *extent = word.trim().parse().ok()?;
        }
        Some(extents)
    };
    let threads = extents(".maxntid").or_else(|| extents(".reqntid"));
    let own = body
        .split(';')
        .filter(|text| text.contains(".shared"))
        .flat_map(|text| text.split(['{', '}']))
        .map(str::trim)
        .filter(|statement| statement.starts_with(".shared"))
        .filter_map(variable);
    let of_module = shared.iter().filter(|its| mentions(body, &its.name)).cloned();
    let mut bytes = 0usize;
    for its in of_module.chain(own) {
        bytes = bytes.next_multiple_of(its.align).saturating_add(its.size);
    }
    Limits {
        registers: 0,
        local: 0,
        constant: 0,
        threads: threads.map_or(1024, |its| its.iter().product()),
        shared: u32::try_from(bytes).unwrap_or(u32::MAX),
        cluster: extents(".reqnctapercluster").unwrap_or([0; 3]),
        target,
    }
}

fn mentions(body: &str, name: &str) -> bool {
    body.split(|c| !is_of_a_name(c)).any(|word| word == name)
}

/// Returns the target of the module: 52 for `.target sm_52`.
pub(super) fn target(text: &str) -> u32 {
    let number = text.split_once("sm_").map_or("", |(_, rest)| rest);
    let end = number.find(|c: char| !c.is_ascii_digit());
    number[..end.unwrap_or(number.len())].parse().unwrap_or(0)
}
