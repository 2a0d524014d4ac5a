//! Half precision, on bit patterns.

super::half::arithmetic!(
    F16,
    from_f16,
    to_f16,
    fma_f16,
    0x7c00,
    0x0400,
    0x3c00,
    f32::from_bits(0x387f_f000)
);
