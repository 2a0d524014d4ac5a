//! Communicators from other communicators, and the orderly end.

use crate::call::{Progress, failed, int, nccl};
use crate::communicator::{Communicator, Place, place_of, primary_of};
use crate::config::Config;
use crate::error::{Error, Invalid, Result};
use crate::shared::{Shared, outside_captures};
use crate::sys::{self, ncclComm_t, ncclConfig_t, ncclResult_t};
use crate::unique_id::UniqueId;
use cuda_safe::Stream;

impl Communicator {
    /// Creates a communicator with the ranks that pass the same color, in the order of their keys, and of the ranks for
    /// equal keys. Calls `ncclCommSplit`.
    ///
    /// All ranks must call it. A rank without a color gets none. Without a configuration, the new communicator has that
    /// of this one. Waits for the other ranks.
    ///
    /// # Errors
    /// Errors of NCCL and the driver.
    ///
    /// Since NCCL 2.18. Raw: [`ncclCommSplit`](fn@crate::sys::ncclCommSplit).
    #[doc(alias = "ncclCommSplit")]
    #[inline]
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        config: Option<&Config>,
    ) -> Result<Option<Self>> {
        let raw_color = match color {
            Some(color) => int("the color", color)?,
            None => sys::NCCL_SPLIT_NOCOLOR,
        };
        self.derive(config, false, |raw, place, config| {
            // SAFETY: the communicator is alive, and the place stays valid until the split has ended. NCCL copies the
            // configuration.
            unsafe { nccl!(ncclCommSplit(raw, raw_color, key, place, config)) }
        })
    }

    /// Creates a communicator without some ranks. Calls `ncclCommShrink`.
    ///
    /// All ranks that remain must call it, and no other. The order of the ranks remains. `after_error` ends the
    /// operations of this communicator first: use it if a rank that is excluded has failed. Otherwise all operations
    /// must be complete.
    ///
    /// # Errors
    /// [`Invalid::Rank`]; [`Invalid::Empty`] if no rank is excluded; errors of NCCL and the driver.
    ///
    /// Since NCCL 2.27. Raw: [`ncclCommShrink`](fn@crate::sys::ncclCommShrink).
    #[doc(alias = "ncclCommShrink")]
    #[inline]
    pub fn shrink(
        &self,
        excluded: &[u32],
        after_error: bool,
        config: Option<&Config>,
    ) -> Result<Self> {
        let ranks = self.ranks();
        if let Some(rank) = excluded.iter().find(|rank| **rank >= ranks) {
            return Err(Invalid::Rank { what: "an excluded rank", rank: *rank, ranks }.into());
        }
        if excluded.is_empty() {
            return Err(Invalid::Empty { what: "the list of excluded ranks" }.into());
        }
        let mut list: Vec<i32> = excluded.iter().map(|rank| *rank as i32).collect();
        list.sort_unstable();
        list.dedup();
        let count =
            int("the number of excluded ranks", u32::try_from(list.len()).unwrap_or(u32::MAX))?;
        let flags = match after_error {
            true => sys::NCCL_SHRINK_ABORT,
            false => sys::NCCL_SHRINK_DEFAULT,
        };
        let shrunk = self.derive(config, after_error, |raw, place, config| {
            let list = list.as_mut_ptr();
            // SAFETY: as for `split`; the list has `count` elements.
            unsafe { nccl!(ncclCommShrink(raw, list, count, place, config, flags as i32)) }
        })?;
        shrunk.ok_or(Error::Aborted)
    }

    /// Returns an id for new ranks. Calls `ncclCommGetUniqueId`. One rank calls it, passes the id to the new
    /// ranks, and then [grows](Self::grow) with it.
    ///
    /// An id is for one growth, which must be the next communicator that is created from this one. No other rank may
    /// create an id before that growth.
    ///
    /// # Errors
    /// Errors of NCCL.
    ///
    /// Since NCCL 2.29. Raw: [`ncclCommGetUniqueId`](fn@crate::sys::ncclCommGetUniqueId).
    #[doc(alias = "ncclCommGetUniqueId")]
    #[inline]
    pub fn growth_id(&self) -> Result<UniqueId> {
        let mut id = sys::ncclUniqueId::default();
        let place = &raw mut id;
        self.shared.slow_call(|raw| {
            // SAFETY: the communicator is alive, and the pointer is valid for a write.
            unsafe { nccl!(ncclCommGetUniqueId(raw, place)) }
        })?;
        Ok(UniqueId::of_raw(id))
    }

    /// Creates a communicator with the ranks of this one and new ones, `ranks` in all. Calls `ncclCommGrow`.
    ///
    /// All ranks must call it; the one that has created the id passes it. The new ranks call
    /// [`join`](Self::join). The old ranks keep their numbers, and the new ones have the numbers after them. This
    /// communicator stays usable. All its operations must be complete.
    ///
    /// Waits for the other ranks. If this communicator is [interruptible](Config::interruptible), an abort ends the wait
    /// for new ranks. The wait for the [id](Self::growth_id) is inside a call of NCCL, so create the id first.
    ///
    /// # Errors
    /// [`Error::Aborted`]; errors of NCCL and the driver, such as that for a number of ranks that is not larger.
    ///
    /// ```no_run
    /// use cuda_nccl::{Communicator, Config, UniqueId};
    /// # use cuda_safe::Stream;
    /// # fn old(communicator: &Communicator) -> cuda_nccl::Result<()> {
    ///
    /// // On rank 0 of two ranks. Rank 1 calls `grow(3, None, None)`.
    /// let id = communicator.growth_id()?;
    /// std::fs::write("growth", id.as_bytes()).expect("a file that the new rank reads");
    /// let larger = communicator.grow(3, Some(&id), None)?;
    /// # Ok(())
    /// # }
    /// # fn new(stream: &Stream, id: UniqueId) -> cuda_nccl::Result<()> {
    ///
    /// // On the new rank.
    /// let larger = Communicator::join(stream, &id, 2, 3, &Config::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Since NCCL 2.29. Raw: [`ncclCommGrow`](fn@crate::sys::ncclCommGrow).
    #[doc(alias = "ncclCommGrow")]
    #[inline]
    pub fn grow(&self, ranks: u32, id: Option<&UniqueId>, config: Option<&Config>) -> Result<Self> {
        let ranks = int("the number of ranks", ranks)?;
        let id = id.map(UniqueId::raw);
        let id = id.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        let grown = self.derive(config, false, |raw, place, config| {
            // SAFETY: as for `split`; the id is null or alive.
            unsafe { nccl!(ncclCommGrow(raw, ranks, id, -1, place, config)) }
        })?;
        grown.ok_or(Error::Aborted)
    }

    /// Creates the communicator of a new rank of one that [grows](Self::grow) to `ranks` ranks. Calls `ncclCommGrow`.
    ///
    /// `rank` is not less than the number of ranks of the old communicator. Waits for the other ranks.
    ///
    /// # Errors
    /// See [`init`](Self::init).
    ///
    /// Since NCCL 2.29. Raw: [`ncclCommGrow`](fn@crate::sys::ncclCommGrow).
    #[doc(alias = "ncclCommGrow")]
    #[inline]
    pub fn join(
        stream: &Stream,
        id: &UniqueId,
        rank: u32,
        ranks: u32,
        config: &Config,
    ) -> Result<Self> {
        let primary = primary_of(stream)?;
        let (own, all) = (int("the rank", rank)?, int("the number of ranks", ranks)?);
        if rank >= ranks {
            return Err(Invalid::Rank { what: "the rank", rank, ranks }.into());
        }
        let (new, mut config_raw, id) = (Place::new(), config.raw()?, id.raw());
        let (place, raw_config) = (new.address(), &raw mut config_raw.raw);
        let joined = outside_captures(|| {
            primary.with_current(|_| {
                // SAFETY: a new rank passes no communicator; the place stays valid until the creation has ended.
                unsafe {
                    nccl!(ncclCommGrow(
                        core::ptr::null_mut(),
                        all,
                        &raw const id,
                        own,
                        place,
                        raw_config
                    ))
                }
            })?
        });
        match joined {
            Err(error) => {
                new.leak();
                Err(error)
            }
            Ok(_) => {
                let home = (&primary, stream);
                let shared = Shared::new(new.raw(), home, config.interruptible);
                let its = Self::of(shared, (rank, ranks));
                match its.created(config.timeout) {
                    Ok(()) => Ok(its),
                    Err(error) => {
                        // It may still be in creation.
                        its.shared.abort()?;
                        Err(error)
                    }
                }
            }
        }
    }

    /// Creates a communicator from this one. NCCL returns no handle for a rank that is not part of it. `after_error` says
    /// that the call ends the operations of this one, whose errors then do not matter.
    fn derive(
        &self,
        config: Option<&Config>,
        after_error: bool,
        call: impl FnOnce(ncclComm_t, *mut ncclComm_t, *mut ncclConfig_t) -> Result<Progress>,
    ) -> Result<Option<Self>> {
        let shared = &self.shared;
        let inherited = shared.is_interruptible;
        let is_interruptible = config.map_or(inherited, |config| config.interruptible);
        let mut config = config.map(Config::raw).transpose()?;
        let raw_config =
            config.as_mut().map_or(core::ptr::null_mut(), |config| &raw mut config.raw);
        let new = Place::new();
        let place = new.address();
        let created = outside_captures(|| {
            let mut handle = shared.lock()?;
            if after_error {
                shared.will_interrupt(&mut handle);
            }
            let raw = handle.raw();
            shared.primary.with_current(|_| call(raw, place, raw_config))??;
            let ([own, its], child) = shared.wait_for_child(&mut handle, || new.raw())?;
            let own = if after_error { ncclResult_t::ncclSuccess } else { own };
            let Some(code) = [own, its].into_iter().find(|code| *code != ncclResult_t::ncclSuccess)
            else {
                return Ok(child);
            };
            if !child.is_null() {
                // SAFETY: the creation has ended, and no other code knows the communicator.
                unsafe { shared.abort_raw(child) }?;
            }
            Err(failed("ncclCommGetAsyncError", code))
        });
        let child = match created {
            Ok(child) if child.is_null() => return Ok(None),
            Ok(child) => child,
            Err(error) => {
                new.leak();
                return Err(error);
            }
        };
        let its = Shared::new(child, (&shared.primary, self.stream()), is_interruptible);
        // SAFETY: NCCL has created the communicator, and no other code knows it.
        let place = unsafe { place_of(child) };
        let its = Self::of(its, *place.as_ref().unwrap_or(&(0, 1)));
        place.map(|_| Some(its))
    }

    /// Completes the operations of this communicator and destroys it, as a drop does, and returns errors. Calls
    /// `ncclCommFinalize` and `ncclCommDestroy`.
    ///
    /// Waits until the work of the stream is complete. An [abort](crate::Abort) ends the wait.
    ///
    /// # Errors
    /// [`Error::Aborted`]; an error of the operations; errors of NCCL and the driver. The communicator is then aborted.
    ///
    /// Raw: [`ncclCommFinalize`](fn@crate::sys::ncclCommFinalize),
    /// [`ncclCommDestroy`](fn@crate::sys::ncclCommDestroy).
    #[doc(alias = "ncclCommFinalize", alias = "ncclCommDestroy")]
    #[inline]
    pub fn finalize(self) -> Result<()> {
        if let Err(error) = self.check() {
            self.shared.abort()?;
            return Err(error);
        }
        self.shared.finalize()
    }
}
