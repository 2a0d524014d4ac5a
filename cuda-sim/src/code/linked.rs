//! The images that the linker of the driver creates: the header of an ELF file without sections, and the PTX
//! of the inputs. A program can store an image, and load it in another process.

use std::sync::Arc;

const START: [u8; 8] = *b"\x7fELF\x02\x01\x01\x33";
const HEADER: usize = 64;

/// Returns an image of texts, with a number that identifies it.
pub(crate) fn write(serial: u32, texts: &[Arc<str>]) -> Vec<u8> {
    let mut image = vec![0; HEADER];
    image[..8].copy_from_slice(&START);
    image[8..12].copy_from_slice(&serial.to_le_bytes());
    for text in texts {
        image.extend_from_slice(text.as_bytes());
        image.push(0);
    }
    // The table of sections is empty and ends the file.
    let end = image.len() as u64;
    image[40..48].copy_from_slice(&end.to_le_bytes());
    image
}

/// Returns the texts of such an image, or `None` if the image is another one or has no text.
pub(crate) fn texts(image: &[u8]) -> Option<Vec<&str>> {
    let (header, rest) = image.split_at_checked(HEADER)?;
    // Machine code has a number of its machine, and sections.
    let is_linked =
        header.starts_with(&START) && header[18..20] == [0; 2] && header[60..62] == [0; 2];
    if !is_linked || rest.is_empty() {
        return None;
    }
    let texts = rest.split(|byte| *byte == 0).filter(|text| !text.is_empty());
    texts.map(|text| std::str::from_utf8(text).ok()).collect()
}
