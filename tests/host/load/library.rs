//! Functions of other libraries than the driver: `cuda_sys::Library` and `lazy_extern!`.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use crate::fakes::NOWHERE;
use cuda_sys::{AttemptFailure, InstallError, Library, SymbolError, lazy_extern};
use std::path::Path;
use std::sync::Barrier;

const LIBM: &str = "libm.so.6";

/// Returns a library with these names. The tests use only names of the C library and names that no
/// library has.
const fn library(names: &'static [&'static str]) -> Library {
    // SAFETY: the initializers of the C library have run, and there are no others.
    unsafe { Library::new(names) }
}

mod other {
    pub(super) static MATH: super::Library = super::library(&["libnever.so.7", super::LIBM]);
}

static NEVER: Library = library(&["libnever.so.7", NOWHERE]);

lazy_extern! {
    // SAFETY: `math.h` has these declarations, but not that of `never`, which the library lacks.
    unsafe extern "C" in other::MATH {
        /// Returns the cosine.
        pub(crate) fn cos(x: f64) -> f64;
        fn fma(x: f64, y: f64, z: f64) -> f64;
        fn scalbn(x: f64, exponent: i32,) -> f64;
        fn sincos(x: f64, sine: *mut f64, cosine: *mut f64);
        fn never() -> i32;
    }
}

lazy_extern! {
    // SAFETY: there is no such library.
    unsafe extern "C" in NEVER {
        fn nothing(Number: i32);
    }
}

#[test]
fn functions_are_called_with_their_arguments_and_results() -> Result<(), SymbolError> {
    for _ in 0..3 {
        // SAFETY: the function accepts every number.
        assert_eq!(unsafe { cos(0.0) }?, 1.0);
        // SAFETY: the function accepts every number.
        assert_eq!(unsafe { fma(2.0, 3.0, 4.0) }?, 10.0);
        // SAFETY: the function accepts every number.
        assert_eq!(unsafe { scalbn(1.0, 3) }?, 8.0);
        let (mut sine, mut cosine) = (7.0, 7.0);
        // SAFETY: both pointers refer to variables.
        unsafe { sincos(0.0, &raw mut sine, &raw mut cosine) }?;
        assert_eq!((sine, cosine), (0.0, 1.0));
    }
    Ok(())
}

#[test]
fn the_first_name_that_can_be_opened_is_used() {
    let library = library(&["libnever.so.7", LIBM, NOWHERE]);
    assert_eq!(library.path(), None, "nothing is open yet");
    library.load().expect("the C library");
    assert_eq!(library.path(), Some(Path::new(LIBM)));
    library.load().expect("it is open");
}

#[test]
fn a_missing_library_is_an_error_with_every_name() {
    for _ in 0..2 {
        // SAFETY: a missing function never receives its arguments.
        let Err(SymbolError::Load(error)) = (unsafe { nothing(7) }) else {
            panic!("there is no such library");
        };
        let text = error.to_string();
        assert!(!text.contains("driver"), "{text}");
        assert!(!error.is_stub());
        let tried = error.tried();
        assert_eq!(tried.len(), 2);
        for (attempt, name) in tried.iter().zip(["libnever.so.7", NOWHERE]) {
            assert_eq!(attempt.path.to_str(), Some(name));
            assert!(matches!(attempt.failure, AttemptFailure::NotOpened(_)));
            assert!(text.contains(name), "{text}");
        }
    }
    assert_eq!(NEVER.path(), None);
}

#[test]
fn a_missing_function_is_an_error_with_its_name_and_library() {
    for _ in 0..2 {
        // SAFETY: a missing function is not called.
        let error = unsafe { never() }.expect_err("the library does not have it");
        assert_eq!(error.to_string(), format!("{LIBM} has no never"));
        let SymbolError::Missing(missing) = error else {
            panic!("the library exists: {error}");
        };
        assert_eq!(missing.symbol, "never");
        assert_eq!(missing.library.to_str(), Some(LIBM));
    }
    // SAFETY: the function accepts every number.
    let cosine = unsafe { cos(0.0) };
    assert_eq!(cosine.expect("the other functions are there"), 1.0);
}

#[test]
fn a_symbol_can_be_looked_up_without_a_call() {
    let there = other::MATH.symbol(c"cos").expect("a function of the library");
    assert_eq!(other::MATH.symbol(c"cos").expect("as before"), there);
    other::MATH.symbol(c"never").expect_err("no such function");
    NEVER.symbol(c"cos").expect_err("no such library");
}

#[test]
fn a_file_of_the_program_takes_the_place_of_the_names() {
    static CHOSEN: Library = library(&["libnever.so.7"]);
    lazy_extern! {
        // SAFETY: `math.h` has this declaration.
        unsafe extern "C" in CHOSEN {
            fn cos(x: f64) -> f64;
        }
    }
    // SAFETY: a missing function never receives its arguments.
    unsafe { cos(0.0) }.expect_err("there is no library with the name");
    // SAFETY: there is no such file.
    let error = unsafe { CHOSEN.load_from(NOWHERE) };
    assert!(matches!(error, Err(InstallError::Load(_))), "{error:?}");
    // SAFETY: the library is the C library, whose `cos` has the declared type.
    unsafe { CHOSEN.load_from(LIBM) }.expect("neither failure was stored");
    assert_eq!(CHOSEN.path(), Some(Path::new(LIBM)));
    // SAFETY: the function accepts every number.
    assert_eq!(unsafe { cos(0.0) }.expect("it is there"), 1.0);
    // SAFETY: a library that is open is not replaced.
    let error = unsafe { CHOSEN.load_from(NOWHERE) };
    assert!(matches!(error, Err(InstallError::InUse)), "{error:?}");
}

#[test]
fn threads_may_make_the_first_call_together() {
    static SHARED: Library = library(&[LIBM]);
    lazy_extern! {
        // SAFETY: `math.h` has this declaration.
        unsafe extern "C" in SHARED {
            fn sin(x: f64) -> f64;
        }
    }
    let together = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                together.wait();
                // SAFETY: the function accepts every number.
                assert_eq!(unsafe { sin(0.0) }.expect("it is there"), 0.0);
            });
        }
    });
}
