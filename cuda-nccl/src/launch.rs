//! The place of a process among those of a launcher.

use crate::error::{Invalid, Result};
use std::env;
use std::time::Duration;

/// The rank of this process, as `torchrun` and compatible launchers pass it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The rank of this process.
    pub rank: u32,
    /// The number of processes.
    pub world_size: u32,
    /// The rank among the processes of this machine: the ordinal of its device.
    pub local_rank: u32,
    /// The address and the port at which rank 0 listens in [`UniqueId::exchange`](crate::UniqueId::exchange).
    pub address: String,
    /// How long a rank waits for the others in [`UniqueId::exchange`](crate::UniqueId::exchange). 60 seconds by default.
    pub timeout: Duration,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Launch {
    /// Reads the environment variables `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT`.
    ///
    /// The launcher itself listens at `MASTER_PORT`, so the port of [`address`](Self::address) is the next one. The
    /// variable `CUDA_NCCL_PORT` names another port.
    ///
    /// # Errors
    /// [`Invalid::Variable`] if a variable is not set or is not a number, or if the rank is not less than the number of
    /// processes.
    #[inline]
    pub fn from_env() -> Result<Self> {
        Self::from_variables(|name| env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self> {
        let wrong = |name, value| Invalid::Variable { name, value };
        let text = |name| variable(name).ok_or(wrong(name, None));
        let number = |name| {
            let value = text(name)?;
            value.parse::<u32>().map_err(|_| wrong(name, Some(value)))
        };
        let (rank, world_size) = (number("RANK")?, number("WORLD_SIZE")?);
        if rank >= world_size {
            return Err(wrong("RANK", Some(rank.to_string())).into());
        }
        let port = match variable("CUDA_NCCL_PORT") {
            Some(_) => number("CUDA_NCCL_PORT")?,
            None => number("MASTER_PORT")?.saturating_add(1),
        };
        let port = u16::try_from(port).map_err(|_| wrong("MASTER_PORT", Some(port.to_string())))?;
        Ok(Self {
            rank,
            world_size,
            local_rank: number("LOCAL_RANK")?,
            address: format!("{}:{port}", text("MASTER_ADDR")?),
            timeout: Duration::from_secs(60),
            _non_exhaustive: (),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Launch;

    fn read(variables: &[(&'static str, &str)]) -> Result<Launch, String> {
        let find = |name| variables.iter().find(|(its, _)| *its == name);
        Launch::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_variables_of_torchrun_are_read() {
        let all = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "host"),
            ("MASTER_PORT", "29500"),
        ];
        let launch = read(&all).expect("a launch");
        assert_eq!((launch.rank, launch.world_size, launch.local_rank), (3, 4, 1));
        assert_eq!(launch.address, "host:29501");
        for missing in 0..all.len() {
            let mut some = all.to_vec();
            let (name, _) = some.remove(missing);
            let error = read(&some).expect_err("a variable is missing");
            assert!(error.contains(name) && error.contains("not set"), "{error}");
        }
        let mut other = all.to_vec();
        other.push(("CUDA_NCCL_PORT", "7"));
        assert_eq!(read(&other).expect("a launch").address, "host:7");
        other[5].1 = "70000";
        assert!(read(&other).is_err());
        other[0].1 = "4";
        assert!(read(&other).is_err_and(|error| error.contains("RANK")));
    }
}
