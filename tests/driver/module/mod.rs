//! Modules and libraries: their kernels, and code that is refused.

pub(crate) mod globals;
pub(crate) mod kernel_attributes;
pub(crate) mod kernels;
pub(crate) mod linker;

use crate::common::{self, invalid};
use crate::module::kernels::{VECTOR, vector};
use cuda_safe::module::{Library, Parameter};
use cuda_safe::{Error, Invalid, Module};

#[test]
fn modules_and_libraries_list_their_kernels() {
    let context = or_skip!(common::context_since(12, 4));
    let library = Library::from_ptx(VECTOR).expect("the test kernels");
    for names in [vector(&context).kernel_names(), library.kernel_names()] {
        let mut names = names.expect("a driver of 12.4 or later");
        names.sort();
        assert_eq!(names, ["add", "nothing", "scale"]);
    }
}

#[test]
fn invalid_module_text_is_refused_before_the_driver_reads_it() {
    let context = or_skip!(common::context());
    assert_eq!(invalid(Module::from_ptx(&context, "")), Invalid::EmptyImage);
    let with_nul = Module::from_ptx(&context, ".version\0");
    assert_eq!(invalid(with_nul), Invalid::NulInText { position: 8 });
    // SAFETY: all of these calls are refused and access nothing.
    let from_image = |image: &[u8]| invalid(unsafe { Module::from_image(&context, image) });
    assert_eq!(from_image(&[]), Invalid::EmptyImage);
    assert_eq!(from_image(b"abcdefgh"), Invalid::NotAnImage { starts_with: *b"abcd" });
    assert!(matches!(from_image(b"\x7fELF\x02\x01"), Invalid::TruncatedImage { .. }));
    assert!(matches!(from_image(b"\x50\xed\x55\xba"), Invalid::TruncatedImage { .. }));
}

mod provoked {
    //! The driver reports names it does not find and code it does not compile. The number of a
    //! kernel's parameters is found by asking for one too many.

    use super::*;

    #[test]
    fn parameters_report_offsets_and_sizes() {
        let context = or_skip!(common::context_since(12, 4));
        let kernel = vector(&context).kernel("add").expect("a kernel");
        let parameter = |offset, size| Parameter { offset, size };
        assert_eq!(
            kernel.parameters().expect("a driver of 12.4 or later"),
            Some([parameter(0, 8), parameter(8, 8), parameter(16, 8), parameter(24, 4)].as_slice())
        );
        let nothing = vector(&context).kernel("nothing").expect("a kernel");
        assert_eq!(nothing.parameters().expect("known"), Some([].as_slice()));
    }

    #[test]
    fn the_error_for_a_missing_kernel_lists_the_existing_ones() {
        let context = or_skip!(common::context_since(12, 4));
        let library = Library::from_ptx(VECTOR).expect("the test kernels");
        let errors = [
            vector(&context).kernel("subtract").expect_err("missing"),
            library.kernel(&context, "subtract").expect_err("missing"),
        ];
        for error in errors {
            let text = error.to_string();
            for name in ["subtract", "add", "scale", "nothing"] {
                assert!(text.contains(name), "{text}");
            }
        }
    }

    #[test]
    fn a_compiler_error_includes_the_log() {
        let context = or_skip!(common::context_since(12, 0));
        let wrong = VECTOR.replace("add.f32 %f3, %f1, %f2;", "add.f32 %f3, %f1, %nonsense;");
        for result in [
            Module::from_ptx(&context, &wrong).map(|_| ()),
            // A library compiles its code when a kernel is first used.
            Library::from_ptx(&wrong)
                .and_then(|library| library.kernel(&context, "add"))
                .map(|_| ()),
        ] {
            let error = result.expect_err("does not compile");
            let text = error.to_string();
            assert!(text.contains("INVALID_PTX"), "{text}");
            if let Error::Compile(compile) = &error {
                assert!(compile.log.contains("nonsense"), "{text}");
            }
        }
        assert!(matches!(Module::from_ptx(&context, &wrong), Err(Error::Compile(_))));
    }

    #[test]
    fn the_error_for_ptx_newer_than_the_driver_names_both_versions() {
        let context = or_skip!(common::context());
        let newer = VECTOR.replace(".version 6.0", ".version 99.7");
        let error = Module::from_ptx(&context, &newer).expect_err("far newer");
        let driver = cuda_safe::version().expect("a driver");
        assert!(
            matches!(error, Error::PtxTooNew { ptx: Some((99, 7)), driver: its } if its == driver),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("99.7") && text.contains(&driver.to_string()), "{text}");
    }
}
