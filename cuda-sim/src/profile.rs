//! The GPU and the driver version that the software driver simulates.

pub(crate) mod sms;

use crate::checks::{Check, Checks};
use cuda_sys::CudaVersion;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A GPU model, the number of devices, and the CUDA version of the driver.
///
/// The profile [`h200`](Self::h200) with CUDA 13.0 returns what a real device and driver returned. Every
/// other device and version is **unverified (from documentation)**, and is printed with this note.
///
/// ```
/// use cuda_sim::Profile;
///
/// let profile: Profile = "h200@12.4".parse()?;
/// assert_eq!(profile.driver().to_string(), "12.4");
/// assert!(!profile.is_recorded());
/// # Ok::<_, cuda_sim::UnknownProfile>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub(crate) gpu: &'static Gpu,
    pub(crate) driver: CudaVersion,
    pub(crate) devices: u32,
    pub(crate) seed: u64,
    /// Whether the host may access managed memory while kernels run.
    pub(crate) concurrent_managed_access: bool,
    /// Whether devices access some host memory at an address that differs from the host address.
    pub(crate) disjoint_host_addresses: bool,
    pub(crate) driver_thread: bool,
    pub(crate) race_detection: bool,
    pub(crate) lenient_misuse: bool,
    pub(crate) leak_sites: bool,
    pub(crate) coverage: bool,
    /// The file to which the coverage is appended when the process exits.
    pub(crate) coverage_file: Option<PathBuf>,
    /// The folder of the software NCCL.
    pub(crate) nccl_folder: Option<PathBuf>,
    pub(crate) kernel_checks: Checks,
    /// What a launch of a kernel that is not registered does.
    pub(crate) kernels: Kernels,
}

/// The known properties of a GPU.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
    pub(crate) capability: (u32, u32),
    pub(crate) sms: u32,
    /// In bytes.
    pub(crate) memory: u64,
    /// In kHz.
    pub(crate) clock: u32,
    pub(crate) shared_memory_per_sm: u32,
    pub(crate) threads_per_sm: u32,
    pub(crate) blocks_per_sm: u32,
    pub(crate) l2: u32,
    /// Number of parts that have their own SMs and memory.
    pub(crate) locality_domains: u32,
}

impl Gpu {
    /// The maximum shared memory of a block, in bytes.
    pub(crate) fn shared_opt_in(&self) -> u32 {
        if self.capability.0 < 7 {
            48 * 1024
        } else {
            self.shared_memory_per_sm - self.shared_reserved()
        }
    }

    /// Shared memory of each block that the driver reserves, in bytes.
    pub(crate) fn shared_reserved(&self) -> u32 {
        if self.capability.0 < 8 { 0 } else { 1024 }
    }

    /// The locality domain of an SM. Unverified: NVIDIA does not document which SMs belong to a domain.
    pub(crate) fn domain_of(&self, sm: u32) -> u32 {
        sm / self.sms.div_ceil(self.locality_domains)
    }
}

