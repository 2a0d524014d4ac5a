//! The kernels of kernels.cu for the software driver, which runs no machine code.

use cuda_sim::kernel::{Launch, Plain, register};

pub(crate) fn register_kernels() {
    register_for::<f32>("f32", |a, b| a + b, |a, b| a * b);
    register_for::<i32>("i32", i32::wrapping_add, i32::wrapping_mul);
}

fn register_for<T: Plain + Default + PartialOrd>(
    suffix: &str,
    add: fn(T, T) -> T,
    mul: fn(T, T) -> T,
) {
    binary(&format!("add_{suffix}"), add);
    binary(&format!("mul_{suffix}"), mul);
    binary(&format!("max_{suffix}"), |a: T, b: T| if a > b { a } else { b });
    register(&format!("sum_{suffix}"), move |launch| {
        let [rows, columns, _] = numbers(launch)?;
        let a = launch.read::<T>(0, rows * columns)?;
        launch.update::<T>(2, rows, |row, _| {
            let row = &a[row * columns..][..columns];
            row.iter().copied().fold(T::default(), add)
        })
    });
    register(&format!("matmul_{suffix}"), move |launch| {
        let [rows, inner, columns] = numbers(launch)?;
        let a = launch.read::<T>(0, rows * inner)?;
        let b = launch.read::<T>(1, inner * columns)?;
        launch.update::<T>(2, rows * columns, |i, _| {
            let (row, column) = (i / columns, i % columns);
            let product = |k| mul(a[row * inner + k], b[k * columns + column]);
            (0..inner).map(product).fold(T::default(), add)
        })
    });
}

fn binary<T: Plain>(name: &str, operation: fn(T, T) -> T) {
    register(name, move |launch| {
        let [n, step, _] = numbers(launch)?;
        let a = launch.read::<T>(0, n)?;
        let b = launch.read::<T>(1, (n - 1) * step + 1)?;
        launch.update::<T>(2, n, |i, _| operation(a[i], b[i * step]))
    });
}

/// Returns the three numbers at the end of the parameters.
fn numbers(launch: &Launch<'_>) -> Result<[usize; 3], String> {
    let number = |index| launch.value::<u32>(index).map(|number| number as usize);
    Ok([number(3)?, number(4)?, number(5)?])
}
