//! Kernel attributes and settings.
//!
//! Unverified (from documentation), except for the default limit of 48 KiB. PTX is not compiled to machine code,
//! so a kernel of PTX has no registers, and its local memory and constant memory are those that the text declares. A
//! compiler can keep local memory in registers.

use crate::api::prelude::*;
use crate::code::Limits;
use crate::exec::FunctionSettings;
use crate::state::objects::Function;
use cuda_sys::{
    CUfunc_cache, CUfunction_attribute as Attribute, CUfunctionLoadingState, CUmoduleLoadingMode,
    CUsharedconfig, CudaVersion,
};

/// Limit of the dynamic and static shared memory of a block, unless a higher limit is set.
const USUAL_SHARED: u32 = 48 * 1024;

/// Returns the maximum dynamic shared memory of a launch.
pub(crate) fn most_dynamic_shared(limits: &Limits, settings: &FunctionSettings) -> u32 {
    let usual = USUAL_SHARED.saturating_sub(limits.shared);
    settings.dynamic_shared.unwrap_or(usual)
}

/// Returns the cluster size that the PTX or the setting requires, or `None` if any size is allowed.
pub(crate) fn required_cluster(limits: &Limits, settings: &FunctionSettings) -> Option<[u32; 3]> {
    let all = [limits.cluster, settings.cluster];
    all.into_iter().find(|cluster| *cluster != [0; 3])
}

fn since(attribute: Attribute) -> Option<CudaVersion> {
    let (major, minor) = match attribute.0 {
        0..=9 => (11, 7),
        10..=15 => (11, 8),
        16 => (13, 3),
        17 => (13, 4),
        _ => return None,
    };
    Some(CudaVersion::new(major, minor))
}

fn check_known(world: &World, attribute: Attribute) -> Answer {
    match since(attribute) {
        Some(since) if since <= world.settings.profile.driver => Ok(()),
        _ => Err(INVALID),
    }
}

pub(crate) fn attribute(
    world: &mut World,
    attribute: Attribute,
    function: CUfunction,
) -> Answer<c_int> {
    check_known(world, attribute)?;
    let limits = world.kernel_info(function.addr())?.limits;
    let settings = world.function(function.addr())?.settings;
    let gpu = world.settings.profile.gpu;
    let cluster = required_cluster(&limits, &settings).unwrap_or([0; 3]);
    let answer = match attribute {
        Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => limits.threads,
        Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => limits.shared,
        Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => limits.constant,
        Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => limits.local,
        Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS => limits.registers,
        Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION => limits.target,
        Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION => gpu.capability.0 * 10 + gpu.capability.1,
        Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            most_dynamic_shared(&limits, &settings)
        }
        Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
            // -1 means that the driver chooses.
            settings.carveout.unwrap_or(u32::MAX)
        }
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => cluster[0],
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => cluster[1],
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => cluster[2],
        Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
            u32::from(settings.non_portable)
        }
        Attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => settings.policy,
        Attribute::CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE => settings.shared_mode,
        Attribute::CU_FUNC_ATTRIBUTE_DEVICE_NODE_UPDATE_SUPPORTED => 1,
        _ => 0,
    };
    Ok(c_int::from_ne_bytes(answer.to_ne_bytes()))
}

pub(crate) fn set_attribute(
    world: &mut World,
    function: CUfunction,
    attribute: Attribute,
    value: c_int,
) -> Answer {
    check_known(world, attribute)?;
    let limits = world.kernel_info(function.addr())?.limits;
    let opt_in = world.settings.profile.gpu.shared_opt_in();
    let settings = &mut function_mut(world, function)?.settings;
    let number = u32::try_from(value);
    let invalid = INVALID;
    match attribute {
        Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let bytes = number.map_err(|_| invalid)?;
            fail_if(bytes.saturating_add(limits.shared) > opt_in, invalid)?;
            settings.dynamic_shared = Some(bytes);
        }
        Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => match value {
            -1 => settings.carveout = None,
            0..=100 => settings.carveout = number.ok(),
            _ => return Err(invalid),
        },
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
        | Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
        | Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => {
            fail_if(limits.cluster != [0; 3], CUresult::CUDA_ERROR_NOT_PERMITTED)?;
            let first = Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH.0;
            settings.cluster[(attribute.0 - first) as usize] = number.map_err(|_| invalid)?;
        }
        Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
            settings.non_portable = value != 0;
        }
        Attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
            settings.policy = number.ok().filter(|policy| *policy <= 3).ok_or(invalid)?;
        }
        Attribute::CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE => {
            settings.shared_mode = number.ok().filter(|mode| *mode <= 4).ok_or(invalid)?;
        }
        _ => return Err(invalid),
    }
    Ok(())
}

fn function_mut(world: &mut World, function: CUfunction) -> Answer<&mut Function> {
    world.function(function.addr())?;
    let function = world.objects.functions.get_mut(function.addr());
    function.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

pub(crate) fn set_cache(
    world: &mut World,
    function: CUfunction,
    preference: CUfunc_cache,
) -> Answer {
    fail_if(preference.0 > 3, INVALID)?;
    function_mut(world, function)?.settings.cache = preference.0;
    Ok(())
}

/// Returns an attribute of a library's kernel. Kernels have the same attributes on every device.
pub(crate) fn kernel_attribute(
    world: &mut World,
    value: Out<c_int>,
    attribute: Attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> Answer {
    world.device(device)?;
    value.required()?;
    value.put(self::attribute(world, attribute, kernel.cast())?)
}

/// Sets an attribute of a library's kernel, on every device.
pub(crate) fn set_kernel_attribute(
    world: &mut World,
    attribute: Attribute,
    value: c_int,
    kernel: CUkernel,
    device: CUdevice,
) -> Answer {
    world.device(device)?;
    set_attribute(world, kernel.cast(), attribute, value)
}

pub(crate) fn set_kernel_cache(
    world: &mut World,
    kernel: CUkernel,
    preference: CUfunc_cache,
    device: CUdevice,
) -> Answer {
    world.device(device)?;
    set_cache(world, kernel.cast(), preference)
}

/// Has no effect on GPUs with a fixed bank size. Unverified (from documentation).
pub(crate) fn set_bank_size(
    world: &mut World,
    function: CUfunction,
    config: CUsharedconfig,
) -> Answer {
    world.function(function.addr())?;
    crate::api::context::settings::check_bank_size(config)
}

/// Lazy by default since CUDA 12.2 (from documentation).
pub(crate) fn loading_mode(world: &mut World) -> Answer<CUmoduleLoadingMode> {
    Ok(if world.settings.profile.driver < CudaVersion::new(12, 2) {
        CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING
    } else {
        CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING
    })
}

pub(crate) fn load(world: &mut World, function: CUfunction) -> Answer {
    function_mut(world, function)?.settings.loaded = true;
    Ok(())
}

pub(crate) fn is_loaded(world: &mut World, function: CUfunction) -> Answer<CUfunctionLoadingState> {
    Ok(match world.function(function.addr())?.settings.loaded {
        true => CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED,
        false => CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_UNLOADED,
    })
}
