//! Arguments in the form that the driver takes: a copy of each value, and an array of pointers to the
//! copies.

use core::ffi::c_void;
use std::mem::MaybeUninit;

/// Copies of the arguments of a kernel, in the order of its parameters.
///
/// [`INLINE_VALUES`] values of together [`INLINE_WORDS`] words are stored without an allocation.
pub(super) struct PackedArguments {
    /// The values. Each one starts at a word. A value may contain padding, which is not initialized.
    words: InlineVec<Word, INLINE_WORDS>,
    /// The size of each value, in bytes.
    sizes: InlineVec<usize, INLINE_VALUES>,
}

/// The alignment of a value. No scalar of Rust has a larger one.
type Word = MaybeUninit<u128>;

const INLINE_VALUES: usize = 16;
/// As many words as 16 scalars and a `CUtensorMap`.
const INLINE_WORDS: usize = 24;

impl PackedArguments {
    #[inline]
    pub(super) fn new() -> Self {
        Self {
            words: InlineVec::new([const { Word::uninit() }; INLINE_WORDS]),
            sizes: InlineVec::new([0; INLINE_VALUES]),
        }
    }

    /// Returns the size of each argument, in bytes.
    #[inline]
    pub(super) fn sizes(&self) -> &[usize] {
        self.sizes.as_slice()
    }

    /// Adds a copy of a value.
    #[inline]
    pub(super) fn push<T: Copy>(&mut self, value: T) {
        let place = self.reserve(size_of::<T>()).as_mut_ptr().cast::<T>();
        // SAFETY: the place has at least the size of `T`, and an alignment is not required.
        unsafe { place.write_unaligned(value) };
    }

    /// Adds a value by its bytes.
    #[inline]
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        let place = self.reserve(bytes.len()).as_mut_ptr().cast::<u8>();
        // SAFETY: the place has at least as many bytes, and nothing else refers to it.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Adds a value of `size` bytes, and returns the words for it.
    #[inline]
    fn reserve(&mut self, size: usize) -> &mut [Word] {
        self.sizes.extend(1, size);
        self.words.extend(words_of(size), Word::uninit())
    }

    /// Calls `launch` with a pointer to each value.
    #[inline]
    pub(super) fn with_pointers<R>(&self, launch: impl FnOnce(&mut [*mut c_void]) -> R) -> R {
        let (mut inline, mut heap) = ([std::ptr::null_mut(); INLINE_VALUES], Vec::new());
        let pointers = match inline.get_mut(..self.sizes().len()) {
            Some(pointers) => pointers,
            None => {
                heap.resize(self.sizes().len(), std::ptr::null_mut());
                heap.as_mut_slice()
            }
        };
        let mut word = self.words.as_slice().as_ptr();
        for (pointer, size) in pointers.iter_mut().zip(self.sizes()) {
            // The driver's type is `void **`, but it only reads the values.
            *pointer = word.cast_mut().cast();
            word = word.wrapping_add(words_of(*size));
        }
        launch(pointers)
    }
}

/// Returns the number of words of a value of `size` bytes.
#[inline]
const fn words_of(size: usize) -> usize {
    size.div_ceil(size_of::<Word>())
}

/// A vector that stores up to `N` elements without an allocation.
struct InlineVec<T, const N: usize> {
    len: usize,
    /// The elements, if there are at most `N`.
    inline: [T; N],
    /// The elements, if there are more than `N`.
    heap: Vec<T>,
}

impl<T: Copy, const N: usize> InlineVec<T, N> {
    /// Returns an empty vector, which replaces the elements of `inline` by its own.
    #[inline]
    fn new(inline: [T; N]) -> Self {
        Self { len: 0, inline, heap: Vec::new() }
    }

    #[inline]
    fn as_slice(&self) -> &[T] {
        self.inline.get(..self.len).unwrap_or(&self.heap)
    }

    /// Adds `count` elements and returns them.
    #[inline]
    fn extend(&mut self, count: usize, element: T) -> &mut [T] {
        let start = self.len;
        self.len += count;
        if self.len > N {
            return self.extend_heap(start, element);
        }
        let added = &mut self.inline[start..self.len];
        added.fill(element);
        added
    }

