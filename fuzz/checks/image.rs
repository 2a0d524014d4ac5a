//! Cubins and fat binaries.

use cuda_safe::sys::image::{Code, CodeKind, Cubin, codes};

/// Every list of codes lies in its image, and does not depend on what follows the image. A cubin has the
/// architecture that the list has.
pub(crate) fn image(data: &[u8]) {
    let found = match codes(data) {
        Ok(found) => found,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let longer = [data, &[0xa5; 100]].concat();
    let again = codes(&longer).expect("bytes after an image are not read");
    assert_eq!(again.len(), found.len());
    for code in &found {
        assert!(!code.to_string().is_empty());
        check(code, data);
    }
}

fn check(code: &Code, image: &[u8]) {
    let (stored, compressed) = (code.bytes, code.compressed.map(|its| its.bytes));
    assert!(stored.is_some() != compressed.is_some());
    for bytes in stored.iter().chain(&compressed) {
        assert!(image.as_ptr_range().start <= bytes.as_ptr_range().start);
        assert!(bytes.as_ptr_range().end <= image.as_ptr_range().end);
    }
    let Some(bytes) = stored else {
        return;
    };
    if code.kind != CodeKind::Cubin {
        return;
    }
    match Cubin::read(bytes) {
        Ok(cubin) => {
            for kernel in &cubin.kernels {
                assert!(kernel.parameters.iter().all(|parameter| parameter.size < 1 << 14));
            }
            for variable in &cubin.variables {
                assert!(variable.initial.len() <= variable.size && variable.align > 0);
            }
            let alone = codes(bytes).expect("the header is correct");
            assert_eq!(alone[0].architecture, cubin.architecture);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
