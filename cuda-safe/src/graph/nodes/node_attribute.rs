//! Attributes of kernel nodes, each with its type.
//!
//! A node has the attributes that a launch has as [`LaunchAttributes`](crate::launch::LaunchAttributes), except
//! those about the order of work in a stream and about events. An edge of the kind
//! [`EdgeKind::Programmatic`](crate::graph::EdgeKind::Programmatic) expresses programmatic dependent launch.
//!
//! ```no_run
//! use cuda_safe::graph::node_attribute;
//! use cuda_safe::{Context, Device, Graph, LaunchConfig, Module};
//!
//! # let ptx = "";
//! let context = Context::primary(&Device::get(0)?)?;
//! let kernel = Module::from_ptx(&context, ptx)?.kernel("nothing")?.typed::<()>()?;
//! let mut graph = Graph::new(&context)?;
//! let config = LaunchConfig::linear(1, 32);
//! // SAFETY: the kernel accesses nothing.
//! let node = unsafe { graph.add_kernel(&[], &context, &kernel, config, ()) }?;
//! // SAFETY: the kernel does not depend on its priority.
//! unsafe { graph.set_kernel_attribute(node, node_attribute::PRIORITY, -1) }?;
//! assert_eq!(graph.kernel_attribute(node, node_attribute::PRIORITY)?, -1);
//! # Ok::<_, cuda_safe::Error>(())
//! ```

use crate::call::{Result, call, copy, debug};
use crate::device::attribute::explain_newer;
use crate::graph::{Graph, Node, Retained, kind};
use crate::launch::{AccessPolicyWindow, KernelValue, MemoryDomainMap};
use crate::stream::ExecutionContext;
use cuda_sys::{
    CUclusterSchedulingPolicy, CUlaunchAttributeID, CUlaunchAttributePortableClusterMode,
    CUlaunchAttributeValue, CUlaunchMemSyncDomain, CUlaunchMemSyncDomainMap, CUsharedMemoryMode,
    CudaVersion,
};

/// An attribute of kernel nodes whose value has the type `T`. The constants in [this module](self) are
/// the only values of this type.
pub struct NodeAttribute<T> {
    raw: CUlaunchAttributeID,
    name: &'static str,
    /// The version that introduced the attribute, or 0 if every driver that these bindings support has
    /// it.
    since: i32,
    read: fn(&CUlaunchAttributeValue) -> T,
    write: fn(&mut CUlaunchAttributeValue, T) -> Result<()>,
}

impl<T> NodeAttribute<T> {
    /// Returns the driver's number for the attribute.
    pub fn as_raw(&self) -> CUlaunchAttributeID {
        self.raw
    }

    /// Returns the name of the constant.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the CUDA version that introduced the attribute, or `None` for CUDA 11.8 and earlier.
    pub fn since(&self) -> Option<CudaVersion> {
        (self.since != 0).then_some(CudaVersion::from_number(self.since))
    }
}

copy! { [T] NodeAttribute<T> }

debug! { [T] NodeAttribute<T> |its, f| f.write_str(its.name) }

/// Defines one constant per row, with the conversions from and to a field of the driver's union.
macro_rules! attributes {
    ($(
        $(#[$meta:meta])* $name:ident: $ty:ty = $c:ident, $since:literal,
        $field:ident, |$raw:ident| $read:expr, |$value:ident| $write:expr;
    )*) => {$(
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!("`", stringify!($c), "`.")]
        pub const $name: NodeAttribute<$ty> = NodeAttribute {
            raw: CUlaunchAttributeID::$c,
            name: stringify!($name),
            since: $since,
            read: |fields| {
                // SAFETY: the union is initialized, and all bits are valid for its fields, which are
                // numbers and addresses.
                let $raw = unsafe { fields.$field };
                $read
            },
            write: |fields, $value| {
                fields.$field = $write;
                Ok(())
            },
        };
    )*};
}

