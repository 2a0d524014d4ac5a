//! Kernel launches and host functions.

pub(crate) mod arguments;
pub(crate) mod attribute;
pub(crate) mod occupancy;

use crate::api::launch::arguments::copy_arguments;
use crate::api::module::function::{most_dynamic_shared, required_cluster};
use crate::api::prelude::*;
use crate::code::Limits;
use crate::exec::Runnable;
use crate::exec::{Call, HostFunction, Work, note_given};
use crate::profile::Gpu;
use crate::state::process::error_log::because;
use cuda_sys::{
    CUaccessProperty, CUhostFn, CUlaunchAttribute, CUlaunchAttributeID as Id,
    CUlaunchAttributePortableClusterMode as Mode, CUlaunchConfig, CUstreamCallback, CudaVersion,
};
use std::collections::BTreeMap;

/// These limits are the same on every GPU.
const MAX_GRID_X: u32 = i32::MAX.unsigned_abs();
const MAX_GRID_YZ: u32 = 65_535;

/// The configuration of a launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) cluster: Option<[u32; 3]>,
    /// Whether clusters may be larger than the size that every device supports.
    pub(crate) non_portable: bool,
    pub(crate) cooperative: bool,
    /// Events that the launch records.
    events: Vec<usize>,
    /// The attributes, by number.
    pub(crate) attributes: BTreeMap<u32, [c_char; 64]>,
}

impl Shape {
    /// Returns a configuration without attributes.
    pub(crate) fn new(grid: [u32; 3], block: [u32; 3], shared: u32) -> Self {
        Self { grid, block, shared, ..Self::default() }
    }

    /// # Safety
    /// `config` is null or points to a configuration with the number of attributes that it states.
    pub(crate) unsafe fn of_config(world: &World, config: *const CUlaunchConfig) -> Answer<Self> {
        // SAFETY: the caller guarantees null or a valid configuration.
        let config = unsafe { config.as_ref() }.ok_or(INVALID)?;
        let mut shape = Self {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared: config.sharedMemBytes,
            ..Self::default()
        };
        for index in 0..config.numAttrs as usize {
            // SAFETY: the caller guarantees `numAttrs` attributes.
            let attribute = unsafe { config.attrs.add(index) };
            // SAFETY: the caller guarantees `numAttrs` attributes.
            let attribute = unsafe { attribute.read() };
            shape.add(world, &attribute)?;
        }
        Ok(shape)
    }

