//! The names under which NVRTC and nvJitLink are installed.

use cuda_sys::{Library, LibrarySearch};

/// The library of NVRTC. The page of this [module](crate::sys) lists the places where it is searched for.
// SAFETY: the initializers of NVRTC have no requirements.
pub static NVRTC: Library = unsafe { Library::with_search(|| COMPILER.candidates()) };

/// The library of nvJitLink. The page of this [module](crate::sys) lists the places where it is searched for.
// SAFETY: the initializers of nvJitLink have no requirements.
pub static NVJITLINK: Library = unsafe { Library::with_search(|| LINKER.candidates()) };

const COMPILER: LibrarySearch = LibrarySearch {
    variable: "CUDA_NVRTC_LIBRARY",
    // The libraries of CUDA 11.2 to 11.8 have the same name.
    files: if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
    } else {
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
    },
    packages: &["nvidia/cu13", "nvidia/cuda_nvrtc"],
};

const LINKER: LibrarySearch = LibrarySearch {
    variable: "CUDA_NVJITLINK_LIBRARY",
    files: if cfg!(windows) {
        &["nvJitLink_130_0.dll", "nvJitLink_120_0.dll"]
    } else {
        &["libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"]
    },
    packages: &["nvidia/cu13", "nvidia/nvjitlink"],
};
