//! The tensor of a form: its memory, and the map that describes it.

use std::ptr::from_mut;

use cuda_safe::Context;
use cuda_sys::{
    CUdeviceptr, CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill,
    CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle, Zeroable,
};

use crate::common::random::Random;
use cuda_ptx::tensor_map::{Element, Interleave, Mode, Swizzle, TensorMap};

/// What a copy accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Tile(Vec<u32>),
    Im2col { lower: Vec<i32>, upper: Vec<i32>, channels: u32, pixels: u32 },
}

/// What the elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The number of each element in memory plus one.
    Numbers,
    /// Random bits, and edge cases of floating-point numbers.
    Random,
}

/// A tensor in memory. The numbers are those of the C API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) kind: u32,
    /// In elements, the innermost dimension first.
    pub(crate) dims: Vec<u64>,
    /// The bytes between neighbors of each dimension but the innermost.
    pub(crate) strides: Vec<u64>,
    /// The element strides.
    pub(crate) steps: Vec<u32>,
    pub(crate) shape: Shape,
    pub(crate) interleave: u32,
    pub(crate) swizzle: u32,
    pub(crate) promotion: u32,
    pub(crate) fill: u32,
    pub(crate) content: Content,
    /// The bytes of its memory.
    pub(crate) bytes: usize,
    /// Whether the kernel writes the memory, which is then a result.
    pub(crate) is_written: bool,
}

/// Values that conversions and additions treat specially.
const EDGES: [u64; 14] = [
    0x7fc0_0123_7fc0_0123,
    0xff81_2345_ff81_2345,
    0x7f80_0000_7f80_0000,
    0xff80_0000_ff80_0000,
    0x0000_0001_0000_0001,
    0x807f_ffff_807f_ffff,
    0x8000_0000_8000_0000,
    0x0040_2000_0040_2000,
    0x8000_3000_8000_3000,
    0x0080_0000_0080_0000,
    0x3f80_1000_3f80_1000,
    0x3f80_0fff_3f80_3000,
    0x7f7f_ffff_7f7f_ffff,
    0x7bff_fc00_7c01_03ff,
];

impl Tensor {
    /// Returns a tensor whose rows follow each other at multiples of 16 bytes, and whose copies access a box.
    pub(crate) fn tile(kind: u32, dims: &[u64], extents: &[u32]) -> Self {
        let mut bytes = dims[0] * element(kind);
        let mut strides = Vec::new();
        for extent in &dims[1..] {
            bytes = bytes.next_multiple_of(16);
            strides.push(bytes);
            bytes *= extent;
        }
        Self {
            kind,
            dims: dims.to_vec(),
            strides,
            steps: vec![1; dims.len()],
            shape: Shape::Tile(extents.to_vec()),
            interleave: 0,
            swizzle: 0,
            promotion: 0,
            fill: 0,
            content: Content::Numbers,
            bytes: bytes as usize,
            is_written: false,
        }
    }

    /// Returns a tensor whose copies access columns of pixels.
    pub(crate) fn im2col(
        kind: u32,
        dims: &[u64],
        (lower, upper): (&[i32], &[i32]),
        (channels, pixels): (u32, u32),
    ) -> Self {
        let (lower, upper) = (lower.to_vec(), upper.to_vec());
        let shape = Shape::Im2col { lower, upper, channels, pixels };
        Self { shape, ..Self::tile(kind, dims, &[]) }
    }

    /// Returns the numbers of elements of a row and of rows that a copy accesses, and the bytes of an element.
    fn parts(&self) -> (u64, u64, u64) {
        let slice = [None, Some(16), Some(32)][self.interleave as usize];
        let rank = self.dims.len();
        let (row, rows) = match &self.shape {
            Shape::Tile(extents) => {
                let counts = extents.iter().zip(&self.steps).enumerate().skip(1);
                // A copy has one slice of channels, which are the last dimension but one.
                let counts = counts.filter(|(axis, _)| slice.is_none() || axis + 2 != rank);
                (extents[0], counts.map(|(_, (its, step))| its.div_ceil(*step)).product())
            }
            Shape::Im2col { channels, pixels, .. } => {
                (if slice.is_some() { 1 } else { *channels }, *pixels)
            }
        };
        (row.into(), rows.into(), slice.unwrap_or(element(self.kind)))
    }

    /// Returns the bytes that a copy writes to shared memory.
    pub(crate) fn copied(&self) -> u64 {
        let (row, rows, size) = self.parts();
        row * rows * size
    }

    /// Returns the bytes of shared memory that a copy covers. With a swizzle, each row begins a span.
    pub(crate) fn covered(&self) -> u64 {
        let (row, rows, size) = self.parts();
        match (self.swizzle, self.interleave) {
            (1..=3, 0) => rows * (16 << self.swizzle),
            _ => row * rows * size,
        }
    }

