//! Tensors and their shapes.

use crate::eager::Eager;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::executor::{Executor, Run};
use std::fmt;

/// A dense tensor in row-major order, in the memory of an executor. A shape without dimensions is a
/// single number.
pub struct Tensor<T: Element, X: Executor = Eager> {
    shape: Vec<usize>,
    pub(crate) memory: <X as Run>::Memory<T>,
}

impl<T: Element, X: Executor> Tensor<T, X> {
    /// The memory must have as many elements as the shape.
    pub(crate) fn new(shape: Vec<usize>, memory: X::Memory<T>) -> Self {
        Self { shape, memory }
    }

    /// Returns the number of elements along each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the same elements with another shape.
    ///
    /// # Errors
    /// [`Error::Shapes`] if the new shape has another number of elements.
    pub fn reshape(self, shape: &[usize]) -> Result<Self> {
        if elements(shape)? as usize != self.len() {
            return Err(Error::Shapes {
                operation: "reshape",
                shapes: [self.shape, shape.to_vec()],
            });
        }
        Ok(Self { shape: shape.to_vec(), ..self })
    }
}

impl<T: Element, X: Executor> fmt::Debug for Tensor<T, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("type", &T::SUFFIX)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// Returns the number of elements of a shape.
///
/// # Errors
/// [`Error::TooManyElements`].
pub(crate) fn elements(shape: &[usize]) -> Result<u32> {
    let mut product = shape.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
    if shape.contains(&0) {
        // The product of the other extents does not matter.
        product = Some(0);
    }
    let elements = product.and_then(|product| i32::try_from(product).ok());
    let elements = elements.ok_or_else(|| Error::TooManyElements(shape.to_vec()))?;
    Ok(elements.unsigned_abs())
}
