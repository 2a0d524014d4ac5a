//! The operations of reductions.

use crate::sys::ncclRedOp_t;
use cuda_safe::DeviceSlice;

/// An operation that combines the elements of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The sum.
    #[doc(alias = "ncclSum")]
    Sum,
    /// The product.
    #[doc(alias = "ncclProd")]
    Product,
    /// The largest element.
    #[doc(alias = "ncclMax")]
    Max,
    /// The smallest element.
    #[doc(alias = "ncclMin")]
    Min,
    /// The average: the sum, divided by the number of ranks. Integers are rounded towards zero.
    #[doc(alias = "ncclAvg")]
    Average,
}

impl ReduceOp {
    #[inline]
    pub(crate) fn raw(self) -> ncclRedOp_t {
        match self {
            Self::Sum => ncclRedOp_t::ncclSum,
            Self::Product => ncclRedOp_t::ncclProd,
            Self::Max => ncclRedOp_t::ncclMax,
            Self::Min => ncclRedOp_t::ncclMin,
            Self::Average => ncclRedOp_t::ncclAvg,
        }
    }
}

/// A [`ReduceOp`], or the sum of the products with a factor of each rank.
///
/// Each rank may have its own factor. All ranks must choose the same kind of operation.
///
/// Raw: [`ncclRedOpCreatePreMulSum`](fn@crate::sys::ncclRedOpCreatePreMulSum).
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ncclRedOpCreatePreMulSum", alias = "ncclRedOpDestroy")]
pub enum Reduction<'a, T> {
    /// An operation without a factor.
    Op(ReduceOp),
    /// The sum of the products with this factor.
    ScaledSum(T),
    /// The sum of the products with the factor in device memory, a slice of one element. It is read when the operation
    /// runs.
    ScaledSumOf(DeviceSlice<'a, T>),
}

impl<T> From<ReduceOp> for Reduction<'_, T> {
    #[inline]
    fn from(op: ReduceOp) -> Self {
        Self::Op(op)
    }
}