    /// Adds an attribute. Unverified (from documentation): which values are rejected, and with which
    /// codes.
    pub(crate) fn add(&mut self, world: &World, attribute: &CUlaunchAttribute) -> Answer {
        let invalid = INVALID;
        if since(attribute.id).is_none_or(|since| since > world.settings.profile.driver) {
            return Err(invalid);
        }
        let domains = if world.settings.profile.gpu.capability.0 < 9 { 1 } else { 4 };
        let value = &attribute.value;
        match attribute.id {
            Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => {
                // SAFETY: this field belongs to the attribute.
                self.cooperative = unsafe { value.cooperative } != 0;
            }
            Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                // SAFETY: this field belongs to the attribute.
                let its = unsafe { value.clusterDim };
                self.cluster = Some([its.x, its.y, its.z]);
            }
            Id::CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE => {
                // SAFETY: this field belongs to the attribute.
                let mode = unsafe { value.portableClusterSizeMode };
                self.non_portable =
                    mode == Mode::CU_LAUNCH_PORTABLE_CLUSTER_MODE_ALLOW_NON_PORTABLE;
            }
            Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT => {
                // SAFETY: this field belongs to the attribute.
                self.record(world, unsafe { value.programmaticEvent }.event)?;
            }
            Id::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                // SAFETY: this field belongs to the attribute.
                self.record(world, unsafe { value.launchCompletionEvent }.event)?;
            }
            Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => {
                // SAFETY: this field belongs to the attribute.
                let window = unsafe { value.accessPolicyWindow };
                let persists = window.missProp == CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING;
                fail_if(persists || !(0.0..=1.0).contains(&window.hitRatio), invalid)?;
            }
            Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
                // SAFETY: this field belongs to the attribute.
                let map = unsafe { value.memSyncDomainMap };
                fail_if(map.default_ >= domains || map.remote >= domains, invalid)?;
            }
            Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                // SAFETY: this field belongs to the attribute.
                let percent = unsafe { value.sharedMemCarveout };
                fail_if(percent > 100, invalid)?;
            }
            // Hints, and attributes that relax the usual order. They need no action here.
            _ => {}
        }
        self.attributes.insert(attribute.id.0, attribute::bytes(attribute.id, value));
        Ok(())
    }

    fn record(&mut self, world: &World, event: CUevent) -> Answer {
        fail_if(world.event(event.addr())?.timing, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        self.events.push(event.addr());
        Ok(())
    }

    fn blocks(&self) -> u64 {
        let extents = self.grid.iter().map(|extent| u64::from(*extent));
        extents.fold(1, u64::saturating_mul)
    }

    /// Checks that the device can run the launch.
    pub(crate) fn check(&self, kernel: &Runnable, gpu: &Gpu, sms: usize) -> Answer {
        let invalid = Err(INVALID);
        let (limits, settings) = (&kernel.info.limits, &kernel.settings);
        let [gx, gy, gz] = self.grid;
        let extents = self.block.iter().map(|extent| u64::from(*extent));
        let threads = extents.fold(1, u64::saturating_mul);
        let far = gx > MAX_GRID_X || gy > MAX_GRID_YZ || gz > MAX_GRID_YZ;
        let many = threads > u64::from(limits.threads) || self.block[2] > 64;
        if far || self.grid.contains(&0) || threads == 0 || many {
            let [x, y, z] = self.block;
            match self.grid.iter().position(|extent| *extent == 0) {
                Some(axis) => {
                    because(format!("Grid Dimension {} must be nonzero", ['X', 'Y', 'Z'][axis]))
                }
                None if many => because(format!(
                    "One or more of block dimensions of ({x},{y},{z}) exceeds corresponding maximum \
                     value"
                )),
                None => {}
            }
            return invalid;
        }
        if self.shared > most_dynamic_shared(limits, settings) {
            because(format!(
                "Requested dynamic shared memory size of {} exceeds the maximum",
                self.shared
            ));
            return invalid;
        }
        let required = required_cluster(limits, settings);
        if let Some(cluster) = self.cluster.or(required) {
            fail_if(gpu.capability.0 < 9, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
            let extents = cluster.iter().map(|extent| u64::from(*extent));
            let blocks = extents.fold(1, u64::saturating_mul);
            let most = Limits::largest_cluster(settings, self.non_portable);
            let fits = |(grid, cluster): (&u32, &u32)| grid.checked_rem(*cluster) == Some(0);
            let divides = self.grid.iter().zip(&cluster).all(fits);
            let other = required.is_some_and(|required| required != cluster);
            if blocks > u64::from(most) || !divides || other {
                return invalid;
            }
        }
        if self.cooperative {
            let threads = u32::try_from(threads).unwrap_or(u32::MAX);
            let each = limits.blocks_per_sm(settings, gpu, threads, self.shared as usize);
            if self.blocks() > u64::from(each) * sms as u64 {
                return Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
            }
        }
        Ok(())
    }
}

/// Returns the first driver version that supports a launch attribute, or `None` if launches do not have
/// it.
fn since(id: Id) -> Option<CudaVersion> {
    let (major, minor) = match id.0 {
        0..=2 | 4..=8 => (11, 8),
        9 | 10 => (12, 0),
        11 => (12, 8),
        12 => (12, 3),
        13 => (12, 4),
        14 => (12, 5),
        16 => (13, 0),
        17 | 18 => (13, 2),
        _ => return None,
    };
    Some(CudaVersion::new(major, minor))
}

pub(crate) fn kernel(
    world: &mut World,
    function: CUfunction,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let shape = Shape::new([gx, gy, gz], [bx, by, bz], shared);
    launch(world, function, shape, stream, params, extra)
}

pub(crate) fn cooperative(
    world: &mut World,
    function: CUfunction,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
) -> Answer {
    let shape = Shape {
        grid: [gx, gy, gz],
        block: [bx, by, bz],
        shared,
        cooperative: true,
        ..Shape::default()
    };
    launch(world, function, shape, stream, params, core::ptr::null_mut())
}

pub(crate) fn kernel_ex(
    world: &mut World,
    config: *const CUlaunchConfig,
    function: CUfunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    // SAFETY: the caller passes null or a configuration with the number of attributes that it states.
    let shape = unsafe { Shape::of_config(world, config) }?;
    // SAFETY: `of_config` has checked that the pointer is not null.
    let stream = unsafe { &raw const (*config).hStream };
    // SAFETY: `of_config` has checked that the pointer is not null.
    let stream = unsafe { stream.read() };
    launch(world, function, shape, stream, params, extra)
}

fn launch(
    world: &mut World,
    function: CUfunction,
    shape: Shape,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    let its = world.objects.streams.get(stream);
    let (home, green) = its.map_or((0, None), |its| (its.context, its.green));
    let prepared = prepare(world, function.addr(), &shape, (home, green));
    if prepared.is_err() {
        // Measured for a grid without blocks: the capture becomes invalid.
        world.recording(stream)?.into_iter().for_each(|capture| world.break_capture(capture));
    }
    let mut call = prepared?;
    // Measured.
    let too_long = match world.recording(stream)? {
        Some(_) => INVALID,
        None => CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    };
    // SAFETY: the caller passes the arguments in one of the two forms.
    unsafe { copy_arguments(&mut call, params, extra, too_long) }?;
    if let Some(function) = world.objects.functions.get_mut(function.addr()) {
        function.settings.loaded = true;
    }
    world.give_or_capture(stream, Work::Kernel(Box::new(call)))?;
    // An event of a launch is recorded as late as allowed, at the end of the kernel.
    for event in shape.events {
        crate::api::event::record(
            world,
            crate::api::context::pointer(event),
            crate::api::context::pointer(stream),
        )?;
    }
    Ok(())
}

/// Returns a launch without arguments, after checks of everything else. `home` is the context of the
/// launch, which is not a view, and its green context.
pub(crate) fn prepare(
    world: &mut World,
    function: usize,
    shape: &Shape,
    (home, green): (usize, Option<usize>),
) -> Answer<Call> {
    let module = world.function(function)?.module;
    // A library's variables are allocated in a context when one of its kernels is first used there.
    if world.objects.libraries.get(module).is_some() {
        world.place_variables(module, home)?;
    }
    let (kernel, context) = world.runnable(function, home)?;
    fail_if(context.is_some_and(|context| context != home), CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let green = green.and_then(|green| world.objects.greens.get(green));
    let partition = green.map(|green| (green.id, green.wholes.clone()));
    let sms = green.map_or(&world.settings.all_sms, |green| &green.sms).clone();
    shape.check(&kernel, world.settings.profile.gpu, sms.len())?;
    let required = required_cluster(&kernel.info.limits, &kernel.settings);
    Ok(Call {
        kernel,
        context: home,
        device: world.context(home)?.device,
        grid: shape.grid,
        block: shape.block,
        shared: shape.shared,
        cluster: shape.cluster.or(required).unwrap_or([1; 3]),
        cooperative: shape.cooperative,
        arguments: Vec::new(),
        packed: None,
        sms,
        partition,
        attributes: shape.attributes.clone(),
        executable: None,
    })
}

pub(crate) fn host_function(
    world: &mut World,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> Answer {
    fail_if(function.is_none(), INVALID)?;
    let stream = world.stream(stream.addr())?;
    note_given(data);
    let function = HostFunction::Plain(function);
    world.give_or_capture(stream, Work::HostFn { function, data })
}

/// The older function `cuStreamAddCallback`: it cannot be captured, and after a failure the callback
/// gets the error.
pub(crate) fn callback(
    world: &mut World,
    raw: CUstream,
    callback: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> Answer {
    fail_if(callback.is_none() || flags != 0, INVALID)?;
    let stream = world.stream(raw.addr())?;
    world.forbidden_on_capturing(stream)?;
    note_given(data);
    let function = HostFunction::WithResult(callback, raw);
    world.give(stream, Work::HostFn { function, data }, Vec::new());
    Ok(())
}
