//! What a launch can be told beside its shape.

use super::LaunchConfig;
use crate::context::Context;
use crate::driver;
use crate::error::Result;
use crate::event::Event;
use crate::invalid::Invalid;
use crate::stream::same_context;
use core::ffi::c_void;
use cuda_sys::{
    CUaccessPolicyWindow, CUaccessProperty, CUclusterSchedulingPolicy, CUdeviceptr,
    CUlaunchAttribute, CUlaunchAttributeID as Id, CUlaunchAttributePortableClusterMode,
    CUlaunchAttributeValue, CUlaunchConfig, CUlaunchMemSyncDomain, CUlaunchMemSyncDomainMap,
    CUsharedMemoryMode, CUstream, CudaVersion,
};
use std::mem::MaybeUninit;

/// `CUlaunchAttribute`: what a launch can be told beside its shape. The default is a plain launch.
///
/// They go to the driver in an array on the stack: a launch with them allocates nothing either.
///
/// ```no_run
/// use cuda_safe::{LaunchAttributes, LaunchConfig, TypedKernel};
///
/// # let context = cuda_safe::Context::primary(&cuda_safe::Device::get(0)?)?;
/// # let stream = context.stream()?;
/// # let module = cuda_safe::Module::from_ptx(&context, "")?;
/// # let reduce: TypedKernel<()> = module.kernel("nothing")?.typed()?;
/// // Blocks in clusters of two; the kernel may begin while the one before it ends.
/// let attributes = LaunchAttributes {
///     cluster: Some([2, 1, 1]),
///     programmatic_serialization: true,
///     ..Default::default()
/// };
/// let config = LaunchConfig::linear(128, 256);
/// // SAFETY: it has no arguments, and waits (`griddepcontrol.wait`) before it touches anything.
/// unsafe { reduce.launch_with(&stream, config, &attributes, ()) }?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// # What is not here
/// - `SYNCHRONIZATION_POLICY`: only streams have it.
/// - `DEVICE_UPDATABLE_KERNEL_NODE`: it is for nodes of graphs, and answers with a handle.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchAttributes<'a> {
    /// All blocks run at once, so that they can wait for each other (`grid.sync()`). A grid that
    /// does not fit is `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`;
    /// [`Kernel::max_active_blocks`](crate::Kernel::max_active_blocks) tells how many fit.
    pub cooperative: bool,
    /// Blocks of a cluster along x, y, z, of which the grid is a multiple. Compute capability 9.0.
    pub cluster: Option<[u32; 3]>,
    /// Larger clusters, for where there is room: multiples of [`cluster`](Self::cluster). Since
    /// CUDA 12.8; compute capability 10.0.
    pub preferred_cluster: Option<[u32; 3]>,
    /// How blocks of clusters are spread over the multiprocessors: a preference.
    pub cluster_scheduling: Option<CUclusterSchedulingPolicy>,
    /// Whether clusters may be larger than every device with clusters has them. Since CUDA 13.2.
    pub portable_cluster_mode: Option<CUlaunchAttributePortableClusterMode>,
    /// The kernel may start before the one before it in the stream has ended: programmatic
    /// dependent launch. See the promise of [`launch_with`](super::TypedKernel::launch_with).
    /// Compute capability 9.0; others take it for a plain launch.
    pub programmatic_serialization: bool,
    /// An event that the kernel's blocks trigger.
    pub programmatic_event: Option<ProgrammaticEvent<'a>>,
    /// An event that is reached about when all blocks have *begun*; it does not say that the
    /// kernel is done. Without [timing](crate::EventOptions::timing). Since CUDA 12.3.
    pub completion_event: Option<&'a Event>,
    /// The priority, instead of the stream's: see
    /// [`Context::stream_priorities`](crate::Context::stream_priorities).
    pub priority: Option<i32>,
    /// The logical domain of the kernel's memory operations: a fence waits for those of its own
    /// only. Since CUDA 12.0.
    pub memory_domain: Option<CUlaunchMemSyncDomain>,
    /// Which domains of the device the logical ones are. Since CUDA 12.0.
    pub memory_domain_map: Option<MemoryDomainMap>,
    /// Global memory that is to stay in the L2 cache, or not: a hint.
    pub access_policy: Option<AccessPolicyWindow>,
    /// How many percent of what can be shared memory is to be, instead of the kernel's
    /// [`CARVEOUT`](crate::kernel_attribute::CARVEOUT): a hint. Since CUDA 12.5.
    pub carveout: Option<u8>,
    /// Whether blocks may have more shared memory than every device of the architecture has.
    /// Since CUDA 13.2.
    pub shared_memory_mode: Option<CUsharedMemoryMode>,
    /// Blocks are spread so that they use `NVLink` well: a hint. Since CUDA 13.0.
    pub nvlink_centric: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// An event that a launch records when all of its blocks have triggered it (PTX