attributes! {
    /// A caching hint for a range of global memory in the L2 cache. A range of 0 bytes means that there
    /// is none. A hit ratio that is not from 0 to 1 is rejected
    /// ([`Invalid::LaunchAttribute`](crate::Invalid::LaunchAttribute)).
    ACCESS_POLICY: AccessPolicyWindow = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, 0,
        accessPolicyWindow, |raw| AccessPolicyWindow::from_raw(raw), |value| value.checked()?;
    /// Whether all blocks must run at the same time, so that they can wait for each other.
    COOPERATIVE: bool = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 0,
        cooperative, |raw| raw != 0, |value| value.into();
    /// The cluster size in blocks along x, y and z, which must divide the grid, or zeros if none is set.
    CLUSTER: [u32; 3] = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 0,
        clusterDim, |raw| [raw.x, raw.y, raw.z], |value| {
            let [x, y, z] = value;
            cuda_sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z }
        };
    /// A larger cluster size that is used where there is room, or zeros if none is set.
    PREFERRED_CLUSTER: [u32; 3] = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, 12080,
        preferredClusterDim, |raw| [raw.x, raw.y, raw.z], |value| {
            let [x, y, z] = value;
            cuda_sys::CUlaunchAttributeValue_union__bindgen_ty_4 { x, y, z }
        };
    /// How the blocks of clusters are distributed over the SMs. This is a preference.
    CLUSTER_SCHEDULING: CUclusterSchedulingPolicy =
        CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 0,
        clusterSchedulingPolicyPreference, |raw| raw, |value| value;
    /// Whether clusters may be larger than the size that every device with clusters supports.
    PORTABLE_CLUSTER_MODE: CUlaunchAttributePortableClusterMode =
        CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE, 13020,
        portableClusterSizeMode, |raw| raw, |value| value;
    /// The priority of the kernel, which a graph uses that is instantiated with
    /// [`InstantiateOptions::use_node_priority`](crate::graph::InstantiateOptions::use_node_priority). See
    /// [`Context::stream_priorities`](crate::Context::stream_priorities).
    PRIORITY: i32 = CU_LAUNCH_ATTRIBUTE_PRIORITY, 0, priority, |raw| raw, |value| value;
    /// The logical memory synchronization domain of the kernel. A fence waits only for memory operations
    /// of its own domain.
    MEMORY_DOMAIN: CUlaunchMemSyncDomain = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 12000,
        memSyncDomain, |raw| raw, |value| value;
    /// The mapping from logical domains to domains of the device.
    MEMORY_DOMAIN_MAP: MemoryDomainMap = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, 12000,
        memSyncDomainMap, |raw| MemoryDomainMap {
            default: raw.default_,
            remote: raw.remote,
        }, |value| CUlaunchMemSyncDomainMap {
            default_: value.default,
            remote: value.remote,
        };
    /// The preferred shared memory carveout in percent. This is a hint.
    CARVEOUT: u32 = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 12050,
        sharedMemCarveout, |raw| raw, |value| value;
    /// Whether blocks may have more shared memory than every device of the architecture supports.
    SHARED_MEMORY_MODE: CUsharedMemoryMode = CU_LAUNCH_ATTRIBUTE_SHARED_MEMORY_MODE, 13020,
        sharedMemoryMode, |raw| raw, |value| value;
    /// Whether blocks are distributed for high `NVLink` utilization. This is a hint.
    NVLINK_CENTRIC: bool = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, 13000,
        nvlinkUtilCentricScheduling, |raw| raw != 0, |value| value.into();
}

/// The handle with which device code updates a kernel node (`CUgraphDeviceNode`, in CUDA C++
/// `cudaGraphDeviceNode_t`). It can be passed to a kernel in a [`Value`](crate::launch::Value).
///
/// [`Graph::make_device_updatable`] returns one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct DeviceNode(u64);

// SAFETY: the type is `repr(transparent)`, and has the layout of the pointer type in CUDA C++. It is a
// number for the host, and valid for the device.
unsafe impl KernelValue for DeviceNode {}

impl DeviceNode {
    /// Returns the raw handle, which only device code can use.
    #[inline]
    pub fn as_raw(self) -> u64 {
        self.0
    }
}

