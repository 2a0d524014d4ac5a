//! Decoders of compressed data.

mod deflate;

pub(crate) use deflate::decode as deflate;

use ruzstd::StreamingDecoder;
use std::io::Read;

/// Appends `len` bytes that begin `distance` bytes before the end. They may overlap the end.
fn repeat(result: &mut Vec<u8>, distance: usize, len: usize) -> Option<()> {
    let start = result.len().checked_sub(distance)?;
    if distance == 0 {
        return None;
    }
    for index in start..start + len {
        result.push(result[index]);
    }
    Some(())
}

/// Removes the first `len` bytes of a slice and returns them.
fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (first, others) = rest.split_at_checked(len)?;
    *rest = others;
    Some(first)
}

/// Removes the first `len` bytes, at most four, and returns them as a little-endian number.
fn number(rest: &mut &[u8], len: usize) -> Option<usize> {
    let bytes = take(rest, len)?.iter().rev();
    Some(bytes.fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// Decodes an LZ4 block of at most `most` bytes.
pub(crate) fn lz4(mut rest: &[u8], most: usize) -> Option<Vec<u8>> {
    // A length of 15 continues in the next bytes, up to one below 255.
    fn length(rest: &mut &[u8], nibble: u8) -> Option<usize> {
        let mut length = usize::from(nibble);
        let mut more = nibble == 15;
        while more {
            let byte = number(rest, 1)?;
            length += byte;
            more = byte == 255;
        }
        Some(length)
    }
    let mut result = Vec::new();
    loop {
        let token = take(&mut rest, 1)?[0];
        let literals = length(&mut rest, token >> 4)?;
        result.extend_from_slice(take(&mut rest, literals)?);
        if rest.is_empty() {
            return (result.len() <= most).then_some(result);
        }
        let distance = number(&mut rest, 2)?;
        let len = length(&mut rest, token & 15)? + 4;
        // Before the bytes are appended: a short block can stand for 255 times its length.
        if result.len().saturating_add(len) > most {
            return None;
        }
        repeat(&mut result, distance, len)?;
    }
}

/// Decodes a raw Snappy block.
pub(crate) fn snappy(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut size = 0;
    for shift in (0..32).step_by(7) {
        let byte = number(&mut rest, 1)?;
        size |= (byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    let mut result = Vec::new();
    while !rest.is_empty() {
        let tag = number(&mut rest, 1)?;
        let (kind, upper) = (tag & 3, tag >> 2);
        match kind {
            0 => {
                // Up to 60 in the tag, else in the next one to four bytes. One less than the length.
                let len = match upper {
                    0..60 => upper,
                    _ => number(&mut rest, upper - 59)?,
                };
                result.extend_from_slice(take(&mut rest, len + 1)?);
            }
            1 => {
                let distance = (tag >> 5) << 8 | number(&mut rest, 1)?;
                repeat(&mut result, distance, (upper & 7) + 4)?;
            }
            _ => {
                let distance = number(&mut rest, if kind == 2 { 2 } else { 4 })?;
                repeat(&mut result, distance, upper + 1)?;
            }
        }
    }
    (result.len() == size).then_some(result)
}

/// Decodes a zstd frame of at most `most` bytes. The frame may need a window of at most 100 MiB. A checksum is not
/// verified. The decoder does not limit the length of one block, so a frame that was made for this purpose can take
/// gigabytes.
pub(crate) fn zstd(frame: &[u8], most: usize) -> Option<Vec<u8>> {
    let most = most as u64;
    let decode = || {
        let decoder = StreamingDecoder::new(frame).ok()?;
        let mut result = Vec::new();
        // The buffer grows with the bytes that exist, because the lengths in a damaged frame are arbitrary.
        let read = decoder.take(most.saturating_add(1)).read_to_end(&mut result);
        (read.ok()? as u64 <= most).then_some(result)
    };
    // The decoder panics at a block of more than 4 GiB.
    std::panic::catch_unwind(decode).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::{lz4, snappy, zstd};

    #[test]
    fn lz4_blocks_are_decoded() {
        // One literal, repeated 19 times, then five literals.
        let block = [0x1f, b'a', 1, 0, 0, 0x50, b'b', b'c', b'd', b'e', b'f'];
        assert_eq!(lz4(&block, 25).as_deref(), Some(&b"aaaaaaaaaaaaaaaaaaaabcdef"[..]));
        assert_eq!(lz4(&block, 24), None);
        assert_eq!(lz4(&block, 19), None);
        let long = [&[0xf0, 1], &[7; 16][..]].concat();
        assert_eq!(lz4(&long, 16).as_deref(), Some(&[7; 16][..]));
        for wrong in [&[][..], &[0x10], &[0x10, 1, 9, 0], &[0x10, 1, 0, 0, 0]] {
            assert_eq!(lz4(wrong, 99), None, "{wrong:?}");
        }
    }

    #[test]
    fn zstd_frames_are_decoded() {
        // A header with the length of the content, a block that repeats one byte, and the last block, of three bytes.
        let magic = 0xfd2f_b528_u32.to_le_bytes();
        let frame =
            [&magic[..], &[0x20, 8], &[5 << 3 | 2, 0, 0, b'a', 3 << 3 | 1, 0, 0], b"bcd"].concat();
        assert_eq!(zstd(&frame, 8).as_deref(), Some(&b"aaaaabcd"[..]));
        assert_eq!(zstd(&frame, 7), None);
        for length in 0..frame.len() {
            assert_eq!(zstd(&frame[..length], 8), None, "{length}");
        }
        // A window of one EiB.
        assert_eq!(zstd(&[&magic[..], &[0, 0xff]].concat(), 8), None);
    }

    #[test]
    fn snappy_blocks_are_decoded() {
        // Two literals, and copies with offsets of one, two and four bytes.
        let block = [14, 1 << 2, b'a', b'b', 1, 2, 3 << 2 | 2, 2, 0, 3 << 2 | 3, 1, 0, 0, 0];
        assert_eq!(snappy(&block).as_deref(), Some(&b"abababababbbbb"[..]));
        let long = [&[70, 60 << 2, 69], &[7; 70][..]].concat();
        assert_eq!(snappy(&long).as_deref(), Some(&[7; 70][..]));
        for wrong in [&[][..], &[2, 0, b'a'], &[1, 1 << 2, b'a'], &[4, 1, 1]] {
            assert_eq!(snappy(wrong), None, "{wrong:?}");
        }
    }
}
