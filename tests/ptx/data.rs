//! The file of recorded results.
//!
//! The first line says where the results are from. Then each form has a line with its name, a hash of
//! its code and operands, and either the number of the bytes that follow it or the error of the
//! compiler, separated by tabs. The bytes are those of the results: for each result the lowest byte of
//! all threads, then the next byte, so that the file compresses well. The texels of a surface or the memory of a tensor
//! follow.

use std::collections::HashMap;

use crate::form::Form;
use crate::operands;

/// What was recorded of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The results as the file has them.
    Results(Vec<u8>),
    /// The first error in the compiler's log.
    Rejected(String),
}

/// A recorded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The hash of the code and of the operands.
    pub(crate) hash: u64,
    pub(crate) outcome: Outcome,
}

/// A file: where the results are from, and the forms by name.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) origin: String,
    pub(crate) records: HashMap<String, Record>,
}

/// Returns the hash of what decides the results of a form.
pub(crate) fn hash(form: &Form, input: &[u8]) -> u64 {
    let texts = [&form.code, &form.declarations, &form.directives].map(|text| text.as_bytes());
    let mut shape = format!("{:?} {:?} {:?}", form.operands, form.results, form.shape);
    if let Some(object) = &form.object {
        shape += &format!(" {object:?}");
    }
    if let Some(tensor) = &form.tensor {
        shape += &format!(" {tensor:?}");
    }
    let parts = texts.into_iter().chain([shape.as_bytes(), input]);
    parts.flatten().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Reads a file.
///
/// # Errors
/// Says what is wrong, and in which form.
pub(crate) fn read(bytes: &[u8]) -> Result<Recording, String> {
    let first = bytes.iter().position(|byte| *byte == b'\n').ok_or("no first line")?;
    let origin = String::from_utf8_lossy(&bytes[..first]).into_owned();
    let mut rest = &bytes[first + 1..];
    let mut records = HashMap::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or("a line without an end")?;
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
        let fields: Vec<&str> = head.splitn(3, '\t').collect();
        let [name, hash, last] = fields[..] else {
            return Err(format!("a line without three fields: {head}"));
        };
        let hash = u64::from_str_radix(hash, 16).map_err(|error| format!("{name}: {error}"))?;
        let outcome = match last.parse::<usize>() {
            Ok(count) => {
                let (results, after) = rest
                    .split_at_checked(count)
                    .ok_or_else(|| format!("{name}: {count} bytes were expected"))?;
                rest = after;
                Outcome::Results(results.to_vec())
            }
            Err(_) => Outcome::Rejected(last.to_owned()),
        };
        if records.insert(name.to_owned(), Record { hash, outcome }).is_some() {
            return Err(format!("{name} is recorded twice"));
        }
    }
    Ok(Recording { origin, records })
}

/// Returns the bytes of a record.
pub(crate) fn write(name: &str, record: &Record) -> Vec<u8> {
    let hash = record.hash;
    match &record.outcome {
        Outcome::Results(results) => {
            let mut bytes = format!("{name}\t{hash:016x}\t{}\n", results.len()).into_bytes();
            bytes.extend(results);
            bytes
        }
        Outcome::Rejected(error) => format!("{name}\t{hash:016x}\t{error}\n").into_bytes(),
    }
}

/// Converts the memory that a kernel wrote, 8 bytes for each result, to the bytes of a record.
pub(crate) fn pack(form: &Form, memory: &[u8]) -> Vec<u8> {
    let row = 8 * form.results.len();
    let mut bytes = Vec::new();
    for (index, kind) in form.results.iter().enumerate() {
        for byte in 0..kind.bytes() {
            bytes.extend(memory.chunks_exact(row).map(|row| row[8 * index + byte]));
        }
    }
    bytes
}

/// Returns the bytes of the results, and those of a surface or tensor after the launch.
pub(crate) fn parts<'a>(form: &Form, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    bytes.split_at(bytes.len().saturating_sub(form.written()))
}

/// Returns the results of each thread from the bytes of a record. `None` if the number of bytes is not
/// that of the form.
pub(crate) fn unpack(form: &Form, bytes: &[u8], threads: usize) -> Option<Vec<Vec<u64>>> {
    let mut rows = vec![vec![0; form.results.len()]; threads];
    let mut planes = bytes.chunks_exact(threads);
    for (index, kind) in form.results.iter().enumerate() {
        for byte in 0..kind.bytes() {
            for (row, value) in rows.iter_mut().zip(planes.next()?) {
                row[index] |= u64::from(*value) << (8 * byte);
            }
        }
    }
    (planes.next().is_none() && planes.remainder().is_empty()).then_some(rows)
}

/// Returns the operands of a form and their hash.
pub(crate) fn operands(form: &Form) -> (Vec<Vec<u64>>, Vec<u8>, u64) {
    let rows = operands::rows(form);
    let input = operands::input(&rows);
    let hash = hash(form, &input);
    (rows, input, hash)
}