impl Graph {
    /// Returns an [attribute](self) of a kernel node. Calls `cuGraphKernelNodeGetAttribute`.
    ///
    /// # Errors
    /// [`Invalid::UnknownAttribute`](crate::Invalid::UnknownAttribute) if the driver is older than the
    /// attribute; [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 11.0. Raw:
    /// [`cuGraphKernelNodeGetAttribute`](fn@cuda_sys::cuGraphKernelNodeGetAttribute).
    #[doc(alias = "cuGraphKernelNodeGetAttribute")]
    pub fn kernel_attribute<T>(
        &self,
        node: Node<kind::Kernel>,
        attribute: NodeAttribute<T>,
    ) -> Result<T> {
        let value = self.raw_attribute(node, attribute.raw);
        let value =
            value.map_err(|error| explain_newer(error, attribute.name, attribute.since()))?;
        Ok((attribute.read)(&value))
    }

    /// Sets an [attribute](self) of a kernel node. Calls `cuGraphKernelNodeSetAttribute`.
    ///
    /// Executable graphs are not affected. The attributes of a node stay when
    /// [`set_kernel`](Self::set_kernel) changes it.
    ///
    /// # Errors
    /// See [`kernel_attribute`](Self::kernel_attribute). In addition: `CUDA_ERROR_INVALID_VALUE`, or the
    /// error of a launch with this attribute, if the kernel cannot run with the value.
    ///
    /// # Safety
    /// The conditions of [`TypedKernel::launch_with`](crate::TypedKernel::launch_with) for this attribute
    /// must hold for each launch of the graph and of each graph that contains a copy of the node.
    ///
    /// Since CUDA 11.0. Raw:
    /// [`cuGraphKernelNodeSetAttribute`](fn@cuda_sys::cuGraphKernelNodeSetAttribute).
    #[doc(alias = "cuGraphKernelNodeSetAttribute")]
    pub unsafe fn set_kernel_attribute<T>(
        &mut self,
        node: Node<kind::Kernel>,
        attribute: NodeAttribute<T>,
        value: T,
    ) -> Result<()> {
        let mut raw = CUlaunchAttributeValue { pad: [0; 64] };
        (attribute.write)(&mut raw, value)?;
        // SAFETY: the caller guarantees that the kernel may have the attribute.
        let set = unsafe { self.set_raw_attribute(node, attribute.raw, raw) };
        set.map_err(|error| explain_newer(error, attribute.name, attribute.since()))
    }

    /// Copies all attributes of a kernel node to another kernel node of this graph. Calls
    /// `cuGraphKernelNodeCopyAttributes`.
    ///
    /// # Errors
    /// See [`set_kernel_attribute`](Self::set_kernel_attribute). The driver rejects
    /// [device-updatable](Self::make_device_updatable) nodes.
    ///
    /// # Safety
    /// See [`set_kernel_attribute`](Self::set_kernel_attribute), for each attribute.
    ///
    /// Since CUDA 11.0. Raw:
    /// [`cuGraphKernelNodeCopyAttributes`](fn@cuda_sys::cuGraphKernelNodeCopyAttributes).
    #[doc(alias = "cuGraphKernelNodeCopyAttributes")]
    #[inline]
    pub unsafe fn copy_kernel_attributes(
        &mut self,
        from: Node<kind::Kernel>,
        to: Node<kind::Kernel>,
    ) -> Result<()> {
        let (source, target) = (self.raw_node(from.id())?, self.raw_node(to.id())?);
        self.home_of(to)?.with_current(|| {
            // SAFETY: both nodes exist and are kernels. The caller promises that the second one may have
            // the attributes.
            unsafe { call!(cuGraphKernelNodeCopyAttributes(target, source)) }
        })
    }

