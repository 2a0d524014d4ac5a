//! Stream attributes. They apply to work that is enqueued later.

use super::{Stream, same_context};
use crate::call::{Invalid, Result, answer, c_enum, out_without_current, without_current};
use cuda_sys::{
    CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW as WINDOW,
    CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN as DOMAIN,
    CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP as DOMAIN_MAP,
    CU_STREAM_ATTRIBUTE_PRIORITY as PRIORITY, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY as POLICY,
    CUaccessPolicyWindow, CUaccessProperty, CUdeviceptr, CUlaunchMemSyncDomain,
    CUlaunchMemSyncDomainMap, CUstream_flags, CUstreamAttrID, CUstreamAttrValue,
    CUsynchronizationPolicy,
};
use std::ops::Range;

c_enum! {
    /// The method with which a thread waits for a stream (`CUsynchronizationPolicy`).
    #[derive(Default)]
    pub enum SynchronizationPolicy = CUsynchronizationPolicy or Other {
        /// The driver selects the method.
        #[default]
        Auto = CU_SYNC_POLICY_AUTO,
        /// Spin: the lowest latency, but one core is busy.
        Spin = CU_SYNC_POLICY_SPIN,
        /// Yield the core.
        Yield = CU_SYNC_POLICY_YIELD,
        /// Sleep.
        BlockingSync = CU_SYNC_POLICY_BLOCKING_SYNC,
    }
}

c_enum! {
    /// How likely accessed data stays in the L2 cache (`CUaccessProperty`).
    #[derive(Default)]
    pub enum AccessProperty = CUaccessProperty or Other {
        /// Normal: like other data.
        #[default]
        Normal = CU_ACCESS_PROPERTY_NORMAL,
        /// Streaming: less likely to stay, because the data will not be accessed again.
        Streaming = CU_ACCESS_PROPERTY_STREAMING,
        /// Persisting: more likely to stay, in the part of the cache that is
        /// [set aside](crate::context::Limit::PersistingL2CacheSize) for this.
        Persisting = CU_ACCESS_PROPERTY_PERSISTING,
    }
}

c_enum! {
    /// The memory synchronization domain of a kernel (`CUlaunchMemSyncDomain`). The fences of a kernel
    /// wait only for writes of its domain.
    #[derive(Default)]
    pub enum MemorySyncDomain = CUlaunchMemSyncDomain or Other {
        /// The domain of normal kernels.
        #[default]
        Default = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
        /// The domain of kernels that write to other devices, so that the fences of normal kernels do
        /// not wait for their traffic.
        Remote = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE,
    }
}

/// An access policy of the L2 cache for a range of memory (`CUaccessPolicyWindow`). It is a hint.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessWindow {
    /// The fraction of accesses, from 0 to 1, that get the `hit` property. The others get the `miss`
    /// property.
    pub hit_ratio: f32,
    /// The property of hits.
    pub hit: AccessProperty,
    /// The property of misses. It cannot be persisting.
    pub miss: AccessProperty,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for AccessWindow {
    /// All accesses are normal hits.
    #[inline]
    fn default() -> Self {
        Self {
            hit_ratio: 1.0,
            hit: AccessProperty::Normal,
            miss: AccessProperty::Normal,
            _non_exhaustive: (),
        }
    }
}

/// The map from logical to physical memory synchronization domains (`CUlaunchMemSyncDomainMap`). The
/// device has [`MEM_SYNC_DOMAIN_COUNT`](crate::device::attribute::MEM_SYNC_DOMAIN_COUNT) physical domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemorySyncDomainMap {
    /// The physical domain of [`MemorySyncDomain::Default`].
    pub default: u8,
    /// The physical domain of [`MemorySyncDomain::Remote`].
    pub remote: u8,
}

impl Stream {
    /// Returns whether the stream is *blocking*: the stream and the legacy default stream wait for each
    /// other. Calls `cuStreamGetFlags`.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if the stream is capturing. The call then invalidates the
    /// capture (measured with driver 580).
    ///
    /// Since CUDA 5.5. Raw: [`cuStreamGetFlags`](fn@cuda_sys::cuStreamGetFlags).
    #[doc(alias = "cuStreamGetFlags")]
    #[inline]
    pub fn is_blocking(&self) -> Result<bool> {
        // SAFETY: the stream is alive, and `out` passes a valid pointer.
        let flags = out_without_current(self.context(), |place| unsafe {
            answer!(cuStreamGetFlags(self.raw(), place))
        })?;
        Ok(flags & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0)
    }

