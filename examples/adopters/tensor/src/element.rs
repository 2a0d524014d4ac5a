//! The element types.

use cuda_safe::bytemuck::Pod;

/// The type of the elements of a tensor. This trait is sealed, because the kernels are compiled for the
/// type that it names.
pub trait Element: Pod + Send + Sync + sealed::Sealed {
    /// The name of the type in CUDA C++.
    const C_NAME: &'static str;
    /// The suffix of the names of the type's kernels.
    const SUFFIX: &'static str;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for i32 {}
}

impl Element for f32 {
    const C_NAME: &'static str = "float";
    const SUFFIX: &'static str = "f32";
}

impl Element for i32 {
    const C_NAME: &'static str = "int";
    const SUFFIX: &'static str = "i32";
}
