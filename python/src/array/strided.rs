//! Copies and fills of strided arrays with as few driver calls as possible.

use crate::error::Result;
use crate::stream_handle::{At, Place, Rows, StreamHandle, Word};
use cuda_safe::interop::Layout;
use pyo3::exceptions::PyMemoryError;

/// The driver's maximum pitch.
const PITCH: isize = i32::MAX as isize;

/// A copy between device arrays that needs more calls than this goes through host memory.
const CALLS: usize = 1024;

/// A dimension of two arrays with the same shape: the extent, and the stride in each array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dimension {
    extent: usize,
    to: isize,
    from: isize,
}

/// A copy of chunks of `bytes`, arranged in dimensions of which the last is the innermost.
#[derive(Clone, Debug)]
struct Plan {
    /// The offset of the first chunk in each array, from its first element.
    to: isize,
    from: isize,
    bytes: usize,
    dimensions: Vec<Dimension>,
}

impl Plan {
    /// Creates a plan for two layouts with the same shape, or returns None if they are empty.
    fn new(to: &Layout, from: &Layout) -> Option<Self> {
        if to.is_empty() || to.item_size() == 0 {
            return None;
        }
        let strides = to.strides().iter().zip(from.strides());
        let dimensions = to.shape().iter().zip(strides);
        let mut plan = Self {
            to: 0,
            from: 0,
            bytes: to.item_size(),
            dimensions: dimensions
                .map(|(&extent, (&to, &from))| Dimension { extent, to, from })
                .filter(|dimension| dimension.extent > 1)
                .collect(),
        };
        plan.look_ahead();
        plan.join();
        Some(plan)
    }

    /// Makes all strides of the target positive, and sorts the dimensions by decreasing strides.
    fn look_ahead(&mut self) {
        for dimension in &mut self.dimensions {
            if dimension.to < 0 {
                // This cannot overflow, because the layouts are valid.
                let last = dimension.extent as isize - 1;
                self.to += last * dimension.to;
                self.from += last * dimension.from;
                dimension.to = -dimension.to;
                dimension.from = -dimension.from;
            }
        }
        self.dimensions.sort_by_key(|dimension| {
            let Dimension { to, from, .. } = *dimension;
            std::cmp::Reverse((to, from.unsigned_abs()))
        });
    }

    /// Merges dimensions that are contiguous, and contiguous elements into larger chunks.
    fn join(&mut self) {
        let mut joined: Vec<Dimension> = Vec::with_capacity(self.dimensions.len());
        for inner in self.dimensions.drain(..) {
            let extent = inner.extent as isize;
            match joined.last_mut() {
                Some(outer)
                    if Some(outer.to) == inner.to.checked_mul(extent)
                        && Some(outer.from) == inner.from.checked_mul(extent) =>
                {
                    *outer = Dimension { extent: outer.extent * inner.extent, ..inner };
                }
                _ => joined.push(inner),
            }
        }
        let size = self.bytes as isize;
        if let Some(last) = joined.last().filter(|last| (last.to, last.from) == (size, size)) {
            self.bytes *= last.extent;
            joined.pop();
        }
        self.dimensions = joined;
    }

    /// Removes the dimension that one driver call copies: the largest one that fits the driver's
    /// limits.
    fn take_rows(&mut self) -> Dimension {
        let bytes = self.bytes as isize;
        let fits = |way: isize| (bytes..=PITCH).contains(&way);
        let dimensions = self.dimensions.iter().enumerate();
        let largest = dimensions
            .filter(|(_, dimension)| fits(dimension.to) && fits(dimension.from))
            .max_by_key(|(_, dimension)| dimension.extent);
        match largest.map(|(index, _)| index) {
            Some(index) => self.dimensions.remove(index),
            None => Dimension { extent: 1, to: bytes, from: bytes },
        }
    }

    fn calls(&self) -> usize {
        let extents = self.dimensions.iter().map(|dimension| dimension.extent);
        extents.fold(1, usize::saturating_mul)
    }

