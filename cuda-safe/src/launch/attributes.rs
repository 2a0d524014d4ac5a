//! Launch attributes.

use super::LaunchConfig;
use crate::call::{Invalid, Result, init, refuse_if};
use crate::context::Context;
use crate::event::Event;
use crate::stream::same_context;
use core::ffi::c_void;
use cuda_sys::{
    CUaccessPolicyWindow, CUaccessProperty, CUclusterSchedulingPolicy, CUdeviceptr,
    CUlaunchAttribute, CUlaunchAttributeID as Id, CUlaunchAttributePortableClusterMode,
    CUlaunchAttributeValue, CUlaunchConfig, CUlaunchMemSyncDomain, CUlaunchMemSyncDomainMap,
    CUsharedMemoryMode, CUstream, CudaVersion,
};
use std::mem::MaybeUninit;

/// Attributes of a launch (`CUlaunchAttribute`), for
/// [`TypedKernel::launch_with`](super::TypedKernel::launch_with). The default sets none.
///
/// Later versions may add fields: end each value with `..Default::default()`.
///
/// They are passed to the driver in an array on the stack, so a launch with attributes allocates
/// nothing either.
///
/// ```no_run
/// use cuda_safe::{LaunchConfig, TypedKernel};
/// use cuda_safe::launch::LaunchAttributes;
///
/// # let context = cuda_safe::Context::primary(&cuda_safe::Device::get(0)?)?;
/// # let stream = context.stream()?;
/// # let module = cuda_safe::Module::from_ptx(&context, "")?;
/// # let reduce: TypedKernel<()> = module.kernel("nothing")?.typed()?;
/// // Clusters of two blocks. The kernel may start while the previous kernel is still running.
/// let attributes = LaunchAttributes {
///     cluster: Some([2, 1, 1]),
///     programmatic_serialization: true,
///     ..Default::default()
/// };
/// let config = LaunchConfig::linear(128, 256);
/// // SAFETY: it has no arguments, and waits (`griddepcontrol.wait`) before it accesses memory.
/// unsafe { reduce.launch_with(&stream, config, &attributes, ()) }?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// # Attributes without a field
/// - `SYNCHRONIZATION_POLICY` applies only to streams.
/// - `DEVICE_UPDATABLE_KERNEL_NODE` applies to graph nodes: see
///   [`Graph::make_device_updatable`](crate::Graph::make_device_updatable).
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchAttributes<'a> {
    /// Whether all blocks must run at the same time, so that they can wait for each other
    /// (`grid.sync()`). A grid that does not fit fails with `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`.
    /// [`Kernel::max_active_blocks`](crate::Kernel::max_active_blocks) returns how many blocks fit.
    pub cooperative: bool,
    /// The cluster size in blocks along x, y and z, which must divide the grid. Requires compute
    /// capability 9.0.
    pub cluster: Option<[u32; 3]>,
    /// A larger cluster size that is used where there is room, in multiples of
    /// [`cluster`](Self::cluster). Since CUDA 12.8; requires compute capability 10.0.
    pub preferred_cluster: Option<[u32; 3]>,
    /// How the blocks of clusters are distributed over the SMs. This is a preference.
    pub cluster_scheduling: Option<CUclusterSchedulingPolicy>,
    /// Whether clusters may be larger than the size that every device with clusters supports. Since
    /// CUDA 13.2.
    pub portable_cluster_mode: Option<CUlaunchAttributePortableClusterMode>,
    /// Whether the kernel may start before the previous kernel in the stream has completed
    /// (programmatic dependent launch). See the safety conditions of
    /// [`launch_with`](super::TypedKernel::launch_with). Requires compute capability 9.0; other devices
    /// ignore it.
    pub programmatic_serialization: bool,
    /// An event that the blocks of the kernel trigger.
    pub programmatic_event: Option<ProgrammaticEvent<'a>>,
    /// An event that completes approximately when all blocks have *begun*. It does not mean that the
    /// kernel is complete. The event must not have [timing](crate::EventOptions::timing). Since CUDA
    /// 12.3.
    pub completion_event: Option<&'a Event>,
    /// The priority of the launch, instead of the stream's. See
    /// [`Context::stream_priorities`](crate::Context::stream_priorities).
    pub priority: Option<i32>,
    /// The logical memory synchronization domain of the kernel. A fence waits only for memory
    /// operations of its own domain. Since CUDA 12.0.
    pub memory_domain: Option<CUlaunchMemSyncDomain>,
    /// The mapping from logical domains to domains of the device. Since CUDA 12.0.
    pub memory_domain_map: Option<MemoryDomainMap>,
    /// Whether a range of global memory should stay in the L2 cache. This is a hint.
    pub access_policy: Option<AccessPolicyWindow>,
    /// The preferred shared memory carveout in percent, instead of the kernel's
    /// [`CARVEOUT`](crate::module::attribute::CARVEOUT). This is a hint. Since CUDA 12.5.
    pub carveout: Option<u8>,
    /// Whether blocks may have more shared memory than every device of the architecture supports. Since
    /// CUDA 13.2.
    pub shared_memory_mode: Option<CUsharedMemoryMode>,
    /// Whether blocks are distributed for high `NVLink` utilization. This is a hint. Since CUDA 13.0.
    pub nvlink_centric: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// An event that a launch records when each of its blocks has triggered it (PTX
