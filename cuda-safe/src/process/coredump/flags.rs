//! What core dumps contain.

use bitflags::bitflags;
use cuda_sys::CUCoredumpGenerationFlags as Raw;

bitflags! {
    /// The contents of core dumps, and what follows a dump (`CUCoredumpGenerationFlags`). Without flags, a
    /// dump has everything, and the process ends after it.
    ///
    /// A driver that does not know a flag ignores it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DumpFlags: u32 {
        /// Leave out the images of modules that are not relocated.
        const SKIP_NONRELOCATED_ELF_IMAGES = Raw::CU_COREDUMP_SKIP_NONRELOCATED_ELF_IMAGES.0 as u32;
        /// Leave out global memory.
        const SKIP_GLOBAL_MEMORY = Raw::CU_COREDUMP_SKIP_GLOBAL_MEMORY.0 as u32;
        /// Leave out shared memory.
        const SKIP_SHARED_MEMORY = Raw::CU_COREDUMP_SKIP_SHARED_MEMORY.0 as u32;
        /// Leave out local memory.
        const SKIP_LOCAL_MEMORY = Raw::CU_COREDUMP_SKIP_LOCAL_MEMORY.0 as u32;
        /// Do not abort the process after the dump. Its calls return the error of the fault.
        const SKIP_ABORT = Raw::CU_COREDUMP_SKIP_ABORT.0 as u32;
        /// Leave out the constant banks.
        const SKIP_CONSTBANK_MEMORY = Raw::CU_COREDUMP_SKIP_CONSTBANK_MEMORY.0 as u32;
        /// Compress the file with gzip.
        const GZIP_COMPRESS = Raw::CU_COREDUMP_GZIP_COMPRESS.0 as u32;
        /// Include only contexts with a fault.
        const FAULTED_CONTEXTS_ONLY = Raw::CU_COREDUMP_FAULTED_CONTEXTS_ONLY.0 as u32;
        /// Leave out tensor memory.
        const SKIP_TENSOR_MEMORY = Raw::CU_COREDUMP_SKIP_TENSOR_MEMORY.0 as u32;
        /// Let warps with a fault end. By default the GPU prevents this while dumps are on, which may make
        /// kernels slower.
        const NO_ERRBAR_AT_EXIT = Raw::CU_COREDUMP_NO_ERRBAR_AT_EXIT.0 as u32;
        /// Write no file, and only log the fault.
        const LOG_ONLY = Raw::CU_COREDUMP_LOG_ONLY.0 as u32;
        /// Leave out all memory and images.
        const LIGHTWEIGHT = Raw::CU_COREDUMP_LIGHTWEIGHT_FLAGS.0 as u32;
    }
}