    /// Calls `f` with the offsets of each chunk, or row of chunks.
    fn each(&self, mut f: impl FnMut(isize, isize) -> Result<()>) -> Result<()> {
        let mut index = vec![0; self.dimensions.len()];
        let (mut to, mut from) = (self.to, self.from);
        loop {
            f(to, from)?;
            let mut dimensions = self.dimensions.iter().zip(&mut index).rev();
            loop {
                let Some((dimension, index)) = dimensions.next() else {
                    return Ok(());
                };
                *index += 1;
                to += dimension.to;
                from += dimension.from;
                if *index < dimension.extent {
                    break;
                }
                // Reset this dimension, and advance the next outer one.
                *index = 0;
                to -= dimension.to * dimension.extent as isize;
                from -= dimension.from * dimension.extent as isize;
            }
        }
    }
}

/// The elements of an array: the address of the first one, and the layout.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a> {
    pub(crate) at: At,
    pub(crate) layout: &'a Layout,
}

/// Copies elements in stream order. Waits if one side is host memory, or if the copy goes through
/// host memory because it would need too many driver calls.
///
/// # Safety
/// Both must have memory for all elements of their layouts, which have the same shape and element
/// size. They may be used in stream order and must not overlap. At least one side must be device
/// memory.
pub(crate) unsafe fn copy(lane: &StreamHandle, to: Elements<'_>, from: Elements<'_>) -> Result<()> {
    let Some(mut plan) = Plan::new(to.layout, from.layout) else {
        return Ok(());
    };
    let rows = plan.take_rows();
    let (bytes, calls) = (plan.bytes, plan.calls());
    match from.at {
        At::Device(address) if calls > CALLS && to.layout.is_c_contiguous() => {
            // SAFETY: the caller's promise.
            let gathered = unsafe { gather(lane, address, from.layout) }?;
            return match to.at {
                At::Device(address) => {
                    // SAFETY: see above; the vector has the size of all elements.
                    unsafe { lane.copy_in(address, gathered.as_ptr(), gathered.len()) }
                }
                At::Host(memory) => {
                    // SAFETY: see above; no other code has access to the vector.
                    unsafe { memory.0.copy_from_nonoverlapping(gathered.as_ptr(), gathered.len()) };
                    Ok(())
                }
            };
        }
        _ => {}
    }
    plan.each(|to_offset, from_offset| {
        let (to, from) = (to.at.offset(to_offset), from.at.offset(from_offset));
        if rows.extent > 1 {
            let to = Place { at: to, pitch: rows.to.unsigned_abs() };
            let from = Place { at: from, pitch: rows.from.unsigned_abs() };
            let rows = Rows { bytes, count: rows.extent };
            // SAFETY: the caller's promise; the plan contains only the offsets of the elements.
            return unsafe { lane.copy_rows(to, from, rows) };
        }
        match (to, from) {
            // SAFETY: see above; this holds for all of these calls.
            (At::Device(to), At::Device(from)) => unsafe { lane.copy(to, from, bytes) },
            // SAFETY: as above.
            (At::Device(to), At::Host(from)) => unsafe { lane.copy_in(to, from.0, bytes) },
            // SAFETY: as above.
            (At::Host(to), At::Device(from)) => unsafe { lane.copy_out(to.0, from, bytes) },
            (At::Host(_), At::Host(_)) => Ok(()),
        }
    })
}

/// Returns a vector of zeros, or an exception, because arrays may be larger than host memory.
pub(crate) fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    let mut zeroed = Vec::new();
    zeroed.try_reserve_exact(bytes).map_err(|_| {
        PyMemoryError::new_err(format!("cannot allocate {bytes} bytes of host memory"))
    })?;
    zeroed.resize(bytes, 0);
    Ok(zeroed)
}

