//! What a stream is set to, for the work that it is given from then on.

use super::{Stream, same_context};
use crate::call::{answer, without_current};
use crate::error::Result;
use crate::invalid::Invalid;
use crate::memory::DeviceSlice;
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

/// A C enum's values that are known, and others by their numbers.
macro_rules! values {
    ($(#[$meta:meta])* $name:ident = $raw:ident { $($(#[$doc:meta])* $value:ident = $constant:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $value,)*
            /// One that is newer than this crate, by its number.
            Other(u32),
        }

        impl $name {
            fn raw(self) -> $raw {
                match self {
                    $(Self::$value => $raw::$constant,)*
                    Self::Other(number) => $raw(number),
                }
            }

            fn from_raw(raw: $raw) -> Self {
                match raw {
                    $($raw::$constant => Self::$value,)*
                    $raw(number) => Self::Other(number),
                }
            }
        }
    };
}

values! {
    /// `CUsynchronizationPolicy`: how a thread waits for a stream.
    SynchronizationPolicy = CUsynchronizationPolicy {
        /// As the driver finds best.
        #[default]
        Auto = CU_SYNC_POLICY_AUTO,
        /// Spinning: lowest latency, one core busy.
        Spin = CU_SYNC_POLICY_SPIN,
        /// Yielding the core.
        Yield = CU_SYNC_POLICY_YIELD,
        /// Sleeping.
        BlockingSync = CU_SYNC_POLICY_BLOCKING_SYNC,
    }
}

values! {
    /// `CUaccessProperty`: how long data that was accessed is to stay in the L2 cache.
    AccessProperty = CUaccessProperty {
        /// As long as other data.
        #[default]
        Normal = CU_ACCESS_PROPERTY_NORMAL,
        /// Shorter: it will not be accessed again.
        Streaming = CU_ACCESS_PROPERTY_STREAMING,
        /// Longer, in the part of the cache that is
        /// [set aside](crate::Limit::PersistingL2CacheSize) for that.
        Persisting = CU_ACCESS_PROPERTY_PERSISTING,
    }
}

values! {
    /// `CUlaunchMemSyncDomain`: whose writes a kernel's fences wait for.
    MemorySyncDomain = CUlaunchMemSyncDomain {
        /// The domain of usual kernels.
        #[default]
        Default = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT,
        /// The domain of kernels that write to other devices, for whose traffic the fences of usual
        /// ones are not to wait.
        Remote = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE,
    }
}

/// `CUaccessPolicyWindow`: what the L2 cache does with accesses to some memory. A hint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessWindow {
    /// The part of the accesses, from 0 to 1, that are hits; the others are misses.
    pub hit_ratio: f32,
    /// For hits.
    pub hit: AccessProperty,
    /// For misses: not persisting.
    pub miss: AccessProperty,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for AccessWindow {
    /// All accesses are normal hits.
    fn default() -> Self {
        Self {
            hit_ratio: 1.0,
            hit: AccessProperty::Normal,
            miss: AccessProperty::Normal,
            _non_exhaustive: (),
        }
    }
}

/// `CUlaunchMemSyncDomainMap`: which of the device's domains
/// ([`MEM_SYNC_DOMAIN_COUNT`](crate::attribute::MEM_SYNC_DOMAIN_COUNT)) the logical ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemorySyncDomainMap {
    /// That of [`MemorySyncDomain::Default`].
    pub default: u8,
    /// That of [`MemorySyncDomain::Remote`].
    pub remote: u8,
}

impl Stream {
    /// `cuStreamGetFlags(stream, &flags)`: whether the stream is *blocking*, that is, waits for the
    /// legacy default stream and it for this one.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 5.5. Raw: [`cuStreamGetFlags`](fn@cuda_sys::cuStreamGetFlags).
    #[doc(alias = "cuStreamGetFlags")]
    pub fn is_blocking(&self) -> Result<bool> {
        let mut flags = 0;
        without_current(self.context(), || {
            // SAFETY: the stream is alive, and the pointer is to a local.
            unsafe { answer!(cuStreamGetFlags(self.raw(), &raw mut flags)) }
        })?;
        Ok(flags & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0)
    }