    /// Returns the method with which threads wait for the stream. Calls `cuStreamGetAttribute` with
    /// `CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY`.
    ///
    /// Returns `None` if it was not set. Then the [flags of the context](crate::ContextFlags) apply.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamGetAttribute`](fn@cuda_sys::cuStreamGetAttribute).
    #[doc(alias = "cuStreamGetAttribute")]
    #[inline]
    pub fn synchronization_policy(&self) -> Result<Option<SynchronizationPolicy>> {
        let value = self.attribute(POLICY)?;
        // SAFETY: the driver has filled in this field of a zeroed value, and the field is an integer.
        let policy = unsafe { value.syncPolicy };
        // Driver 580 returns all ones if the attribute was not set.
        let is_set = policy.0 != u32::MAX;
        Ok(is_set.then(|| SynchronizationPolicy::from_raw(policy)))
    }

    /// Sets the method with which threads wait for the stream. Calls `cuStreamSetAttribute` with
    /// `CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a value of [`SynchronizationPolicy::Other`] that the driver does
    /// not know.
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    #[inline]
    pub fn set_synchronization_policy(&self, policy: SynchronizationPolicy) -> Result<()> {
        self.set_attribute(POLICY, |value| value.syncPolicy = policy.raw())
    }

    /// Sets the priority of the stream. Calls `cuStreamSetAttribute` with
    /// `CU_STREAM_ATTRIBUTE_PRIORITY`.
    ///
    /// See [`StreamOptions::priority`](crate::StreamOptions::priority) for the meaning of the number.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` on an older driver.
    ///
    /// Since CUDA 11.8. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    #[inline]
    pub fn set_priority(&self, priority: i32) -> Result<()> {
        self.set_attribute(PRIORITY, |value| value.priority = priority)
    }

    /// Returns the memory synchronization domain of the kernels of this stream. Calls
    /// `cuStreamGetAttribute` with `CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` on an older driver.
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamGetAttribute`](fn@cuda_sys::cuStreamGetAttribute).
    #[doc(alias = "cuStreamGetAttribute")]
    #[inline]
    pub fn memory_sync_domain(&self) -> Result<MemorySyncDomain> {
        let value = self.attribute(DOMAIN)?;
        // SAFETY: the driver has filled in this field of a zeroed value, and the field is an integer.
        let domain = unsafe { value.memSyncDomain };
        Ok(MemorySyncDomain::from_raw(domain))
    }

    /// Sets the memory synchronization domain of kernels that are launched later. Calls
    /// `cuStreamSetAttribute` with `CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN`.
    ///
    /// Concurrent kernels of two domains that read each other's writes need fences of system scope.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` on an older driver.
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    #[inline]
    pub fn set_memory_sync_domain(&self, domain: MemorySyncDomain) -> Result<()> {
        self.set_attribute(DOMAIN, |value| value.memSyncDomain = domain.raw())
    }

    /// Returns the map from logical to physical memory synchronization domains. Calls
    /// `cuStreamGetAttribute` with `CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` on an older driver.
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamGetAttribute`](fn@cuda_sys::cuStreamGetAttribute).
    #[doc(alias = "cuStreamGetAttribute")]
    #[inline]
    pub fn memory_sync_domain_map(&self) -> Result<MemorySyncDomainMap> {
        let value = self.attribute(DOMAIN_MAP)?;
        // SAFETY: the driver has filled in this field of a zeroed value, and the field is two integers.
        let CUlaunchMemSyncDomainMap { default_, remote } = unsafe { value.memSyncDomainMap };
        Ok(MemorySyncDomainMap { default: default_, remote })
    }

    /// Sets the map from logical to physical memory synchronization domains. Calls
    /// `cuStreamSetAttribute` with `CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a domain that the device does not have, and on an older driver.
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    #[inline]
    pub fn set_memory_sync_domain_map(&self, map: MemorySyncDomainMap) -> Result<()> {
        let MemorySyncDomainMap { default, remote } = map;
        self.set_attribute(DOMAIN_MAP, |value| {
            value.memSyncDomainMap = CUlaunchMemSyncDomainMap { default_: default, remote };
        })
    }