/// Copies device elements to host memory in C order. It copies the whole range, including the gaps.
///
/// # Safety
/// The address range of the layout must be device memory of one allocation.
unsafe fn gather(lane: &StreamHandle, address: u64, layout: &Layout) -> Result<Vec<u8>> {
    let contiguous = Layout::c_contiguous(layout.shape(), layout.item_size())?;
    let mut gathered = zeroed(contiguous.byte_range().end.unsigned_abs())?;
    let range = layout.byte_range();
    let mut all = zeroed(range.start.abs_diff(range.end))?;
    let start = address.wrapping_add_signed(range.start as i64);
    // SAFETY: the caller's promise; the vector has the length of the range.
    unsafe { lane.copy_out(all.as_mut_ptr(), start, all.len()) }?;
    if let Some(plan) = Plan::new(&contiguous, layout) {
        plan.each(|to, from| {
            let (to, from) = (to.unsigned_abs(), (from - range.start).unsigned_abs());
            gathered[to..to + plan.bytes].copy_from_slice(&all[from..from + plan.bytes]);
            Ok(())
        })?;
    }
    Ok(gathered)
}

/// Sets all elements to the value with the bytes `item`, in stream order.
///
/// # Safety
/// The layout must be device memory that may be written in stream order, and `item` must have the
/// size of an element.
pub(crate) unsafe fn fill(
    lane: &StreamHandle,
    address: u64,
    layout: &Layout,
    item: &[u8],
) -> Result<()> {
    let aligned = |to: usize| {
        address % to as u64 == 0
            && layout.strides().iter().all(|stride| stride.unsigned_abs() % to == 0)
            && item.len() % to == 0
    };
    let repeats = |every: usize| item.chunks(every).all(|chunk| chunk == &item[..every]);
    // All words of an element are equal, so the fill can treat them as separate elements.
    if let Some(size) = [1, 2, 4].into_iter().find(|size| aligned(*size) && repeats(*size)) {
        let (mut shape, mut strides) = (layout.shape().to_vec(), layout.strides().to_vec());
        shape.push(item.len() / size);
        strides.push(size as isize);
        let words = Layout::strided(&shape, &strides, size)?;
        // SAFETY: the caller's promise; the new layout has the same bytes.
        return unsafe { fill_words(lane, address, &words, &item[..size]) };
    }
    let size = [4, 2, 1].into_iter().find(|size| aligned(*size)).unwrap_or(1);
    for (index, word) in item.chunks(size).enumerate() {
        let words = Layout::strided(layout.shape(), layout.strides(), size)?;
        let address = address + (index * size) as u64;
        // SAFETY: the caller's promise; this is one word of each element.
        unsafe { fill_words(lane, address, &words, word) }?;
    }
    Ok(())
}

/// # Safety
/// See `fill`; the elements must be aligned and have 1, 2 or 4 bytes.
unsafe fn fill_words(
    lane: &StreamHandle,
    address: u64,
    layout: &Layout,
    word: &[u8],
) -> Result<()> {
    // Elements that overlap through a stride of 0 are written once.
    let (shape, strides): (Vec<usize>, Vec<isize>) =
        layout.shape().iter().zip(layout.strides()).filter(|(_, stride)| **stride != 0).unzip();
    if layout.is_empty() {
        return Ok(());
    }
    let layout = Layout::strided(&shape, &strides, layout.item_size())?;
    let Some(mut plan) = Plan::new(&layout, &layout) else {
        return Ok(());
    };
    let rows = plan.take_rows();
    let words = plan.bytes / word.len();
    let word = match *word {
        [a] => Word::One(a),
        [a, b] => Word::Two(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => Word::Four(u32::from_ne_bytes([a, b, c, d])),
        _ => return Ok(()),
    };
    plan.each(|to, _| {
        let at = address.wrapping_add_signed(to as i64);
        let pitch = rows.to.unsigned_abs();
        // SAFETY: the caller's promise; the plan contains only the offsets of the words.
        unsafe { lane.fill(at, word, words, rows.extent, pitch) }
    })
}
