//! Variables of modules and libraries.

use crate::common::{self, invalid};
use crate::module::kernels::{GLOBALS, kernel_of, vector};
use cuda_safe::module::Library;
use cuda_safe::{Context, DeviceBuffer, Invalid, LaunchConfig, Module, Stream};

const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

/// Returns a context, a stream, and a module with variables.
fn stage() -> Option<(Context, Stream, Module)> {
    let (context, stream) = common::context_and_stream()?;
    let module = Module::from_ptx(&context, GLOBALS).expect("the test kernels");
    Some((context, stream, module))
}

#[test]
fn a_variable_is_read_and_written_between_kernels_that_use_it() {
    let (_context, stream, module) = or_skip!(stage());
    let counter = module.global("counter").expect("found");
    assert_eq!((counter.name(), counter.size_bytes()), ("counter", 4));
    assert_ne!(counter.as_raw(), 0);
    let bump = kernel_of::<(u32,)>(&module, "bump");
    // SAFETY: only work of this stream uses the variable.
    let mut value = unsafe { counter.buffer::<u32>(&stream) }.expect("a u32");
    assert_eq!(value.to_vec().expect("a copy"), [5]);
    // SAFETY: the kernel modifies the variable, which only work of this stream uses.
    unsafe { bump.launch(&stream, ONE, (3,)) }.expect("a launch");
    assert_eq!(value.to_vec().expect("a copy"), [8]);
    value.copy_from_slice(&[100]).expect("a copy");
    // SAFETY: as above.
    unsafe { bump.launch(&stream, ONE, (1,)) }.expect("a launch");
    assert_eq!(value.to_vec().expect("a copy"), [101]);
}

#[test]
fn constant_memory_is_set_before_kernels_read_it() {
    let (_context, stream, module) = or_skip!(stage());
    let factors = module.global("factors").expect("found");
    // SAFETY: only work of this stream uses the variable.
    let mut all = unsafe { factors.buffer::<f32>(&stream) }.expect("floats");
    assert_eq!(all.to_vec().expect("a copy"), [1.0, 2.0, 3.0, 4.0]);
    all.copy_from_slice(&[5.0, 6.0, 7.0, 8.0]).expect("a copy");
    let factor = kernel_of::<(&mut [f32], u32)>(&module, "factor");
    let mut out = DeviceBuffer::<f32>::zeroed(&stream, 1).expect("memory");
    // SAFETY: the kernel reads one of four factors and writes one element.
    unsafe { factor.launch(&stream, ONE, (&mut out, 2)) }.expect("a launch");
    assert_eq!(out.to_vec().expect("a copy"), [7.0]);
}

#[test]
fn a_variable_keeps_its_module_alive() {
    let (_context, stream, module) = or_skip!(stage());
    let counter = module.global("counter").expect("found");
    drop(module);
    let clone = counter.clone();
    drop(counter);
    // SAFETY: nothing else uses the variable.
    let value = unsafe { clone.buffer::<u32>(&stream) }.expect("a u32");
    drop(clone);
    assert_eq!(value.to_vec().expect("a copy"), [5]);
}

#[test]
fn each_context_has_its_own_variables_of_a_library() {
    let (primary, other) = or_skip!(common::two_contexts());
    or_skip!(common::since(12, 0));
    let library = Library::from_ptx(GLOBALS).expect("the test kernels");
    for (context, new) in [(&primary, 7), (&other, 9)] {
        let stream = context.stream().expect("a stream");
        let counter = library.global(context, "counter").expect("found");
        assert_eq!(counter.context(), context);
        // SAFETY: nothing else uses the variable.
        let mut value = unsafe { counter.buffer::<u32>(&stream) }.expect("a u32");
        assert_eq!(value.to_vec().expect("a copy"), [5], "the other context did not change it");
        value.copy_from_slice(&[new]).expect("a copy");
        let bump = library.kernel(context, "bump").expect("found");
        let bump = bump.typed::<(u32,)>().expect("its parameters");
        // SAFETY: only work of this stream uses the variable.
        unsafe { bump.launch(&stream, ONE, (1,)) }.expect("a launch");
        assert_eq!(value.to_vec().expect("a copy"), [new + 1]);
    }
}

#[test]
fn a_managed_variable_belongs_to_the_library() {
    let (context, stream) = or_skip!(common::context_and_stream());
    or_skip!(common::since(12, 0));
    let library = Library::from_ptx(GLOBALS).expect("the test kernels");
    let copy = library.kernel(&context, "copy_everywhere").expect("found");
    let copy = copy.typed::<(&mut [u32],)>().expect("its parameters");
    let everywhere = library.managed(&context, "everywhere").expect("found");
    assert_eq!(everywhere.size_bytes(), 4);
    // SAFETY: only work of this stream uses the variable.
    let mut value = unsafe { everywhere.buffer::<u32>(&stream) }.expect("a u32");
    assert_eq!(value.to_vec().expect("a copy"), [3]);
    value.copy_from_slice(&[11]).expect("a copy");
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    // SAFETY: the kernel reads the variable and writes one element.
    unsafe { copy.launch(&stream, ONE, (&mut out,)) }.expect("a launch");
    assert_eq!(out.to_vec().expect("a copy"), [11]);
}

#[test]
fn a_variable_is_refused_as_an_array_of_a_type_of_another_size() {
    let (context, stream, module) = or_skip!(stage());
    let counter = module.global("counter").expect("found");
    // SAFETY: all of these calls are refused and access nothing.
    let why = unsafe { counter.buffer::<u64>(&stream) };
    assert!(matches!(invalid(why), Invalid::GlobalLayout { size: 4, element: 8, .. }));
    // SAFETY: as above.
    let why = unsafe { counter.buffer::<()>(&stream) };
    assert!(matches!(invalid(why), Invalid::GlobalLayout { .. }));
    let other = Context::new(&context.device(), cuda_safe::ContextFlags::empty());
    let elsewhere = other.expect("a context").stream().expect("a stream");
    // SAFETY: as above.
    let why = unsafe { counter.buffer::<u32>(&elsewhere) };
    assert!(matches!(invalid(why), Invalid::OtherContext { .. }));
}

mod provoked {
    use super::*;

    #[test]
    fn the_error_for_a_missing_variable_names_it() {
        let context = or_skip!(common::context());
        let missing = Invalid::NoSuchGlobal { name: "nowhere".to_owned() };
        let module = vector(&context);
        assert_eq!(invalid(module.global("nowhere")), missing);
        assert!(matches!(invalid(module.global("a\0b")), Invalid::NulInText { position: 1 }));
        if !common::offers(12, 0) {
            return;
        }
        let library = Library::from_ptx(GLOBALS).expect("the test kernels");
        assert_eq!(invalid(library.global(&context, "nowhere")), missing);
        assert_eq!(invalid(library.managed(&context, "nowhere")), missing);
    }
}