    #[cold]
    #[inline(never)]
    fn extend_heap(&mut self, start: usize, element: T) -> &mut [T] {
        if self.heap.is_empty() {
            self.heap.extend_from_slice(&self.inline[..start]);
        }
        self.heap.resize(self.len, element);
        &mut self.heap[start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the values of the arguments, which are numbers.
    fn numbers(arguments: &PackedArguments) -> Vec<u64> {
        arguments.with_pointers(|pointers| {
            let pointers = pointers.iter();
            // SAFETY: each pointer refers to a value of this type.
            let number = |pointer: &*mut c_void| unsafe { pointer.cast::<u64>().read_unaligned() };
            pointers.map(number).collect()
        })
    }

    #[test]
    fn values_keep_their_order_and_contents_when_they_move_to_the_heap() {
        let mut arguments = PackedArguments::new();
        for number in 0..100 {
            assert_eq!(numbers(&arguments), (0..number).collect::<Vec<u64>>());
            arguments.push(number);
        }
        assert_eq!(arguments.sizes(), [8; 100]);
    }

    #[test]
    fn values_of_several_words_do_not_overlap_others() {
        for scalars in 0..40_u64 {
            let mut arguments = PackedArguments::new();
            (0..scalars).for_each(|number| arguments.push(number));
            arguments.push([7_u64; 9]);
            arguments.push_bytes(&8_u64.to_ne_bytes());
            arguments.push_bytes(&[]);
            arguments.push(9_u64);
            assert_eq!(arguments.sizes()[scalars as usize..], [72, 8, 0, 8]);
            arguments.with_pointers(|pointers| {
                let pointer = pointers[scalars as usize].cast::<[u64; 9]>();
                // SAFETY: the pointer refers to a value of this type.
                assert_eq!(unsafe { pointer.read_unaligned() }, [7; 9]);
                for (index, number) in [(1, 8), (3, 9)] {
                    let pointer = pointers[scalars as usize + index].cast::<u64>();
                    // SAFETY: as above.
                    assert_eq!(unsafe { pointer.read_unaligned() }, number);
                }
            });
        }
    }

    /// Reads the bytes of the arguments, and checks that they are aligned and do not overlap.
    fn contents(arguments: &PackedArguments) -> Vec<Vec<u8>> {
        arguments.with_pointers(|pointers| {
            let places = pointers.iter().zip(arguments.sizes());
            let mut ranges: Vec<(usize, usize)> =
                places.clone().map(|(pointer, size)| (pointer.addr(), *size)).collect();
            ranges.retain(|(start, size)| {
                assert_eq!(start % align_of::<Word>(), 0);
                *size != 0
            });
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            let bytes = |(pointer, size): (&*mut c_void, &usize)| {
                // SAFETY: the pointer refers to an argument of this size, whose bytes were all written,
                // and which is borrowed.
                unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), *size) }.to_vec()
            };
            places.map(bytes).collect()
        })
    }

    #[test]
    fn arguments_of_all_sizes_are_aligned_and_apart_inline_and_on_the_heap() {
        const SIZES: [usize; 9] = [0, 1, 4, 8, 15, 16, 17, 128, 384];
        // The greatest number of arguments and words without an allocation, and numbers around it.
        let first_counts = (0..=3).chain(14..=18).chain(23..=25);
        let mut cases = 0;
        for (first, second) in SIZES.into_iter().flat_map(|one| SIZES.map(|two| (one, two))) {
            for (count, others) in
                first_counts.clone().flat_map(|count| (0..=4).map(move |others| (count, others)))
            {
                let mut arguments = PackedArguments::new();
                let mut expected = Vec::new();
                let sizes = std::iter::repeat_n(first, count)
                    .chain(std::iter::repeat_n(second, others))
                    .chain([first]);
                for (index, size) in sizes.enumerate() {
                    let bytes: Vec<u8> = (0..size).map(|at| (index * 31 + at) as u8).collect();
                    match <[u8; 16]>::try_from(&bytes[..]) {
                        Ok(bytes) => arguments.push(bytes),
                        Err(_) => arguments.push_bytes(&bytes),
                    }
                    expected.push(bytes);
                }
                let sizes: Vec<usize> = expected.iter().map(Vec::len).collect();
                assert_eq!(arguments.sizes(), sizes);
                assert_eq!(
                    contents(&arguments),
                    expected,
                    "{count} of {first}, {others} of {second}"
                );
                cases += 1;
            }
        }
        println!("{cases} cases");
    }
}
