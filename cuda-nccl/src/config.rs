//! The configuration of communicators.

use crate::call::{c_string, int};
use crate::error::Result;
use crate::sys;
use std::ffi::{CString, c_int};
use std::time::Duration;

/// Options of a new communicator. The default is that of NCCL, which also reads environment variables.
///
/// An older NCCL ignores the options that it does not know. Later versions may add fields: end each value with
/// `..Default::default()`.
///
/// Raw: `ncclConfig_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(alias = "ncclConfig_t", alias = "ncclCommInitRankConfig")]
pub struct Config {
    /// Whether [`Abort`](crate::Abort) can interrupt calls that wait for other ranks, such as the creation of a
    /// communicator and the first operation between two ranks. NCCL then uses a thread for every call
    /// (`blocking = 0`), which makes calls slower; in the safe functions, a call nevertheless returns only when it is complete. By
    /// default, an abort waits for a call that is under way.
    pub interruptible: bool,
    /// How long the creation of a communicator waits for the other ranks. Needs [`interruptible`](Self::interruptible).
    pub timeout: Option<Duration>,
    /// The smallest and the largest number of thread blocks of an operation, and so of the SMs that it needs. A
    /// [green context](cuda_safe::green) with few SMs needs a maximum.
    pub min_ctas: Option<u32>,
    /// See [`min_ctas`](Self::min_ctas).
    pub max_ctas: Option<u32>,
    /// The number of thread blocks in a cluster, from 0 to 8. Since compute capability 9.0.
    pub cga_cluster_size: Option<u32>,
    /// The name of the network module, for example `"Socket"`.
    pub net_name: Option<String>,
    /// Whether a communicator that is created from this one by a split shares its resources.
    pub split_share: Option<bool>,
    /// The traffic class of connections of the network. Since NCCL 2.26.
    pub traffic_class: Option<u32>,
    /// The name of the communicator, for logs and profilers. Since NCCL 2.27.
    pub name: Option<String>,
    /// Whether collectives may run in network switches. Since NCCL 2.27.
    pub collnet: Option<bool>,
    /// The policy for the number of thread blocks. Since NCCL 2.27.
    pub cta_policy: Option<CtaPolicy>,
    /// Whether a communicator that is created from this one by [`shrink`](crate::Communicator::shrink) shares its
    /// resources. Since NCCL 2.27.
    pub shrink_share: Option<bool>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The policy for the number of thread blocks of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CtaPolicy {
    /// The number with the shortest time.
    Default,
    /// A number that leaves more SMs to other work.
    Efficiency,
    /// No thread block where the hardware can copy without one. Since NCCL 2.28.
    Zero,
}

/// A configuration for C, with the texts that it points to.
#[derive(Debug)]
pub(crate) struct RawConfig {
    pub(crate) raw: sys::ncclConfig_t,
    _texts: [Option<CString>; 2],
}

/// The value of an option that is not set.
const UNDEFINED: c_int = c_int::MIN;

impl Config {
    /// Converts the options. All fields of NCCL that are not options stay undefined.
    #[inline]
    pub(crate) fn raw(&self) -> Result<RawConfig> {
        let Self {
            interruptible,
            timeout: _,
            min_ctas,
            max_ctas,
            cga_cluster_size,
            net_name,
            split_share,
            traffic_class,
            name,
            collnet,
            cta_policy,
            shrink_share,
            _non_exhaustive: (),
        } = self;
        let number =
            |what, value: &Option<u32>| value.map_or(Ok(UNDEFINED), |value| int(what, value));
        let flag = |value: &Option<bool>| value.map_or(UNDEFINED, c_int::from);
        let text = |what, value: &Option<String>| {
            value.as_deref().map(|value| c_string(what, value)).transpose()
        };
        let texts = [text("the name of the network", net_name)?, text("the name", name)?];
        let [net, own] = texts
            .each_ref()
            .map(|text| text.as_ref().map_or(core::ptr::null(), |its| its.as_ptr()));
        let raw = sys::ncclConfig_t {
            blocking: c_int::from(!interruptible),
            cgaClusterSize: number("cga_cluster_size", cga_cluster_size)?,
            minCTAs: number("min_ctas", min_ctas)?,
            maxCTAs: number("max_ctas", max_ctas)?,
            netName: net,
            splitShare: flag(split_share),
            trafficClass: number("traffic_class", traffic_class)?,
            commName: own,
            collnetEnable: flag(collnet),
            CTAPolicy: match cta_policy {
                None => UNDEFINED,
                Some(CtaPolicy::Default) => sys::NCCL_CTA_POLICY_DEFAULT as c_int,
                Some(CtaPolicy::Efficiency) => sys::NCCL_CTA_POLICY_EFFICIENCY as c_int,
                Some(CtaPolicy::Zero) => sys::NCCL_CTA_POLICY_ZERO as c_int,
            },
            shrinkShare: flag(shrink_share),
            ..undefined()
        };
        Ok(RawConfig { raw, _texts: texts })
    }
}

/// Returns a configuration without options, as the initializer of the header does.
#[inline]
fn undefined() -> sys::ncclConfig_t {
    sys::ncclConfig_t {
        size: size_of::<sys::ncclConfig_t>(),
        magic: sys::NCCL_API_MAGIC,
        version: sys::NCCL_VERSION_CODE,
        blocking: UNDEFINED,
        cgaClusterSize: UNDEFINED,
        minCTAs: UNDEFINED,
        maxCTAs: UNDEFINED,
        netName: core::ptr::null(),
        splitShare: UNDEFINED,
        trafficClass: UNDEFINED,
        commName: core::ptr::null(),
        collnetEnable: UNDEFINED,
        CTAPolicy: UNDEFINED,
        shrinkShare: UNDEFINED,
        nvlsCTAs: UNDEFINED,
        nChannelsPerNetPeer: UNDEFINED,
        nvlinkCentricSched: UNDEFINED,
        graphUsageMode: UNDEFINED,
        numRmaCtx: UNDEFINED,
        maxP2pPeers: UNDEFINED,
        graphStreamOrdering: UNDEFINED,
        launchOrderImplicit: UNDEFINED,
        numRmaSig: UNDEFINED,
        rmaEagerInit: UNDEFINED,
        hostCftMode: UNDEFINED,
        nvlsHostMode: UNDEFINED,
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, CtaPolicy, UNDEFINED};
    use std::ffi::CStr;

    #[test]
    fn options_are_fields_and_others_stay_undefined() {
        let config = Config {
            max_ctas: Some(4),
            split_share: Some(true),
            name: Some("a".to_owned()),
            cta_policy: Some(CtaPolicy::Zero),
            ..Default::default()
        };
        let raw = config.raw().expect("a configuration");
        let its = &raw.raw;
        assert_eq!((its.blocking, its.maxCTAs, its.minCTAs), (1, 4, UNDEFINED));
        assert_eq!((its.splitShare, its.CTAPolicy, its.nvlsHostMode), (1, 2, UNDEFINED));
        // SAFETY: the text is alive.
        let name = unsafe { CStr::from_ptr(its.commName) };
        assert_eq!(name, c"a");
        assert!(its.netName.is_null());
        assert!(Config { min_ctas: Some(1 << 31), ..Default::default() }.raw().is_err());
        assert!(Config { name: Some("a\0".to_owned()), ..Default::default() }.raw().is_err());
    }
}