const GPUS: [Gpu; 7] = [
    Gpu {
        key: "h200",
        name: "NVIDIA H200",
        capability: (9, 0),
        sms: 132,
        memory: 150_109_880_320,
        clock: 1_980_000,
        shared_memory_per_sm: 233_472,
        threads_per_sm: 2_048,
        blocks_per_sm: 32,
        l2: 62_914_560,
        locality_domains: 1,
    },
    Gpu {
        key: "h100",
        name: "NVIDIA H100 80GB HBM3",
        capability: (9, 0),
        sms: 132,
        memory: 85_899_345_920,
        clock: 1_980_000,
        shared_memory_per_sm: 233_472,
        threads_per_sm: 2_048,
        blocks_per_sm: 32,
        l2: 52_428_800,
        locality_domains: 1,
    },
    Gpu {
        key: "a100",
        name: "NVIDIA A100-SXM4-80GB",
        capability: (8, 0),
        sms: 108,
        memory: 85_899_345_920,
        clock: 1_410_000,
        shared_memory_per_sm: 167_936,
        threads_per_sm: 2_048,
        blocks_per_sm: 32,
        l2: 41_943_040,
        locality_domains: 1,
    },
    Gpu {
        key: "l40s",
        name: "NVIDIA L40S",
        capability: (8, 9),
        sms: 142,
        memory: 48_318_382_080,
        clock: 2_520_000,
        shared_memory_per_sm: 102_400,
        threads_per_sm: 1_536,
        blocks_per_sm: 24,
        l2: 100_663_296,
        locality_domains: 1,
    },
    Gpu {
        key: "p40",
        name: "Tesla P40",
        capability: (6, 1),
        sms: 30,
        memory: 25_769_803_776,
        clock: 1_531_000,
        shared_memory_per_sm: 98_304,
        threads_per_sm: 2_048,
        blocks_per_sm: 32,
        l2: 3_145_728,
        locality_domains: 1,
    },
    Gpu {
        key: "v100",
        name: "Tesla V100-SXM2-32GB",
        capability: (7, 0),
        sms: 80,
        memory: 34_359_738_368,
        clock: 1_530_000,
        shared_memory_per_sm: 98_304,
        threads_per_sm: 2_048,
        blocks_per_sm: 32,
        l2: 6_291_456,
        locality_domains: 1,
    },
    Gpu {
        key: "b200",
        name: "NVIDIA B200",
        capability: (10, 0),
        sms: 148,
        memory: 192_265_846_784,
        clock: 1_965_000,
        shared_memory_per_sm: 233_472,
        threads_per_sm: 2_048,
        blocks_per_sm: 32,
        l2: 132_644_864,
        locality_domains: 2,
    },
];

/// The driver versions that can be simulated.
const VERSIONS: [CudaVersion; 9] = [
    CudaVersion::new(11, 8),
    CudaVersion::new(12, 2),
    CudaVersion::new(12, 4),
    CudaVersion::new(12, 6),
    CudaVersion::new(12, 9),
    RECORDED,
    CudaVersion::new(13, 1),
    CudaVersion::new(13, 4),
    CudaVersion::new(13, 5),
];

/// The version of the driver from which the answers were recorded.
const RECORDED: CudaVersion = CudaVersion::new(13, 0);

/// What a launch of a kernel does for which no Rust function is [registered](crate::kernel::register).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernels {
    /// The kernel runs by its PTX. A launch of a kernel that has only machine code fails, with a
    /// [misuse](crate::misuses) that names it.
    #[default]
    Interpret,
    /// The launch fails, with a misuse that names the kernel.
    Registered,
    /// The kernel does nothing. [`unregistered_kernels`](crate::unregistered_kernels) lists it.
    Ignore,
}

impl Profile {
    const fn of(gpu: &'static Gpu) -> Self {
        Self {
            gpu,
            driver: RECORDED,
            devices: 1,
            seed: 0,
            concurrent_managed_access: true,
            disjoint_host_addresses: false,
            driver_thread: false,
            race_detection: false,
            lenient_misuse: false,
            leak_sites: false,
            coverage: false,
            coverage_file: None,
            nccl_folder: None,
            kernel_checks: Checks::MEMCHECK,
            kernels: Kernels::Interpret,
        }
    }

    /// Returns the profile of an NVIDIA H200 (compute capability 9.0, 132 SMs) with a driver for CUDA
    /// 13.0. It is recorded from real hardware.
    pub const fn h200() -> Self {
        Self::of(&GPUS[0])
    }

    /// Returns the profile of an NVIDIA H100 (9.0, 132 SMs). Unverified (from documentation).
    pub const fn h100() -> Self {
        Self::of(&GPUS[1])
    }

    /// Returns the profile of an NVIDIA A100 (8.0, 108 SMs). Unverified (from documentation).
    pub const fn a100() -> Self {
        Self::of(&GPUS[2])
    }

    /// Returns the profile of an NVIDIA L40S (8.9, 142 SMs). Unverified (from documentation).
    pub const fn l40s() -> Self {
        Self::of(&GPUS[3])
    }

    /// Returns the profile of a Tesla P40 (6.1, 30 SMs). Unverified (from documentation).
    pub const fn p40() -> Self {
        Self::of(&GPUS[4])
    }

    /// Returns the profile of a Tesla V100 (7.0, 80 SMs). Unverified (from documentation).
    pub const fn v100() -> Self {
        Self::of(&GPUS[5])
    }