    /// Returns the address range and the access policy of the stream, or `None` if there is no policy.
    /// Calls `cuStreamGetAttribute` with `CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamGetAttribute`](fn@cuda_sys::cuStreamGetAttribute).
    #[doc(alias = "cuStreamGetAttribute")]
    #[inline]
    pub fn access_window(&self) -> Result<Option<(Range<CUdeviceptr>, AccessWindow)>> {
        let value = self.attribute(WINDOW)?;
        // SAFETY: the driver has filled in this field of a zeroed value. It consists of numbers and a
        // pointer that is never dereferenced.
        let raw = unsafe { value.accessPolicyWindow };
        let start = raw.base_ptr.addr() as CUdeviceptr;
        let window = AccessWindow {
            hit_ratio: raw.hitRatio,
            hit: AccessProperty::from_raw(raw.hitProp),
            miss: AccessProperty::from_raw(raw.missProp),
            _non_exhaustive: (),
        };
        let range = start..start + raw.num_bytes as CUdeviceptr;
        Ok((!range.is_empty()).then_some((range, window)))
    }

    /// Sets the access policy for `size` bytes from `address`.
    #[inline]
    pub(crate) fn set_access_window_of(
        &self,
        (address, size): (CUdeviceptr, usize),
        window: AccessWindow,
    ) -> Result<()> {
        let AccessWindow { hit_ratio, hit, miss, _non_exhaustive: () } = window;
        if !(0.0..=1.0).contains(&hit_ratio) || miss == AccessProperty::Persisting {
            return Err(Invalid::AccessWindow {
                hit_ratio: hit_ratio.to_string(),
                miss: format!("{miss:?}"),
            }
            .into());
        }
        let start = usize::try_from(address).unwrap_or(0);
        self.set_attribute(WINDOW, |value| {
            value.accessPolicyWindow = CUaccessPolicyWindow {
                base_ptr: std::ptr::without_provenance_mut(start),
                num_bytes: size,
                hitRatio: hit_ratio,
                hitProp: hit.raw(),
                missProp: miss.raw(),
            };
        })
    }

    /// Removes the access policy, so that all accesses are normal again. Calls `cuStreamSetAttribute`
    /// with a window of zero bytes.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    #[inline]
    pub fn clear_access_window(&self) -> Result<()> {
        // A value of zeros is a window of zero bytes with normal properties.
        self.set_attribute(WINDOW, |_| {})
    }

    /// Copies all attributes of `source` to this stream. Calls `cuStreamCopyAttributes`.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`].
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamCopyAttributes`](fn@cuda_sys::cuStreamCopyAttributes).
    #[doc(alias = "cuStreamCopyAttributes")]
    #[inline]
    pub fn copy_attributes_from(&self, source: &Self) -> Result<()> {
        same_context("the source", source.context(), self.context())?;
        without_current(self.context(), || {
            // SAFETY: both streams are alive.
            unsafe { answer!(cuStreamCopyAttributes(self.raw(), source.raw())) }
        })
    }

    #[inline]
    fn attribute(&self, attribute: CUstreamAttrID) -> Result<CUstreamAttrValue> {
        // SAFETY: the stream is alive, and `out` passes a valid pointer.
        out_without_current(self.context(), |place| unsafe {
            answer!(cuStreamGetAttribute(self.raw(), attribute, place))
        })
    }

    fn set_attribute(
        &self,
        attribute: CUstreamAttrID,
        fill: impl FnOnce(&mut CUstreamAttrValue),
    ) -> Result<()> {
        let mut value = CUstreamAttrValue::default();
        fill(&mut value);
        let pointer = &raw const value;
        without_current(self.context(), || {
            // SAFETY: the stream is alive, and the pointer is to a value of zeros with the field of
            // this attribute filled in.
            unsafe { answer!(cuStreamSetAttribute(self.raw(), attribute, pointer)) }
        })
    }
}
