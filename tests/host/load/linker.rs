//! `cuda_nvrtc::Linker` with a replacement of nvJitLink.

use crate::common::child::in_child;
use crate::fakes;
use crate::or_skip;
use cuda_nvrtc::{Architecture, Error, LinkInput, Linker};

#[test]
fn the_names_of_the_inputs_live_until_the_linker_is_destroyed() {
    let library = or_skip!(fakes::build("linker"));
    in_child(&[("CUDA_NVJITLINK_LIBRARY", &library)], || {
        let linker = Linker::new(Architecture::new(9, 0)).with_ptx("data", ".version 8.0");
        // SAFETY: the replacement does not read the file.
        let linker = unsafe { linker.with_file(LinkInput::Ptx, "/nonexistent/file.ptx") };
        linker.link().expect("the replacement links everything");
        let broken = linker.with_ptx("broken", ".version 8.0").link();
        assert!(matches!(broken, Err(Error::Link(_))), "{broken:?}");
    });
}
