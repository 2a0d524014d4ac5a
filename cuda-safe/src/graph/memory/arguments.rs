//! Memory as arguments of kernel nodes.

use super::{GraphBuffer, GraphSlice, GraphSliceMut};
use crate::call::Result;
use crate::graph::{NodeArgument, NodeUses};
use crate::memory::SharedBuffer;
use cuda_sys::CUdeviceptr;

impl<T: 'static> NodeArgument<&[T]> for GraphSlice<'_, T> {
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
        uses.add(self.used(0..self.len(), false))?;
        Ok(self.address())
    }
}

impl<T: 'static> NodeArgument<&mut [T]> for GraphSliceMut<'_, T> {
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
        let whole = self.into_whole();
        uses.add(whole.used(0..whole.len(), true))?;
        Ok(whole.address())
    }
}

impl<T: 'static> NodeArgument<&[T]> for &GraphBuffer<T> {
    fn bytes(self, index: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
        self.as_slice().bytes(index, uses)
    }
}

impl<T: 'static> NodeArgument<&mut [T]> for &mut GraphBuffer<T> {
    fn bytes(self, index: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
        self.as_mut_slice().bytes(index, uses)
    }
}

impl<T: 'static> NodeArgument<&[T]> for &SharedBuffer<T> {
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
        uses.add_shared(self)?;
        Ok(self.address())
    }
}
