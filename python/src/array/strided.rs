//! Copies and fills of arrays whose elements lie apart, by as few calls of the driver as there can be.

use crate::error::Result;
use crate::lane::{At, Lane, Place, Rows, Word};
use cuda_safe::interop::Layout;
use pyo3::exceptions::PyMemoryError;

/// The longest way from a row to the next that the driver has.
const PITCH: isize = i32::MAX as isize;

/// Above so many calls a copy between places of the device goes over the host.
const CALLS: usize = 1024;

/// A dimension of two arrays of one shape: the extent, and the way to the next element in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dimension {
    extent: usize,
    to: isize,
    from: isize,
}

/// What is to be copied: chunks of so many bytes, in dimensions of which the last is the closest.
#[derive(Clone, Debug)]
struct Plan {
    /// Of the first chunk, from the first element of each array.
    to: isize,
    from: isize,
    bytes: usize,
    dimensions: Vec<Dimension>,
}

impl Plan {
    /// Of two layouts with one shape; none if there is nothing to do.
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

    /// Has all dimensions of the target go upwards, the longest ways first.
    fn look_ahead(&mut self) {
        for dimension in &mut self.dimensions {
            if dimension.to < 0 {
                // In range, as the layouts are.
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

    /// Makes one of dimensions that follow each other without a gap, and of elements likewise.
    fn join(&mut self) {
        let mut joined: Vec<Dimension> = Vec::with_capacity(self.dimensions.len());
        for inner in self.dimensions.drain(..) {
            let extent = inner.extent as isize;
            match joined.last_mut() {
                Some(outer)
                    if Some(outer.to) == inner.to.checked_mul(extent)
                        && Some(outer.from) == inner.from.checked_mul(extent) =>
                {
                    *outer = Dimension {
                        extent: outer.extent * inner.extent,
                        ..inner
                    };
                }
                _ => joined.push(inner),
            }
        }
        let size = self.bytes as isize;
        if let Some(last) = joined
            .last()
            .filter(|last| (last.to, last.from) == (size, size))
        {
            self.bytes *= last.extent;
            joined.pop();
        }
        self.dimensions = joined;
    }

    /// Takes the dimension that the driver copies in one call: the largest, of those that it can.
    fn take_rows(&mut self) -> Dimension {
        let bytes = self.bytes as isize;
        let fits = |way: isize| (bytes..=PITCH).contains(&way);
        let dimensions = self.dimensions.iter().enumerate();
        let largest = dimensions
            .filter(|(_, dimension)| fits(dimension.to) && fits(dimension.from))
            .max_by_key(|(_, dimension)| dimension.extent);
        match largest.map(|(index, _)| index) {
            Some(index) => self.dimensions.remove(index),
            None => Dimension {
                extent: 1,
                to: bytes,
                from: bytes,
            },
        }
    }

    fn calls(&self) -> usize {
        let extents = self.dimensions.iter().map(|dimension| dimension.extent);
        extents.fold(1, usize::saturating_mul)
    }

    /// The places of each chunk, or row of chunks.
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
                // Back to its beginning, and on with the next one.
                *index = 0;
                to -= dimension.to * dimension.extent as isize;
                from -= dimension.from * dimension.extent as isize;
            }
        }
    }
}

/// An array: where its first element is, and where the others lie.
#[derive(Clone, Copy)]
pub(crate) struct Elements<'a> {
    pub(crate) at: At,
    pub(crate) layout: &'a Layout,
}