    /// Encodes the map of a tensor at an address, with the driver of a context.
    pub(crate) fn encode(
        &self,
        context: &Context,
        address: CUdeviceptr,
    ) -> Result<Vec<u8>, String> {
        // SAFETY: the context is alive.
        check(unsafe { cuda_sys::cuCtxSetCurrent(context.as_raw()) }, "cuCtxSetCurrent")?;
        let mut map = CUtensorMap::zeroed();
        let place = from_mut(&mut map);
        let rank = u32::try_from(self.dims.len()).unwrap_or(0);
        let address = std::ptr::without_provenance_mut(address as usize);
        let kind = CUtensorMapDataType(self.kind);
        let interleave = CUtensorMapInterleave(self.interleave);
        let swizzle = CUtensorMapSwizzle(self.swizzle);
        let promotion = CUtensorMapL2promotion(self.promotion);
        let fill = CUtensorMapFloatOOBfill(self.fill);
        // The driver refuses a null pointer, also for a single dimension.
        let mut strides = self.strides.clone();
        strides.push(0);
        let done = match &self.shape {
            // SAFETY: the place is valid for a write, and each list has as many values as the rank says.
            Shape::Tile(extents) => unsafe {
                cuda_sys::cuTensorMapEncodeTiled(
                    place,
                    kind,
                    rank,
                    address,
                    self.dims.as_ptr(),
                    strides.as_ptr(),
                    extents.as_ptr(),
                    self.steps.as_ptr(),
                    interleave,
                    swizzle,
                    promotion,
                    fill,
                )
            },
            // SAFETY: as above.
            Shape::Im2col { lower, upper, channels, pixels } => unsafe {
                cuda_sys::cuTensorMapEncodeIm2col(
                    place,
                    kind,
                    rank,
                    address,
                    self.dims.as_ptr(),
                    strides.as_ptr(),
                    lower.as_ptr(),
                    upper.as_ptr(),
                    *channels,
                    *pixels,
                    self.steps.as_ptr(),
                    interleave,
                    swizzle,
                    promotion,
                    fill,
                )
            },
        };
        check(done, "cuTensorMapEncode")?;
        Ok(map.opaque.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// Returns the memory before a launch.
    pub(crate) fn memory(&self) -> Vec<u8> {
        let size = element(self.kind) as usize;
        let mut random = Random(11 + u64::from(self.kind));
        let mut value = |index: usize| match self.content {
            Content::Numbers => index as u64 + 1,
            Content::Random => match (random.next(), random.next()) {
                (choice, bits) if choice % 4 == 0 => EDGES[bits as usize % EDGES.len()],
                (_, bits) => bits,
            },
        };
        let elements = self.bytes.div_ceil(size);
        (0..elements).flat_map(|index| value(index).to_le_bytes()[..size].to_vec()).collect()
    }
}

impl Tensor {
    /// Returns the map of a tensor at an address, for the engine.
    pub(crate) fn map(&self, address: u64) -> TensorMap {
        let known = "a number of the C API";
        TensorMap {
            address,
            element: Element::from_code(self.kind).expect(known),
            rank: self.dims.len(),
            dims: list(&self.dims, 1),
            strides: list(&self.strides, 0),
            steps: list(&self.steps, 1),
            mode: match &self.shape {
                Shape::Tile(extents) => Mode::Tile(list(extents, 1)),
                Shape::Im2col { lower, upper, channels, pixels } => Mode::Im2col {
                    lower: list(lower, 0),
                    upper: list(upper, 0),
                    channels: *channels as u16,
                    pixels: *pixels as u16,
                },
            },
            interleave: Interleave::from_code(self.interleave).expect(known),
            swizzle: Swizzle::from_code(self.swizzle).expect(known),
            fills_with_nan: self.fill == 1,
        }
    }
}

/// Returns a list of a map, whose last entries have no meaning.
fn list<T: Copy + TryInto<U>, U: Copy, const N: usize>(values: &[T], rest: U) -> [U; N] {
    std::array::from_fn(|at| values.get(at).map_or(rest, |its| (*its).try_into().unwrap_or(rest)))
}

/// Returns the bytes of an element.
pub(crate) fn element(kind: u32) -> u64 {
    match kind {
        0 => 1,
        1 | 6 | 9 => 2,
        4 | 5 | 8 => 8,
        _ => 4,
    }
}

/// The memory of a tensor on a GPU. It is not freed before the process ends.
pub(crate) struct Mapped {
    /// The bytes of the map.
    pub(crate) map: Vec<u8>,
    memory: CUdeviceptr,
    bytes: usize,
}

fn check(code: CUresult, call: &str) -> Result<(), String> {
    match code.is_success() {
        true => Ok(()),
        false => Err(format!("{call}: {}", code.0)),
    }
}

impl Mapped {
    /// Creates a tensor and its map in the current context.
    pub(crate) fn new(context: &Context, tensor: &Tensor) -> Result<Self, String> {
        // SAFETY: the context is alive.
        check(unsafe { cuda_sys::cuCtxSetCurrent(context.as_raw()) }, "cuCtxSetCurrent")?;
        let bytes = tensor.memory();
        let mut memory = 0;
        // SAFETY: the place is valid for a write.
        let done = unsafe { cuda_sys::cuMemAlloc_v2(from_mut(&mut memory), bytes.len()) };
        check(done, "cuMemAlloc")?;
        // SAFETY: the memory has as many bytes.
        let done = unsafe { cuda_sys::cuMemcpyHtoD_v2(memory, bytes.as_ptr().cast(), bytes.len()) };
        check(done, "cuMemcpyHtoD")?;
        let map = tensor.encode(context, memory)?;
        Ok(Self { map, memory, bytes: bytes.len() })
    }

    /// Returns the memory.
    pub(crate) fn read(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; self.bytes];
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: both memories have as many bytes.
        check(unsafe { cuda_sys::cuMemcpyDtoH_v2(to, self.memory, self.bytes) }, "cuMemcpyDtoH")?;
        Ok(bytes)
    }
}
