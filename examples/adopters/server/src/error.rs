//! The error type of the server.

use std::fmt;

/// The result of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the server, or of one request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no tenant with this number.
    UnknownTenant(usize),
    /// A plan has another number of weights than there are tenants, or a weight of 0.
    Weights {
        /// The weights of the plan.
        weights: Vec<u32>,
        /// The number of tenants.
        tenants: usize,
    },
    /// A request for no numbers, or for more than fit into a launch.
    Length(usize),
    /// The server was stopped, or the thread of the tenant has ended.
    Stopped,
    /// After a plan failed, the previous one could not be restored. [`Server::apply`] may succeed later.
    ///
    /// [`Server::apply`]: crate::Server::apply
    NoPlan,
    /// An error of the driver.
    Driver(cuda_safe::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTenant(tenant) => write!(f, "there is no tenant {tenant} (zero-based)"),
            Self::Weights { weights, tenants } => write!(
                f,
                "the weights {weights:?} are not one positive number for each of {tenants} tenants"
            ),
            Self::Length(len) => write!(f, "a request cannot be for {len} numbers"),
            Self::Stopped => f.write_str("the server was stopped"),
            Self::NoPlan => f.write_str("no plan is in use, because the last ones failed"),
            Self::Driver(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<cuda_safe::Error> for Error {
    fn from(error: cuda_safe::Error) -> Self {
        Self::Driver(error)
    }
}
