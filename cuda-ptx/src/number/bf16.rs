//! The bfloat format, on bit patterns.

super::half::arithmetic!(
    Bf16,
    from_bf16,
    to_bf16,
    fma_bf16,
    0x7f80,
    0x0080,
    0x3f80,
    f32::from_bits(0x007f_c000)
);