/// `griddepcontrol.launch_dependents`) or ended.
///
/// So it does not say that the kernel is done: what waits for it goes on while the kernel may
/// still be at work. It is meant for kernels that wait for the rest themselves.
#[derive(Clone, Copy, Debug)]
pub struct ProgrammaticEvent<'a> {
    /// The event, of the stream's context and without [timing](crate::EventOptions::timing).
    pub event: &'a Event,
    /// Blocks trigger it when they begin, without doing so themselves.
    pub at_block_start: bool,
}

/// `CUlaunchMemSyncDomainMap`: the device's domains, of
/// [`MEM_SYNC_DOMAIN_COUNT`](crate::attribute::MEM_SYNC_DOMAIN_COUNT), that the logical ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryDomainMap {
    /// Of `CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT`.
    pub default: u8,
    /// Of `CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE`.
    pub remote: u8,
}

/// `CUaccessPolicyWindow`: how the L2 cache is to treat a range of global memory. A hint, which
/// reads and writes nothing, so any range will do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessPolicyWindow {
    /// Where the range starts on the device.
    pub address: CUdeviceptr,
    /// Its length, up to
    /// [`MAX_ACCESS_POLICY_WINDOW_SIZE`](crate::attribute::MAX_ACCESS_POLICY_WINDOW_SIZE).
    pub bytes: usize,
    /// The part of accesses that are hits, from 0 to 1; the driver chooses which.
    pub hit_ratio: f32,
    /// What becomes of hits.
    pub hit: CUaccessProperty,
    /// What becomes of the others: normal or streaming.
    pub miss: CUaccessProperty,
}

/// How many attributes a launch has at most: the rows of [`LaunchAttributes::fill`].
const ROOM: usize = 15;

/// Attributes as the driver takes them. It is filled where it lies: a kilobyte is not to be moved,
/// or set to zeros, for two attributes.
pub(crate) struct List {
    attributes: [MaybeUninit<CUlaunchAttribute>; ROOM],
    /// The first so many are there.
    count: u32,
    /// What of them is newest, and since when.
    newest: Option<(&'static str, CudaVersion)>,
}

impl LaunchAttributes<'_> {
    /// Puts the attributes for a launch in `context` into an empty list.
    ///
    /// # Errors
    /// An event of another context; [`Invalid::LaunchAttribute`]; an attribute that is newer than
    /// the driver, which it might ignore.
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
        if let Some(ProgrammaticEvent {
            event,
            at_block_start,
        }) = *programmatic_event
        {
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
                value.memSyncDomainMap = CUlaunchMemSyncDomainMap {
                    default_: default,
                    remote,
                };
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
            if percent > 100 {
                return Err(refused("carveout", percent, "0 to 100 percent"));
            }
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
        Self {
            attributes: [const { MaybeUninit::uninit() }; ROOM],
            count: 0,
            newest: None,
        }
    }

    /// Adds an attribute, which drivers have since a version above that of `cuLaunchKernelEx`.
    #[inline]
    fn add(
        &mut self,
        name: &'static str,
        id: Id,
        since: Option<(u16, u16)>,
        set: impl FnOnce(&mut CUlaunchAttributeValue),
    ) {
        // There is a place for each that there is.
        let Some(place) = self.attributes.get_mut(self.count as usize) else {
            return;
        };
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        set(&mut value);
        place.write(CUlaunchAttribute {
            id,
            pad: [0; 4],
            value,
        });
        self.count += 1;
        if let Some((major, minor)) = since {
            let since = CudaVersion::new(major, minor);
            if self.newest.is_none_or(|(_, newest)| newest < since) {
                self.newest = Some((name, since));
            }
        }
    }

    fn check_driver(&self) -> Result<()> {
        let Some((attribute, since)) = self.newest else {
            return Ok(());
        };
        // Known from when it was opened, so that this is no call of it.
        let driver = driver::version()?;
        if driver < since {
            return Err(Invalid::UnknownAttribute {
                attribute,
                since,
                driver,
            }
            .into());
        }
        Ok(())
    }

    /// The shape with these attributes, which it points to.
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
    fn checked(self) -> Result<CUaccessPolicyWindow> {
        let Self {
            address,
            bytes,
            hit_ratio,
            hit,
            miss,
        } = self;
        // Not a number is none of these either.
        if !(0.0..=1.0).contains(&hit_ratio) {
            let possible = "a ratio of hits from 0 to 1";
            return Err(refused("access_policy", hit_ratio, possible));
        }
        Ok(CUaccessPolicyWindow {
            // An address of the device: nobody follows it here.
            base_ptr: std::ptr::without_provenance_mut::<c_void>(address as usize),
            num_bytes: bytes,
            hitRatio: hit_ratio,
            hitProp: hit,
            missProp: miss,
        })
    }
}

/// A cluster without an extent is none.
fn extents(attribute: &'static str, cluster: [u32; 3]) -> Result<[u32; 3]> {
    if cluster.contains(&0) {
        let given = format!("{cluster:?}");
        return Err(refused(attribute, given, "extents of at least 1"));
    }
    Ok(cluster)
}

#[cold]
fn refused(
    attribute: &'static str,
    given: impl ToString,
    possible: &'static str,
) -> crate::error::Error {
    Invalid::LaunchAttribute {
        attribute,
        given: given.to_string(),
        possible,
    }
    .into()
}
