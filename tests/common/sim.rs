//! The kernels of tests/kernels, implemented for the software driver.

use cuda_sim::kernel::register;

pub(crate) fn register_kernels() {
    register("start", |launch| {
        let graph = launch.value::<u64>(0)?;
        launch.launch_graph(graph)
    });
    register_texture_kernels();
}

fn register_texture_kernels() {
    // The software driver takes the dimensions from the texture.
    for name in ["sample_1d", "sample_2d", "sample_3d", "sample_layers"] {
        register(name, |launch| {
            let n = launch.value::<u32>(3)? as usize;
            let at = launch.read::<f32>(1, 4 * n)?;
            let mut results = Vec::new();
            for at in at.chunks_exact(4) {
                results.extend(launch.sample(0, [at[0], at[1], at[2]])?);
            }
            #[allow(clippy::cast_possible_truncation, reason = "texels are no wider")]
            launch.update::<f32>(2, 4 * n, |i, _| results[i] as f32)
        });
    }
    register("sample_integers", |launch| {
        let n = launch.value::<u32>(3)? as usize;
        let at = launch.read::<f32>(1, 4 * n)?;
        let mut results = Vec::new();
        for at in at.chunks_exact(4) {
            results.extend(launch.sample(0, [at[0], at[1], at[2]])?);
        }
        // Signed integers are extended to 32 bits.
        #[allow(clippy::cast_possible_truncation, reason = "texels are integers")]
        launch.update::<u32>(2, 4 * n, |i, _| results[i] as i64 as u32)
    });
    register("fetch", |launch| {
        let (first, n) = (launch.value::<i32>(1)?, launch.value::<u32>(3)? as usize);
        let mut results = Vec::new();
        for i in 0..n {
            results.extend(launch.fetch(0, first + i as i32)?);
        }
        #[allow(clippy::cast_possible_truncation, reason = "texels are no wider")]
        launch.update::<f32>(2, 4 * n, |i, _| results[i] as f32)
    });
    register("add_to_surface", |launch| {
        let (width, height) = (launch.value::<u32>(1)?, launch.value::<u32>(2)?);
        let by = launch.value::<u32>(3)?;
        for y in 0..height as usize {
            for x in 0..width as usize {
                let at = [4 * x, y, 0];
                let before = launch.read_surface::<u32>(0, at)?;
                launch.write_surface(0, at, before.wrapping_add(by))?;
            }
        }
        Ok(())
    });
}