    /// Makes a kernel node one that device code can update, and returns the handle for that. Sets
    /// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`. Calls `cuGraphKernelNodeSetAttribute` and
    /// `cuGraphKernelNodeGetAttribute`.
    ///
    /// A kernel that gets the handle can change arguments, the grid, and whether the node is enabled, for
    /// launches that have not reached the node yet.
    ///
    /// This cannot be undone, and restricts the graph: [`remove`](Self::remove) and
    /// [`copy_kernel_attributes`](Self::copy_kernel_attributes) fail for the node, the graph can be
    /// instantiated only once, and neither the graph nor its executable graph can be used in
    /// [`ExecutableGraph::update`](crate::graph::ExecutableGraph::update).
    ///
    /// # Errors
    /// See [`set_kernel_attribute`](Self::set_kernel_attribute).
    ///
    /// # Safety
    /// For each kernel that gets the handle:
    /// - It runs on the device of the node, and only while the executable graph of this graph exists.
    /// - Each update satisfies the conditions of [`add_kernel`](Self::add_kernel) for the changed node. In
    ///   particular, the node accesses only the memory that was passed to `add_kernel`, in the same way.
    /// - While it can run, no other code changes the node in the executable graph
    ///   ([`ExecutableNodes`](crate::graph::ExecutableNodes)).
    /// - If the kernel is a node of the same graph, the executable graph is
    ///   [uploaded](crate::graph::ExecutableGraph::upload) before its first launch, and before the next launch
    ///   after each change of the node by the host.
    ///
    /// Since CUDA 12.4. Raw:
    /// [`cuGraphKernelNodeSetAttribute`](fn@cuda_sys::cuGraphKernelNodeSetAttribute).
    #[doc(alias = "cuGraphKernelNodeSetAttribute")]
    #[inline]
    pub unsafe fn make_device_updatable(&mut self, node: Node<kind::Kernel>) -> Result<DeviceNode> {
        let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.deviceUpdatableKernelNode = cuda_sys::CUlaunchAttributeValue_union__bindgen_ty_5 {
            deviceUpdatable: 1,
            devNode: std::ptr::null_mut(),
        };
        let explain = |error| {
            explain_newer(error, "DEVICE_UPDATABLE_KERNEL_NODE", Some(CudaVersion::new(12, 4)))
        };
        // SAFETY: the caller guarantees the conditions of the attribute.
        unsafe { self.set_raw_attribute(node, id, value) }.map_err(explain)?;
        let value = self.raw_attribute(node, id).map_err(explain)?;
        // SAFETY: the union is initialized, and all bits are valid for numbers and pointers.
        let its = unsafe { value.deviceUpdatableKernelNode };
        Ok(DeviceNode(its.devNode.addr() as u64))
    }

    #[inline]
    fn raw_attribute(
        &self,
        node: Node<kind::Kernel>,
        id: CUlaunchAttributeID,
    ) -> Result<CUlaunchAttributeValue> {
        let home = self.home_of(node)?;
        self.query(node, |node, place| {
            // SAFETY: the node exists and is a kernel, and the pointer is valid.
            home.with_current(|| unsafe { call!(cuGraphKernelNodeGetAttribute(node, id, place)) })
        })
    }

    /// Sets an attribute.
    ///
    /// # Safety
    /// The kernel may have the attribute.
    #[inline]
    unsafe fn set_raw_attribute(
        &mut self,
        node: Node<kind::Kernel>,
        id: CUlaunchAttributeID,
        mut value: CUlaunchAttributeValue,
    ) -> Result<()> {
        let raw = self.raw_node(node.id())?;
        // For some attributes the driver writes to the value.
        let place = &raw mut value;
        self.home_of(node)?.with_current(|| {
            // SAFETY: the node exists and is a kernel, and the pointer refers to a local variable. The
            // caller guarantees that the kernel may have the attribute.
            unsafe { call!(cuGraphKernelNodeSetAttribute(raw, id, place)) }
        })
    }

    /// Returns the context of a kernel node, which is current during calls with the node: drivers crash
    /// without a current context in calls that change a kernel node. A captured node has the context of
    /// its graph.
    #[inline]
    fn home_of(&self, node: Node<kind::Kernel>) -> Result<ExecutionContext> {
        let owners = self.slots().get(node.id())?.content.owners;
        let home = owners.iter().find_map(|owner| match owner {
            Retained::ExecutionContext(home) => Some(home.clone()),
            _ => None,
        });
        Ok(home.unwrap_or_else(|| ExecutionContext::Context(self.context().clone())))
    }
}