/// Copies elements, in the order of the stream; waits if one side is the host's, or if the way goes over
/// the host because the driver would need too many calls.
///
/// # Safety
/// Both are memory for all elements of their layouts, which have one shape and size of elements, and may
/// be used in the stream's order. They do not overlap. One side at least is the device's.
pub(crate) unsafe fn copy(lane: &Lane, to: Elements<'_>, from: Elements<'_>) -> Result<()> {
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
                    // SAFETY: as above; the vector is as long as the elements of both are.
                    unsafe { lane.copy_in(address, gathered.as_ptr(), gathered.len()) }
                }
                At::Host(memory) => {
                    // SAFETY: as above; nobody else has the vector.
                    unsafe {
                        memory
                            .0
                            .copy_from_nonoverlapping(gathered.as_ptr(), gathered.len())
                    };
                    Ok(())
                }
            };
        }
        _ => {}
    }
    plan.each(|to_offset, from_offset| {
        let (to, from) = (to.at.offset(to_offset), from.at.offset(from_offset));
        if rows.extent > 1 {
            let to = Place {
                at: to,
                pitch: rows.to.unsigned_abs(),
            };
            let from = Place {
                at: from,
                pitch: rows.from.unsigned_abs(),
            };
            let rows = Rows {
                bytes,
                count: rows.extent,
            };
            // SAFETY: the caller's promise: the plan has the places of the elements, and no others.
            return unsafe { lane.copy_rows(to, from, rows) };
        }
        match (to, from) {
            // SAFETY: as above, for all of these.
            (At::Device(to), At::Device(from)) => unsafe { lane.copy(to, from, bytes) },
            // SAFETY: as above.
            (At::Device(to), At::Host(from)) => unsafe { lane.copy_in(to, from.0, bytes) },
            // SAFETY: as above.
            (At::Host(to), At::Device(from)) => unsafe { lane.copy_out(to.0, from, bytes) },
            (At::Host(_), At::Host(_)) => Ok(()),
        }
    })
}

/// So many bytes, all 0; or an exception, as arrays may be larger than the host's memory.
pub(crate) fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    let mut zeroed = Vec::new();
    zeroed
        .try_reserve_exact(bytes)
        .map_err(|_| PyMemoryError::new_err(format!("{bytes} bytes of the host")))?;
    zeroed.resize(bytes, 0);
    Ok(zeroed)
}

/// Elements of the device in C order, in host memory: all that lies between them comes along.
///
/// # Safety
/// It is memory of the device for all elements, and what lies between them is of the same allocation.
unsafe fn gather(lane: &Lane, address: u64, layout: &Layout) -> Result<Vec<u8>> {
    let contiguous = Layout::c_contiguous(layout.shape(), layout.item_size())?;
    let mut gathered = zeroed(contiguous.byte_range().end.unsigned_abs())?;
    let range = layout.byte_range();
    let mut all = zeroed(range.start.abs_diff(range.end))?;
    let start = address.wrapping_add_signed(range.start as i64);
    // SAFETY: the caller's promise; the vector is as long.
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

/// Sets all elements to one, given as its bytes, in the order of the stream.
///
/// # Safety
/// It is memory of the device for all elements, which may be written in the stream's order; the item is
/// as long as an element.
pub(crate) unsafe fn fill(lane: &Lane, address: u64, layout: &Layout, item: &[u8]) -> Result<()> {
    let aligned = |to: usize| {
        address % to as u64 == 0
            && layout
                .strides()
                .iter()
                .all(|stride| stride.unsigned_abs() % to == 0)
            && item.len() % to == 0
    };
    let repeats = |every: usize| item.chunks(every).all(|chunk| chunk == &item[..every]);
    // All words of the element are one: it is as if there were as many elements.
    if let Some(size) = [1, 2, 4]
        .into_iter()
        .find(|size| aligned(*size) && repeats(*size))
    {
        let (mut shape, mut strides) = (layout.shape().to_vec(), layout.strides().to_vec());
        shape.push(item.len() / size);
        strides.push(size as isize);
        let words = Layout::strided(&shape, &strides, size)?;
        // SAFETY: the caller's promise; these are the same bytes.
        return unsafe { fill_words(lane, address, &words, &item[..size]) };
    }
    let size = [4, 2, 1]
        .into_iter()
        .find(|size| aligned(*size))
        .unwrap_or(1);
    for (index, word) in item.chunks(size).enumerate() {
        let words = Layout::strided(layout.shape(), layout.strides(), size)?;
        let address = address + (index * size) as u64;
        // SAFETY: the caller's promise; it is one word of each element.
        unsafe { fill_words(lane, address, &words, word) }?;
    }
    Ok(())
}

/// # Safety
/// As for `fill`, with elements of 1, 2 or 4 bytes that are aligned.
unsafe fn fill_words(lane: &Lane, address: u64, layout: &Layout, word: &[u8]) -> Result<()> {
    // What stands for several elements is written once.
    let (shape, strides): (Vec<usize>, Vec<isize>) = layout
        .shape()
        .iter()
        .zip(layout.strides())
        .filter(|(_, stride)| **stride != 0)
        .unzip();
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
        // SAFETY: the caller's promise: the plan has the places of the words, and no others.
        unsafe { lane.fill(at, word, words, rows.extent, pitch) }
    })
}
