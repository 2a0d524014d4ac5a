//! Arrays, textures, surfaces and tensor maps.

pub(crate) mod arrays;
pub(crate) mod tensor_maps;