/// `griddepcontrol.launch_dependents`) or has ended.
///
/// The event does not mean that the kernel is complete: work that waits for it may run while the kernel
/// is still running. It is meant for kernels that wait for the rest themselves.
#[derive(Clone, Copy, Debug)]
pub struct ProgrammaticEvent<'a> {
    /// The event. It must belong to the stream's context and must not have
    /// [timing](crate::EventOptions::timing).
    pub event: &'a Event,
    /// Whether blocks trigger the event implicitly when they begin.
    pub at_block_start: bool,
}

/// A mapping from logical domains to the device's memory synchronization domains
/// (`CUlaunchMemSyncDomainMap`). The device attribute
/// [`MEM_SYNC_DOMAIN_COUNT`](crate::device::attribute::MEM_SYNC_DOMAIN_COUNT) is their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryDomainMap {
    /// The domain for `CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT`.
    pub default: u8,
    /// The domain for `CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE`.
    pub remote: u8,
}

/// A caching hint for a range of global memory in the L2 cache (`CUaccessPolicyWindow`). The hint reads
/// and writes nothing, so any range is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessPolicyWindow {
    /// The device address at which the range starts.
    pub address: CUdeviceptr,
    /// The length of the range in bytes, at most
    /// [`MAX_ACCESS_POLICY_WINDOW_SIZE`](crate::device::attribute::MAX_ACCESS_POLICY_WINDOW_SIZE).
    pub bytes: usize,
    /// The fraction of accesses that are treated as hits, from 0 to 1. The driver chooses which ones.
    pub hit_ratio: f32,
    /// The access property of hits.
    pub hit: CUaccessProperty,
    /// The access property of misses: normal or streaming.
    pub miss: CUaccessProperty,
}

/// The maximum number of attributes of a launch: the number of attributes that
/// [`LaunchAttributes::fill`] may add.
const ROOM: usize = 15;