    /// Returns the profile of an NVIDIA B200 (10.0, 148 SMs in two locality domains). Unverified (from
    /// documentation).
    pub const fn b200() -> Self {
        Self::of(&GPUS[6])
    }

    /// Sets the CUDA version of the driver. Newer functions are absent, newer fields are zero, and rules
    /// that changed between versions are those of this version.
    ///
    /// # Errors
    /// The version is not one of 11.8, 12.2, 12.4, 12.6, 12.9, 13.0, 13.1, 13.4 and 13.5.
    pub fn with_driver(self, driver: CudaVersion) -> Result<Self, UnknownProfile> {
        if VERSIONS.contains(&driver) {
            Ok(Self { driver, ..self })
        } else {
            Err(UnknownProfile(driver.to_string()))
        }
    }

    /// Sets the number of devices. All are of the same model.
    #[must_use]
    pub fn with_devices(self, devices: u32) -> Self {
        Self { devices, ..self }
    }

    /// Sets the seed that chooses among the streams that have work ready. The same seed reproduces a
    /// misuse.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Simulates a system (Windows, WSL) where the host must not access managed memory while kernels
    /// run: such memory is attached to one stream or to the host.
    #[must_use]
    pub fn without_concurrent_managed_access(self) -> Self {
        Self { concurrent_managed_access: false, ..self }
    }

    /// Simulates a system where registered and write-combined host memory has a device address that
    /// differs from its host address, as NVIDIA documents for systems with unified addressing. Devices
    /// cannot use its host address; copies accept it as a host pointer.
    ///
    /// Unverified (from documentation): an H200 uses one address for both.
    #[must_use]
    pub fn with_disjoint_host_addresses(self) -> Self {
        Self { disjoint_host_addresses: true, ..self }
    }

    /// Adds a thread of the driver. It runs enqueued work when the program has made no call for ten
    /// milliseconds, and host functions that a query has found ready, so that a program can wait for a host
    /// function or for a value in memory without calling the driver. `cuStreamQuery` and `cuEventQuery` then
    /// run no host functions.
    ///
    /// Without the thread, work runs only inside of calls, and a run depends on nothing but the calls and the
    /// seed. Under [`explore`](crate::explore) the thread does nothing.
    #[must_use]
    pub fn with_driver_thread(self) -> Self {
        Self { driver_thread: true, ..self }
    }

    /// Reports races: conflicting accesses to the same bytes by operations that no order connects. See the
    /// [page on races](mod@crate::races).
    ///
    /// The mode changes no result of any call. It takes time and memory for each operation.
    #[must_use]
    pub fn with_race_detection(self) -> Self {
        Self { race_detection: true, ..self }
    }

    /// Sets the checks of kernels that run by their PTX. See the [page on checks](mod@crate::checks).
    ///
    /// They change no result of any call. A kernel runs slower with one other than memcheck, which is always on.
    /// [`Check::Racecheck`] turns on the [detection of races](Self::with_race_detection) between operations too.
    #[must_use]
    pub fn with_kernel_checks(self, checks: Checks) -> Self {
        Self { kernel_checks: checks, ..self }
    }

    /// Notes where the program allocates memory, for [`leaks`](crate::leaks), and where it [poisons](crate::poison())
    /// bytes. This takes some microseconds for each allocation.
    #[must_use]
    pub fn with_leak_sites(self) -> Self {
        Self { leak_sites: true, ..self }
    }

    /// Counts the lines of PTX and of source that kernels execute, for [`coverage`](crate::coverage()). Kernels run
    /// slower.
    #[must_use]
    pub fn with_coverage(self) -> Self {
        Self { coverage: true, ..self }
    }

    /// Counts the lines that kernels execute, and appends them to a file when the process exits. A forked child appends
    /// nothing. See the [page on coverage](mod@crate::coverage).
    #[must_use]
    pub fn with_coverage_file(self, file: impl Into<PathBuf>) -> Self {
        Self { coverage: true, coverage_file: Some(file.into()), ..self }
    }

    /// Makes ranks of the [software NCCL](mod@crate::nccl) in several processes find each other through a folder that
    /// exists. All of the processes must name it.
    #[must_use]
    pub fn with_nccl_folder(self, folder: impl Into<PathBuf>) -> Self {
        Self { nccl_folder: Some(folder.into()), ..self }
    }

