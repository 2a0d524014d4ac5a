//! The format of an entry on disk.

use super::key::Key;
use crate::architecture::Target;
use crate::compiled::Compiled;
use std::collections::BTreeMap;

/// The first bytes of an entry, with the version of the format.
const MAGIC: &[u8; 8] = b"cunvrtc1";

const CHECKSUM: usize = 32;

/// Returns an entry: the magic bytes, a checksum of the key and the rest, and the fields.
#[inline]
pub(super) fn encode(key: &Key, compiled: &Compiled) -> Vec<u8> {
    let Compiled { target: _, ptx, cubin, lto_ir, log, names } = compiled;
    let mut bytes = MAGIC.to_vec();
    bytes.resize(MAGIC.len() + CHECKSUM, 0);
    optional(&mut bytes, ptx.as_ref().map(String::as_bytes));
    optional(&mut bytes, cubin.as_deref());
    optional(&mut bytes, lto_ir.as_deref());
    field(&mut bytes, log.as_bytes());
    bytes.extend((names.len() as u64).to_le_bytes());
    for (expression, name) in names {
        field(&mut bytes, expression.as_bytes());
        field(&mut bytes, name.as_bytes());
    }
    let (head, rest) = bytes.split_at_mut(MAGIC.len() + CHECKSUM);
    head[MAGIC.len()..].copy_from_slice(&checksum(key, rest));
    bytes
}

#[inline]
fn field(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.extend((value.len() as u64).to_le_bytes());
    bytes.extend(value);
}

#[inline]
fn optional(bytes: &mut Vec<u8>, value: Option<&[u8]>) {
    bytes.push(u8::from(value.is_some()));
    field(bytes, value.unwrap_or_default());
}

/// The key is a part of the checksum, so that an entry under the name of another one is damaged.
#[inline]
fn checksum(key: &Key, fields: &[u8]) -> [u8; CHECKSUM] {
    *blake3::keyed_hash(&key.0, fields).as_bytes()
}

/// Returns the contents of an entry, or `None` if it is damaged.
#[inline]
pub(super) fn decode(key: &Key, target: Target, bytes: &[u8]) -> Option<Compiled> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (sum, fields) = rest.split_at_checked(CHECKSUM)?;
    if sum != checksum(key, fields) {
        return None;
    }
    let mut reader = Reader(fields);
    let ptx = reader.optional()?.map(text);
    let cubin = reader.optional()?.map(<[u8]>::to_vec);
    let lto_ir = reader.optional()?.map(<[u8]>::to_vec);
    let log = text(reader.field()?)?;
    let mut names = BTreeMap::new();
    for _ in 0..reader.number()? {
        names.insert(text(reader.field()?)?, text(reader.field()?)?);
    }
    let ptx = match ptx {
        Some(ptx) => Some(ptx?),
        None => None,
    };
    reader.0.is_empty().then_some(Compiled { target, ptx, cubin, lto_ir, log, names })
}

#[inline]
fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

/// The fields that were not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    #[inline]
    fn field(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        self.take(count)
    }

    #[inline]
    fn optional(&mut self) -> Option<Option<&'a [u8]>> {
        let is_some = self.take(1)? == [1];
        let value = self.field()?;
        Some(is_some.then_some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECKSUM, MAGIC, checksum, decode, encode};
    use crate::cache::key::Key;
    use crate::compiled::Compiled;
    use crate::{Architecture, Target};
    use std::collections::BTreeMap;

    const KEY: Key = Key([7; 32]);
    const TARGET: Target = Target::Cubin(Architecture::new(9, 0));

    fn code() -> Compiled {
        Compiled {
            target: TARGET,
            ptx: Some(".version 8.0".to_owned()),
            cubin: Some(vec![1, 2, 3]),
            lto_ir: None,
            log: "a warning".to_owned(),
            names: BTreeMap::from([("f<int>".to_owned(), "_Z1fIiE".to_owned())]),
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        assert_eq!(decode(&KEY, TARGET, &encode(&KEY, &code())), Some(code()));
    }

    #[test]
    fn an_entry_with_any_changed_or_missing_byte_is_damaged() {
        let entry = encode(&KEY, &code());
        for at in 0..entry.len() {
            let mut changed = entry.clone();
            changed[at] ^= 1;
            assert_eq!(decode(&KEY, TARGET, &changed), None, "byte {at}");
            assert_eq!(decode(&KEY, TARGET, &entry[..at]), None, "{at} bytes");
        }
        assert_eq!(decode(&Key([8; 32]), TARGET, &entry), None, "another key");
        assert_eq!(decode(&KEY, TARGET, &[entry, vec![0]].concat()), None, "one byte more");
    }

    #[test]
    fn absurd_lengths_with_a_right_checksum_are_damaged() {
        for fields in [vec![0xff; 40], vec![1; 9], [vec![0; 27], vec![0xff; 16]].concat()] {
            let entry = [MAGIC.as_slice(), &checksum(&KEY, &fields), &fields].concat();
            assert_eq!(entry.len(), MAGIC.len() + CHECKSUM + fields.len());
            assert_eq!(decode(&KEY, TARGET, &entry), None);
        }
    }
}
