//! `CUresult`: names and texts without a driver.

use cuda_sys::CUresult;
use std::collections::HashSet;
use std::error::Error;

/// Returns the codes that the headers name.
fn named() -> impl Iterator<Item = CUresult> {
    (0..=2000).map(CUresult).filter(|code| code.name().is_some())
}

#[test]
fn every_named_code_has_its_own_text() {
    let mut texts = HashSet::new();
    for code in named() {
        let text = code.text().unwrap_or_else(|| panic!("{code:?} has no text"));
        assert!(!text.trim().is_empty(), "{code:?}");
        assert_eq!(text.trim(), text, "{code:?}");
        assert!(texts.insert(text), "{code:?} has the text of another code");
    }
    assert!(texts.len() > 90, "{} codes", texts.len());
}

#[test]
fn no_unnamed_code_has_a_text() {
    let codes = (0..=2000).step_by(if cfg!(miri) { 40 } else { 1 });
    for code in codes.chain([u32::MAX]).map(CUresult) {
        assert_eq!(code.name().is_some(), code.text().is_some(), "{}", code.0);
    }
}

#[test]
fn codes_have_the_numbers_of_the_headers() {
    let known = [
        (0, "CUDA_SUCCESS"),
        (2, "CUDA_ERROR_OUT_OF_MEMORY"),
        (3, "CUDA_ERROR_NOT_INITIALIZED"),
        (34, "CUDA_ERROR_STUB_LIBRARY"),
        (36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"),
        (100, "CUDA_ERROR_NO_DEVICE"),
        (201, "CUDA_ERROR_INVALID_CONTEXT"),
        (500, "CUDA_ERROR_NOT_FOUND"),
        (600, "CUDA_ERROR_NOT_READY"),
        (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (999, "CUDA_ERROR_UNKNOWN"),
    ];
    for (number, name) in known {
        assert_eq!(CUresult(number).name(), Some(name));
        assert_eq!(format!("{:?}", CUresult(number)), name);
    }
}

#[test]
fn codes_print_name_number_and_text() {
    for code in named() {
        let (name, text) = (code.name().expect("named"), code.text().expect("named"));
        assert_eq!(code.to_string(), format!("{name} ({}): {text}", code.0));
    }
}

#[test]
fn unknown_codes_print_as_their_number() {
    for number in [9, 1234, 4_000_000_000] {
        let code = CUresult(number);
        assert_eq!(code.name(), None);
        let text = code.to_string();
        assert!(text.starts_with(&format!("CUresult {number}: ")), "{text}");
        assert_eq!(format!("{code:?}"), format!("CUresult({number})"));
    }
}

#[test]
fn only_zero_is_success() {
    assert_eq!(CUresult::default(), CUresult::CUDA_SUCCESS);
    for code in (0..=2000).chain([u32::MAX]).map(CUresult) {
        assert_eq!(code.is_success(), code.0 == 0);
    }
}

#[test]
fn every_code_but_success_is_an_error() {
    for code in (0..=2000).chain([u32::MAX]).map(CUresult) {
        let expected = if code.0 == 0 { Ok(()) } else { Err(code) };
        assert_eq!(code.ok(), expected);
    }
}

#[test]
fn fatal_codes_are_errors_of_work_and_of_hardware() {
    assert!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS.is_fatal());
    assert!(CUresult::CUDA_ERROR_ECC_UNCORRECTABLE.is_fatal());
    assert!(!CUresult::CUDA_SUCCESS.is_fatal());
    assert!(!CUresult::CUDA_ERROR_INVALID_VALUE.is_fatal());
    assert!(!CUresult::CUDA_ERROR_NOT_READY.is_fatal());
    let fatal = (0..=2000).chain([u32::MAX]).map(CUresult);
    assert_eq!(fatal.filter(|code| code.is_fatal()).count(), 15);
}

#[test]
fn the_text_of_a_missing_driver_names_the_function_with_the_reason() {
    let text = CUresult::CUDA_ERROR_NOT_INITIALIZED.to_string();
    assert!(text.contains("cuda_sys::load"), "{text}");
}

#[test]
fn a_code_converts_into_any_error_type() {
    fn fails() -> Result<(), Box<dyn Error + Send + Sync>> {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY.ok()?;
        Ok(())
    }
    let error = fails().expect_err("it fails");
    assert!(error.to_string().contains("OUT_OF_MEMORY (2)"));
}