    /// Makes the driver continue after an illegal access of the device. The [misuse](crate::misuses) is
    /// reported, but later calls do not fail because of it, as they would on a GPU.
    ///
    /// An operation that uses stream-ordered memory before its allocation has run then has its effect, as it
    /// usually has on a GPU. Another operation with an illegal access ends there.
    #[must_use]
    pub fn with_lenient_misuse(self) -> Self {
        Self { lenient_misuse: true, ..self }
    }

    /// Sets what a launch of a kernel does that is not [registered](crate::kernel::register).
    #[must_use]
    pub fn with_kernels(self, kernels: Kernels) -> Self {
        Self { kernels, ..self }
    }

    /// Makes kernels that are not [registered](crate::kernel::register) do nothing, instead of running by
    /// their PTX: [`Kernels::Ignore`].
    ///
    /// This is for tests of everything except results: allocations, copies, launches, streams and errors.
    /// [`unregistered_kernels`](crate::unregistered_kernels) lists the kernels that did nothing.
    #[must_use]
    pub fn ignoring_unregistered_kernels(self) -> Self {
        self.with_kernels(Kernels::Ignore)
    }

    /// Returns the CUDA version of the driver.
    pub fn driver(&self) -> CudaVersion {
        self.driver
    }

    /// Returns whether races are detected.
    pub fn detects_races(&self) -> bool {
        self.race_detection || self.kernel_checks.contains(Check::Racecheck)
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns whether the answers were recorded from a real device and driver.
    pub fn is_recorded(&self) -> bool {
        self.gpu.key == "h200"
            && self.driver == RECORDED
            && self.concurrent_managed_access
            && !self.disjoint_host_addresses
    }

    /// Returns the names of the GPUs that [`str::parse`] accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        GPUS.iter().map(|gpu| gpu.key)
    }

    /// Returns the driver versions that [`with_driver`](Self::with_driver) accepts.
    pub fn versions() -> impl Iterator<Item = CudaVersion> {
        VERSIONS.into_iter()
    }
}

/// Prints the GPU and the version (`NVIDIA H200, CUDA 13.0`), the seed if it is not 0, and a note if the
/// profile was not recorded from real hardware.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, CUDA {}", self.gpu.name, self.driver)?;
        if self.seed != 0 {
            write!(f, ", seed {}", self.seed)?;
        }
        if !self.is_recorded() {
            f.write_str(", unverified (from documentation)")?;
        }
        Ok(())
    }
}

/// Parses `h200`, `h200*2` for [two devices](Profile::with_devices), or `h200@12.4`. A
/// [seed](Profile::with_seed) may follow: `h200*2@12.4#7`.
impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        let unknown = || UnknownProfile(text.to_owned());
        let (name, seed) = match text.split_once('#') {
            Some((name, seed)) => (name, seed.parse().map_err(|_| unknown())?),
            None => (text, 0),
        };
        let (key, version) = match name.split_once('@') {
            Some((key, version)) => (key, Some(version)),
            None => (name, None),
        };
        let (key, devices) = match key.split_once('*') {
            Some((key, devices)) => (key, devices.parse().map_err(|_| unknown())?),
            None => (key, 1),
        };
        let gpu = GPUS.iter().find(|gpu| gpu.key == key).ok_or_else(unknown)?;
        let profile = Self::of(gpu).with_seed(seed).with_devices(devices);
        match version {
            None => Ok(profile),
            Some(version) => profile.with_driver(version.parse().map_err(|_| unknown())?),
        }
    }
}

/// The error of parsing a [`Profile`] or of [`Profile::with_driver`]: the profile does not exist.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownProfile(String);

impl fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: Vec<String> = VERSIONS.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = Profile::names().collect();
        write!(
            f,
            "no profile {}: the GPUs are {}; optional suffixes are * and a number of devices, @ and a \
             driver version ({}), # and a seed",
            self.0,
            names.join(", "),
            versions.join(", ")
        )
    }
}

cuda_sys::debug_text! { struct UnknownProfile(_) }

impl std::error::Error for UnknownProfile {}
