//! Enums, flags and structs of the driver API: their `Debug` output and their default values.

use cuda_sys::{
    CUDA_KERNEL_NODE_PARAMS_v2, CUctx_flags, CUctxCreateParams, CUdevResource, CUevent_flags,
    CUlaunchAttribute, CUlaunchConfig, CUmemPoolProps, CUmoduleLoadingMode,
};

/// An enum of the CUDA headers and the Rust type of the same name.
struct Enumeration {
    name: &'static str,
    is_flags: bool,
    constants: &'static [(&'static str, i64)],
    /// Returns the name of a value, if it has one, and its `Debug` output.
    show: fn(i64) -> (Option<&'static str>, String),
    default: fn() -> i64,
}

macro_rules! enums {
    ($($(#[$meta:meta])* $kind:ident $name:ident: $repr:ident {
        $($constant:ident = $value:expr,)*
    })*) => {
        const ENUMS: &[Enumeration] = &[$(Enumeration {
            name: stringify!($name),
            is_flags: matches!(stringify!($kind).as_bytes(), b"flags"),
            constants: &[$((stringify!($constant), $value),)*],
            show: |value| {
                let value = cuda_sys::$name(value as $repr);
                (value.name(), format!("{value:?}"))
            },
            default: || i64::from(cuda_sys::$name::default().0),
        },)*];
    };
}

include!("../../../cuda-sys/src/bindings/enums.rs");

#[test]
fn every_constant_prints_as_its_name() {
    for each in ENUMS {
        for (name, value) in each.constants {
            let (found, debug) = (each.show)(*value);
            // Several names may have the same value. The first one is printed.
            let first = each.constants.iter().find(|(_, other)| other == value);
            let (first, _) = first.expect("the constant itself");
            assert_eq!(found, Some(*first), "{}::{name}", each.name);
            assert_eq!(debug, *first, "{}::{name}", each.name);
        }
    }
}

#[test]
fn the_default_of_every_enum_is_zero() {
    for each in ENUMS {
        assert_eq!((each.default)(), 0, "{}", each.name);
    }
}

#[test]
fn values_without_a_name_print_as_numbers() {
    for each in ENUMS.iter().filter(|each| !each.is_flags) {
        let (found, debug) = (each.show)(1_234_567);
        assert_eq!(found, None);
        assert_eq!(debug, format!("{}(1234567)", each.name));
    }
}

#[test]
fn flags_print_every_bit() {
    // Parses `Debug` output: returns the union of the flags and numbers that ` | ` separates.
    let bits = |each: &Enumeration, text: &str| {
        text.split(" | ").fold(0, |bits, word| {
            let named = each.constants.iter().find(|(name, _)| *name == word);
            let value = named.map_or_else(
                || {
                    let digits = word.strip_prefix("0x").expect("a name or a number");
                    i64::from_str_radix(digits, 16).expect("a number")
                },
                |(_, value)| *value,
            );
            bits | value
        })
    };
    for each in ENUMS.iter().filter(|each| each.is_flags) {
        let single = (0..31).map(|bit| 1 << bit);
        let pairs = (0..30).map(|bit| 0b11 << bit);
        for value in (0..1024).chain(single).chain(pairs).chain([0x7fff_ffff]) {
            let (_, text) = (each.show)(value);
            assert_eq!(bits(each, &text), value, "{}: {text}", each.name);
        }
    }
}

#[test]
fn flags_combine() {
    let both = CUctx_flags::CU_CTX_SCHED_SPIN | CUctx_flags::CU_CTX_MAP_HOST;
    assert_eq!(format!("{both:?}"), "CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST");
    assert!(both.contains(CUctx_flags::CU_CTX_MAP_HOST));
    assert!(!both.contains(CUctx_flags::CU_CTX_SCHED_YIELD));
    assert_eq!(both & CUctx_flags::CU_CTX_SCHED_MASK, CUctx_flags(1));
    let mut more = both;
    more |= CUctx_flags(1 << 20);
    assert!(format!("{more:?}").ends_with("| 0x100000"), "{more:?}");
    let none = CUevent_flags::default();
    assert_eq!(format!("{none:?}"), "CU_EVENT_DEFAULT");
    assert!(none.contains(none));
    assert_eq!(format!("{:?}", CUmoduleLoadingMode(9)), "CUmoduleLoadingMode(9)");
}

#[test]
fn the_default_of_every_record_is_zero() {
    let launch = CUlaunchConfig::default();
    assert_eq!((launch.gridDimX, launch.blockDimZ), (0, 0));
    assert_eq!((launch.sharedMemBytes, launch.numAttrs), (0, 0));
    assert!(launch.hStream.is_null() && launch.attrs.is_null());

    let node = CUDA_KERNEL_NODE_PARAMS_v2::default();
    assert_eq!((node.gridDimX, node.sharedMemBytes), (0, 0));
    assert!(node.func.is_null() && node.kern.is_null() && node.ctx.is_null());
    assert!(node.kernelParams.is_null() && node.extra.is_null());

    let create = CUctxCreateParams::default();
    assert_eq!(create.numExecAffinityParams, 0);
    assert!(create.execAffinityParams.is_null() && create.cigParams.is_null());

    // Fields reserved for later drivers must be zero.
    let pool = CUmemPoolProps::default();
    assert_eq!((pool.maxSize, pool.usage), (0, 0));
    assert!(pool.win32SecurityAttributes.is_null());
    assert!(pool.reserved.iter().all(|byte| *byte == 0));

    let attribute = CUlaunchAttribute::default();
    assert_eq!(attribute.id.0, 0);
    // SAFETY: `pad` is an array of bytes, and the whole union is initialized with zeros.
    let value = unsafe { attribute.value.pad };
    assert!(value.iter().all(|byte| *byte == 0));

    let resource = CUdevResource::default();
    assert_eq!(resource.type_.0, 0);
    assert!(resource._internal_padding.iter().all(|byte| *byte == 0));
    assert!(resource.nextResource.is_null());
    // SAFETY: `_oversize` is an array of bytes, and the whole union is initialized with zeros.
    let value = unsafe { resource.__bindgen_anon_1._oversize };
    assert!(value.iter().all(|byte| *byte == 0));
}
