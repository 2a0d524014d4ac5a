//! The kernels of tests/kernels, implemented for the software driver.

use cuda_sim::kernel::register;

pub(crate) fn register_kernels() {
    register("add", |launch| {
        let n = launch.value::<u32>(3)? as usize;
        let (a, b) = (launch.read::<f32>(0, n)?, launch.read::<f32>(1, n)?);
        launch.update::<f32>(2, n, |i, _| a[i] + b[i])
    });
    register("scale", |launch| {
        let (factor, offset) = (launch.value::<i32>(1)?, launch.value::<i32>(2)?);
        let n = launch.value::<u32>(3)? as usize;
        launch.update::<i32>(0, n, |_, x| x.wrapping_mul(factor).wrapping_add(offset))
    });
    let pattern = |i: usize, tag: u32| tag ^ (i as u32).wrapping_mul(0x9e37_79b9);
    register("write_pattern", move |launch| {
        let (n, tag) = (launch.value::<u32>(1)? as usize, launch.value::<u32>(2)?);
        launch.update::<u32>(0, n, |i, _| pattern(i, tag))
    });
    register("check_pattern", move |launch| {
        let (n, tag) = (launch.value::<u32>(1)? as usize, launch.value::<u32>(2)?);
        let found = launch.read::<u32>(0, n)?;
        let wrong = found.iter().enumerate();
        let wrong: Vec<u32> =
            wrong.filter(|(i, its)| **its != pattern(*i, tag)).map(|(_, its)| *its).collect();
        let Some(last) = wrong.last().copied() else {
            return launch.update::<u32>(3, 3, |_, before| before);
        };
        let count = wrong.len() as u32;
        launch.update::<u32>(3, 3, |i, before| [before.wrapping_add(count), tag, last][i])
    });
    register("nothing", |_| Ok(()));
    register("record_smid", |launch| {
        let blocks = launch.blocks();
        let sms: Vec<u32> = (0..blocks).map(|block| launch.sm_of_block(block)).collect();
        launch.update::<u32>(0, blocks, |block, _| sms[block])
    });
    register("through_shared", |launch| {
        let bytes = launch.value::<u32>(1)?;
        if bytes > launch.shared_bytes() {
            return Err("a store beyond the shared memory".to_owned());
        }
        launch.update::<u32>(0, 1, |_, _| bytes)
    });
    register("sum_of_nineteen", |launch| {
        let mut sum = 0u32;
        for index in 1..20 {
            let value = launch.value::<u32>(index)?;
            sum = sum.wrapping_add(value.wrapping_mul(index as u32));
        }
        launch.update::<u32>(0, 1, |_, _| sum)
    });
    register("by_value", |launch| {
        let word = |argument, offset: usize| -> Result<u32, String> {
            let bytes = launch.value_bytes(argument)?.get(offset..offset + 4);
            let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
            Ok(u32::from_ne_bytes(bytes.ok_or("too short")?))
        };
        let words = [
            u32::from(launch.value::<u8>(1)?),
            u32::from(launch.value_bytes(2)?[0]),
            word(2, 4)?,
            word(3, 0)?,
            word(3, 120)?,
            word(4, 0)?,
            word(4, 16)?,
        ];
        launch.update::<u32>(0, words.len(), |index, _| words[index])
    });
    register("bounded", |launch| launch.update::<u32>(0, 1, |_, _| 7));
    register("bump", |launch| {
        let by = launch.value::<u32>(0)?;
        launch.update_variable::<u32>("counter", 1, |_, x| x.wrapping_add(by))
    });
    register("factor", |launch| {
        let index = launch.value::<u32>(1)? as usize;
        let factors = launch.read_variable::<f32>("factors", 4)?;
        launch.update::<f32>(0, 1, |_, _| factors[index])
    });
    register("copy_everywhere", |launch| {
        let value = launch.read_variable::<u32>("everywhere", 1)?[0];
        launch.update::<u32>(0, 1, |_, _| value)
    });
    register("apply", |launch| {
        let threads = launch.block()[0] as usize;
        launch.update::<u32>(0, threads, |_, x| x.wrapping_add(x))
    });
    register("meet", |launch| {
        let blocks = launch.grid()[0];
        if blocks > 1 && !launch.is_cooperative() {
            return Err("blocks wait for blocks that may never run".to_owned());
        }
        launch.update::<u32>(0, 1, |_, x| x.wrapping_add(blocks))
    });
    register("cluster_ranks", |launch| {
        // Only along x, which is how the tests launch it.
        let size = launch.cluster()[0];
        let blocks = launch.blocks();
        launch.update::<u32>(0, blocks, |block, _| (size << 16) | (block as u32 % size))
    });
    register("pdl_first", |launch| launch.update::<u32>(0, 1, |_, _| 41));
    register("pdl_second", |launch| launch.update::<u32>(0, 1, |_, x| x + 1));
    register("choose", |launch| {
        let (handle, value) = (launch.value::<u64>(0)?, launch.value::<u32>(1)?);
        launch.set_conditional(handle, value)
    });
    register("count_down", |launch| {
        let handle = launch.value::<u64>(0)?;
        launch.update::<u32>(1, 1, |_, left| left.wrapping_sub(1))?;
        let left = launch.read::<u32>(1, 1)?[0];
        launch.set_conditional(handle, left)
    });
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