    /// `cuStreamGetAttribute(stream, SYNCHRONIZATION_POLICY, &value)`: how threads wait for the
    /// stream; none if nobody has said, so that the [context's flags](crate::ContextFlags) do.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamGetAttribute`](fn@cuda_sys::cuStreamGetAttribute).
    #[doc(alias = "cuStreamGetAttribute")]
    pub fn synchronization_policy(&self) -> Result<Option<SynchronizationPolicy>> {
        let value = self.attribute(POLICY)?;
        // SAFETY: the driver has filled this field in, in a value of zeros; it is an integer.
        let policy = unsafe { value.syncPolicy };
        // All ones is what a driver (580) gives of a stream that was not set to anything.
        let is_set = policy.0 != u32::MAX;
        Ok(is_set.then(|| SynchronizationPolicy::from_raw(policy)))
    }

    /// `cuStreamSetAttribute(stream, SYNCHRONIZATION_POLICY, value)`: changes how threads wait for the
    /// stream.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an [other](SynchronizationPolicy::Other) one that the driver does not
    /// know.
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    pub fn set_synchronization_policy(&self, policy: SynchronizationPolicy) -> Result<()> {
        self.set_attribute(POLICY, |value| value.syncPolicy = policy.raw())
    }

    /// `cuStreamSetAttribute(stream, PRIORITY, value)`: changes the priority, as
    /// [`StreamOptions::priority`](crate::StreamOptions::priority) has it.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` on a driver that is older.
    ///
    /// Since CUDA 11.8. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    pub fn set_priority(&self, priority: i32) -> Result<()> {
        self.set_attribute(PRIORITY, |value| value.priority = priority)
    }

    /// `cuStreamGetAttribute(stream, MEM_SYNC_DOMAIN, &value)`: the domain of the stream's kernels.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` on a driver that is older.
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamGetAttribute`](fn@cuda_sys::cuStreamGetAttribute).
    #[doc(alias = "cuStreamGetAttribute")]
    pub fn memory_sync_domain(&self) -> Result<MemorySyncDomain> {
        let value = self.attribute(DOMAIN)?;
        // SAFETY: the driver has filled this field in, in a value of zeros; it is an integer.
        let domain = unsafe { value.memSyncDomain };
        Ok(MemorySyncDomain::from_raw(domain))
    }

    /// `cuStreamSetAttribute(stream, MEM_SYNC_DOMAIN, value)`: changes the domain of kernels that are
    /// launched from now on. Kernels of two domains that run at the same time and watch each other's
    /// writes need fences of the system's scope.
    ///
    /// # Errors
    /// As for [`memory_sync_domain`](Self::memory_sync_domain).
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    pub fn set_memory_sync_domain(&self, domain: MemorySyncDomain) -> Result<()> {
        self.set_attribute(DOMAIN, |value| value.memSyncDomain = domain.raw())
    }

    /// `cuStreamGetAttribute(stream, MEM_SYNC_DOMAIN_MAP, &value)`: which of the device's domains the
    /// logical ones are.
    ///
    /// # Errors
    /// As for [`memory_sync_domain`](Self::memory_sync_domain).
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamGetAttribute`](fn@cuda_sys::cuStreamGetAttribute).
    #[doc(alias = "cuStreamGetAttribute")]
    pub fn memory_sync_domain_map(&self) -> Result<MemorySyncDomainMap> {
        let value = self.attribute(DOMAIN_MAP)?;
        // SAFETY: the driver has filled this field in, in a value of zeros; it is two integers.
        let CUlaunchMemSyncDomainMap { default_, remote } = unsafe { value.memSyncDomainMap };
        Ok(MemorySyncDomainMap {
            default: default_,
            remote,
        })
    }

    /// `cuStreamSetAttribute(stream, MEM_SYNC_DOMAIN_MAP, value)`: changes that.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a domain that the device does not have, and on a driver that is
    /// older.
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    pub fn set_memory_sync_domain_map(&self, map: MemorySyncDomainMap) -> Result<()> {
        let MemorySyncDomainMap { default, remote } = map;
        self.set_attribute(DOMAIN_MAP, |value| {
            value.memSyncDomainMap = CUlaunchMemSyncDomainMap {
                default_: default,
                remote,
            };
        })
    }

    /// `cuStreamGetAttribute(stream, ACCESS_POLICY_WINDOW, &value)`: the addresses that the stream has
    /// a policy for, and that.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamGetAttribute`](fn@cuda_sys::cuStreamGetAttribute).
    #[doc(alias = "cuStreamGetAttribute")]
    pub fn access_window(&self) -> Result<Option<(Range<CUdeviceptr>, AccessWindow)>> {
        let value = self.attribute(WINDOW)?;
        // SAFETY: the driver has filled this field in, in a value of zeros; it is of numbers, and
        // nobody follows the pointer.
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

    /// `cuStreamSetAttribute(stream, ACCESS_POLICY_WINDOW, value)`: how the L2 cache treats accesses
    /// to `memory` by kernels that the stream is given from now on; a policy before is replaced.
    ///
    /// A hint, which reads and writes nothing: it does no harm when the memory is freed, and then is
    /// of whatever comes to its addresses.
    ///
    /// ```no_run
    /// # use cuda_safe::{AccessProperty, AccessWindow, Context, Device, DeviceBuffer};
    /// # let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let table = DeviceBuffer::<f32>::zeroed(&stream, 1024)?;
    /// stream.set_access_window(&table, AccessWindow {
    ///     hit: AccessProperty::Persisting,
    ///     miss: AccessProperty::Streaming,
    ///     ..Default::default()
    /// })?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// # Errors
    /// Memory of another context; [`Invalid::AccessWindow`]; `CUDA_ERROR_INVALID_VALUE` for more bytes
    /// than [`MAX_ACCESS_POLICY_WINDOW_SIZE`](crate::attribute::MAX_ACCESS_POLICY_WINDOW_SIZE).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    pub fn set_access_window<'a, T: 'a>(
        &self,
        memory: impl Into<DeviceSlice<'a, T>>,
        window: AccessWindow,
    ) -> Result<()> {
        let memory = memory.into();
        same_context("the memory", memory.stream().context(), self.context())?;
        let AccessWindow {
            hit_ratio,
            hit,
            miss,
            _non_exhaustive: (),
        } = window;
        if !(0.0..=1.0).contains(&hit_ratio) || miss == AccessProperty::Persisting {
            return Err(Invalid::AccessWindow {
                hit_ratio: hit_ratio.to_string(),
                miss: format!("{miss:?}"),
            }
            .into());
        }
        let start = usize::try_from(memory.as_raw()).unwrap_or(0);
        self.set_attribute(WINDOW, |value| {
            value.accessPolicyWindow = CUaccessPolicyWindow {
                base_ptr: std::ptr::without_provenance_mut(start),
                num_bytes: memory.size_bytes(),
                hitRatio: hit_ratio,
                hitProp: hit.raw(),
                missProp: miss.raw(),
            };
        })
    }

    /// `cuStreamSetAttribute(stream, ACCESS_POLICY_WINDOW, value)` of no bytes: all accesses are as
    /// usual again.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    pub fn clear_access_window(&self) -> Result<()> {
        // Zeros are no bytes, and normal.
        self.set_attribute(WINDOW, |_| {})
    }

    /// `cuStreamCopyAttributes(stream, source)`: sets this stream to what `source` is set to.
    ///
    /// # Errors
    /// A stream of another context.
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamCopyAttributes`](fn@cuda_sys::cuStreamCopyAttributes).
    #[doc(alias = "cuStreamCopyAttributes")]
    pub fn copy_attributes_from(&self, source: &Self) -> Result<()> {
        same_context("the source", source.context(), self.context())?;
        without_current(self.context(), || {
            // SAFETY: both streams are alive.
            unsafe { answer!(cuStreamCopyAttributes(self.raw(), source.raw())) }
        })
    }

    fn attribute(&self, attribute: CUstreamAttrID) -> Result<CUstreamAttrValue> {
        let mut value = CUstreamAttrValue::default();
        let place = &raw mut value;
        without_current(self.context(), || {
            // SAFETY: the stream is alive, and the pointer is to a local.
            unsafe { answer!(cuStreamGetAttribute(self.raw(), attribute, place)) }
        })?;
        Ok(value)
    }

    fn set_attribute(
        &self,
        attribute: CUstreamAttrID,
        fill: impl FnOnce(&mut CUstreamAttrValue),
    ) -> Result<()> {
        let mut value = CUstreamAttrValue::default();
        fill(&mut value);
        let place = &raw const value;
        without_current(self.context(), || {
            // SAFETY: the stream is alive, and the pointer is to a value of zeros with the field of
            // this attribute filled in.
            unsafe { answer!(cuStreamSetAttribute(self.raw(), attribute, place)) }
        })
    }
}
