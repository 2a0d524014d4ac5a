//! The queues and the threads of the tenants.

use crate::error::{Error, Result};
use crate::placement::{Placement, Plan, Switch};
use cuda_safe::{Device, DeviceBuffer, LaunchConfig, Module, Stream, TypedKernel};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The parameters of the kernel: `(out, n, seed, rounds)`.
type Iterate = TypedKernel<(&'static mut [u32], u32, u32, u32)>;

/// A request: the last of `len` numbers, after `rounds` steps of a generator. The first number starts at
/// `seed`, and each other number at the next integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the first number starts.
    pub seed: u32,
    /// The number of numbers, each of which a thread of the GPU computes.
    pub len: usize,
    /// The number of steps of each number.
    pub rounds: u32,
}

/// The answer to a request, when it is there. Returned by [`Server::submit`].
#[derive(Debug)]
#[must_use = "a request is served whether or not the answer is waited for"]
pub struct Ticket(Receiver<Result<u32>>);

impl Ticket {
    /// Blocks until the request is answered, and returns the answer.
    ///
    /// # Errors
    /// The error of the request; [`Error::Stopped`].
    pub fn wait(self) -> Result<u32> {
        self.0.recv().unwrap_or(Err(Error::Stopped))
    }
}

struct Job {
    request: Request,
    answer: Sender<Result<u32>>,
}

/// A server with a queue and a thread for each tenant. Dropping it answers the requests that are in the
/// queues, and stops the threads.
#[derive(Debug)]
pub struct Server {
    placement: Arc<Placement>,
    tenants: Vec<Tenant>,
}

#[derive(Debug)]
struct Tenant {
    /// `None` after the server was stopped.
    queue: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server for a number of tenants, which share the device until [`apply`](Self::apply) is
    /// called. Memory comes from the allocator that was set for the process.
    ///
    /// # Errors
    /// Errors of the driver: for example, the device is already split.
    pub fn start(device: &Device, tenants: usize) -> Result<Self> {
        let placement = Arc::new(Placement::new(device, tenants)?);
        let module = Module::from_ptx(placement.context(), include_str!("kernels.ptx"))?;
        let kernel: Arc<Iterate> = Arc::new(module.kernel("iterate")?.typed()?);
        let start = |tenant| {
            let (queue, jobs) = channel();
            let (placement, kernel) = (Arc::clone(&placement), Arc::clone(&kernel));
            let thread = std::thread::spawn(move || serve(tenant, &jobs, &placement, &kernel));
            Tenant { queue: Some(queue), thread: Some(thread) }
        };
        let tenants = (0..tenants).map(start).collect();
        Ok(Self { placement, tenants })
    }

    /// Adds a request to the queue of a tenant. Does not block.
    ///
    /// # Errors
    /// [`Error::UnknownTenant`]; [`Error::Stopped`] if the thread of the tenant has panicked.
    pub fn submit(&self, tenant: usize, request: Request) -> Result<Ticket> {
        let its = self.tenants.get(tenant);
        let its = its.ok_or(Error::UnknownTenant(tenant))?;
        let queue = its.queue.as_ref().ok_or(Error::Stopped)?;
        let (answer, ticket) = channel();
        let sent = queue.send(Job { request, answer });
        sent.map_err(|_| Error::Stopped)?;
        Ok(Ticket(ticket))
    }

    /// Changes the plan. Blocks until the requests that are being served are answered; the queued ones
    /// are served with the new plan.
    ///
    /// # Errors
    /// [`Error::Weights`]; errors of the driver, for example if the device cannot be split in this way.
    /// The previous plan is then still in use.
    pub fn apply(&self, plan: &Plan) -> Result<Switch> {
        self.placement.apply(plan)
    }

    /// Runs a probe, and returns the SMs on which the work of each tenant runs. Blocks until the requests
    /// that are being served are answered.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn probe(&self) -> Result<Vec<BTreeSet<u32>>> {
        self.placement.probe()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for tenant in &mut self.tenants {
            tenant.queue = None;
        }
        for tenant in &mut self.tenants {
            // A panic of a thread was printed when it happened.
            let _ = tenant.thread.take().map(JoinHandle::join);
        }
    }
}

/// Serves the requests of a tenant until its queue is closed and empty.
fn serve(tenant: usize, jobs: &Receiver<Job>, placement: &Placement, kernel: &Iterate) {
    for Job { request, answer } in jobs {
        let result = {
            let placed = placement.of_tenant(tenant);
            let stream = placed.stream();
            stream.and_then(|stream| compute(stream, kernel, request))
        };
        // A client that does not wait for its answer has dropped the ticket.
        let _ = answer.send(result);
    }
}

/// Computes the answer to a request, and waits for it. No memory stays bound to the stream.
fn compute(stream: &Stream, kernel: &Iterate, request: Request) -> Result<u32> {
    let Request { seed, len, rounds } = request;
    let (Ok(n), Some(last)) = (u32::try_from(len), len.checked_sub(1)) else {
        return Err(Error::Length(len));
    };
    let mut out = DeviceBuffer::uninit(stream, len)?;
    let config = LaunchConfig::for_elements(len, 256)?;
    // SAFETY: the kernel writes the first `n` elements of `out`, which has as many, and accesses no other
    // memory.
    unsafe { kernel.launch(stream, config, (&mut out, n, seed, rounds)) }?;
    let mut answer = [0];
    out.slice(last..)?.copy_to_slice(&mut answer)?;
    Ok(answer[0])
}
