//! Memset nodes.

use crate::exec::Work;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FillNode {
    pub(crate) at: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    /// Size of an element in bytes: 1, 2 or 4.
    pub(crate) element: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// The context that the caller named.
    pub(crate) context: usize,
}

impl FillNode {
    /// Returns the node of a 1-D fill.
    pub(crate) fn line(at: u64, pattern: &[u8], count: usize) -> Self {
        let mut value = [0; 4];
        value[..pattern.len()].copy_from_slice(pattern);
        Self {
            at,
            pitch: 0,
            value: u32::from_le_bytes(value),
            element: pattern.len(),
            width: count,
            height: 1,
            context: 0,
        }
    }

    pub(crate) fn is_plane(&self) -> bool {
        self.height > 1
    }

    /// Returns the address and the length of each row, in bytes.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u64, usize)> {
        let len = self.width.saturating_mul(self.element);
        let between = self.pitch as u64;
        let start = move |row: usize| self.at.saturating_add(between.saturating_mul(row as u64));
        (0..self.height).map(move |row| (start(row), len))
    }

    pub(crate) fn work(&self) -> Work {
        let pattern = self.value.to_le_bytes()[..self.element].to_vec();
        let fill = |at| Work::Fill { at, pattern: pattern.clone(), count: self.width };
        match self.height {
            1 => fill(self.at),
            _ => Work::All(self.rows().map(|(at, _)| fill(at)).collect()),
        }
    }
}