/// The attributes in the driver's representation. The list is filled in place, because moving or
/// zeroing a kilobyte for two attributes would be wasteful.
pub(crate) struct List {
    attributes: [MaybeUninit<CUlaunchAttribute>; ROOM],
    /// The number of initialized attributes.
    count: u32,
    /// The newest attribute in the list, and the CUDA version that introduced it.
    newest: Option<(&'static str, CudaVersion)>,
}

impl LaunchAttributes<'_> {
    /// Adds the attributes for a launch in `context` to an empty list.
    ///
    /// # Errors
    /// An event of another context; [`Invalid::LaunchAttribute`]; an attribute that is newer than the
    /// driver, which might ignore it.
    #[inline]
    pub(crate) fn fill(&self, list: &mut List, context: &Context) -> Result<()> {
        let Self {
            cooperative,
            cluster,
            preferred_cluster,
            cluster_scheduling,
            portable_cluster_mode,
            programmatic_serialization,
            programmatic_event,
            completion_event,
            priority,
            memory_domain,
            memory_domain_map,
            access_policy,
            carveout,
            shared_memory_mode,
            nvlink_centric,
            _non_exhaustive: (),
        } = self;
        if *cooperative {
            let id = Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            list.add("cooperative", id, None, |value| value.cooperative = 1);
        }
        if let Some(cluster) = *cluster {
            let [x, y, z] = extents("cluster", cluster)?;
            let id = Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            list.add("cluster", id, None, |value| {
                value.clusterDim = cuda_sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            });
        }
        if let Some(cluster) = *preferred_cluster {
            let [x, y, z] = extents("preferred_cluster", cluster)?;
            let id = Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
            list.add("preferred_cluster", id, Some((12, 8)), |value| {
                value.preferredClusterDim =
                    cuda_sys::CUlaunchAttributeValue_union__bindgen_ty_4 { x, y, z };
            });
        }
        if let Some(policy) = *cluster_scheduling {
            let id = Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
            list.add("cluster_scheduling", id, None, |value| {
                value.clusterSchedulingPolicyPreference = policy;
            });
        }
        if let Some(mode) = *portable_cluster_mode {
            let id = Id::CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE;
            list.add("portable_cluster_mode", id, Some((13, 2)), |value| {
                value.portableClusterSizeMode = mode;
            });
        }
        if *programmatic_serialization {
            let id = Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            list.add("programmatic_serialization", id, None, |value| {
                value.programmaticStreamSerializationAllowed = 1;
            });
        }
        if let Some(ProgrammaticEvent { event, at_block_start }) = *programmatic_event {
            same_context("the event", event.context(), context)?;
            let id = Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
            list.add("programmatic_event", id, None, |value| {
                value.programmaticEvent = cuda_sys::CUlaunchAttributeValue_union__bindgen_ty_2 {
                    event: event.raw(),
                    flags: 0,
                    triggerAtBlockStart: at_block_start.into(),
                };
            });
        }
        if let Some(event) = *completion_event {
            same_context("the event", event.context(), context)?;
            let id = Id::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
            list.add("completion_event", id, Some((12, 3)), |value| {
                value.launchCompletionEvent =
                    cuda_sys::CUlaunchAttributeValue_union__bindgen_ty_3 {
                        event: event.raw(),
                        flags: 0,
                    };
            });
        }
        if let Some(priority) = *priority {
            let id = Id::CU_LAUNCH_ATTRIBUTE_PRIORITY;
            list.add("priority", id, None, |value| value.priority = priority);
        }
        if let Some(domain) = *memory_domain {
            let id = Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
            list.add("memory_domain", id, Some((12, 0)), |value| {
                value.memSyncDomain = domain;
            });
        }
        if let Some(MemoryDomainMap { default, remote }) = *memory_domain_map {
            let id = Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
            list.add("memory_domain_map", id, Some((12, 0)), |value| {
                value.memSyncDomainMap = CUlaunchMemSyncDomainMap { default_: default, remote };
            });
        }
        if let Some(window) = access_policy {
            let id = Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
            let window = window.checked()?;
            list.add("access_policy", id, None, |value| {
                value.accessPolicyWindow = window;
            });
        }
        if let Some(percent) = *carveout {
            refuse_if!(percent > 100, refused("carveout", percent, "0 to 100 percent"));
            let id = Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            list.add("carveout", id, Some((12, 5)), |value| {
                value.sharedMemCarveout = percent.into();
            });
        }
        if let Some(mode) = *shared_memory_mode {
            let id = Id::CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE;
            list.add("shared_memory_mode", id, Some((13, 2)), |value| {
                value.sharedMemoryMode = mode;
            });
        }
        if *nvlink_centric {
            let id = Id::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
            list.add("nvlink_centric", id, Some((13, 0)), |value| {
                value.nvlinkUtilCentricScheduling = 1;
            });
        }
        list.check_driver()
    }
}

impl List {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { attributes: [const { MaybeUninit::uninit() }; ROOM], count: 0, newest: None }
    }

    /// Adds an attribute. `since` is the version that introduced it, if that is later than
    /// `cuLaunchKernelEx`.
    #[inline]
    fn add(
        &mut self,
        name: &'static str,
        id: Id,
        since: Option<(u16, u16)>,
        set: impl FnOnce(&mut CUlaunchAttributeValue),
    ) {
        // The array has a place for every attribute.
        let Some(place) = self.attributes.get_mut(self.count as usize) else { return };
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        set(&mut value);
        place.write(CUlaunchAttribute { id, pad: [0; 4], value });
        self.count += 1;
        if let Some((major, minor)) = since {
            let since = CudaVersion::new(major, minor);
            if self.newest.is_none_or(|(_, newest)| newest < since) {
                self.newest = Some((name, since));
            }
        }
    }

    #[inline]
    fn check_driver(&self) -> Result<()> {
        let Some((attribute, since)) = self.newest else { return Ok(()) };
        // The version was stored when the driver was opened, so this makes no driver call.
        let driver = init::version()?;
        refuse_if!(driver < since, Invalid::UnknownAttribute { attribute, since, driver });
        Ok(())
    }

    /// Returns the launch configuration with these attributes. It points into this list.
    #[inline]
    pub(crate) fn config(&mut self, config: LaunchConfig, stream: CUstream) -> CUlaunchConfig {
        let [grid_x, grid_y, grid_z] = config.grid;
        let [block_x, block_y, block_z] = config.block;
        CUlaunchConfig {
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: config.shared_bytes,
            hStream: stream,
            attrs: self.attributes.as_mut_ptr().cast(),
            numAttrs: self.count,
        }
    }
}

impl AccessPolicyWindow {
    #[inline]
    pub(crate) fn from_raw(raw: CUaccessPolicyWindow) -> Self {
        Self {
            // A device address, which is never dereferenced here.
            address: raw.base_ptr.addr() as CUdeviceptr,
            bytes: raw.num_bytes,
            hit_ratio: raw.hitRatio,
            hit: raw.hitProp,
            miss: raw.missProp,
        }
    }

    /// Returns the window in the driver's format.
    ///
    /// # Errors
    /// [`Invalid::LaunchAttribute`].
    #[inline]
    pub(crate) fn checked(self) -> Result<CUaccessPolicyWindow> {
        let Self { address, bytes, hit_ratio, hit, miss } = self;
        // NaN is outside the range too.
        if !(0.0..=1.0).contains(&hit_ratio) {
            let possible = "a hit ratio from 0 to 1";
            return Err(refused("access_policy", hit_ratio, possible));
        }
        Ok(CUaccessPolicyWindow {
            // A device address, which is never dereferenced here.
            base_ptr: std::ptr::without_provenance_mut::<c_void>(address as usize),
            num_bytes: bytes,
            hitRatio: hit_ratio,
            hitProp: hit,
            missProp: miss,
        })
    }
}

/// Checks that no dimension of the cluster is zero.
#[inline]
fn extents(attribute: &'static str, cluster: [u32; 3]) -> Result<[u32; 3]> {
    if cluster.contains(&0) {
        let given = format!("{cluster:?}");
        return Err(refused(attribute, given, "dimensions of at least 1"));
    }
    Ok(cluster)
}

#[cold]
fn refused(
    attribute: &'static str,
    given: impl ToString,
    possible: &'static str,
) -> crate::call::error::Error {
    Invalid::LaunchAttribute { attribute, given: given.to_string(), possible }.into()
}
