//! Signals: the command passes those that it gets on to the program, and waits for it.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

/// The signals that end a program on request.
const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// The process of the program, or 0 before it is started and after it has ended.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the program was started, or 0.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Passes a signal on, unless the kernel sent it: a terminal sends its signals to all processes of the
/// foreground, so the program has got it too.
extern "C" fn pass_on(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the handler was installed with SA_SIGINFO, so the system passes the information.
    let code = unsafe { (*info).si_code };
    if code > 0 {
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => EARLY.store(signal, Ordering::SeqCst),
        // SAFETY: the function takes numbers, and may be called in a handler. The process has not been
        // waited for, so the number is that of the program.
        program => _ = unsafe { libc::kill(program, signal) },
    }
}

/// Installs the handlers. A program that is started does not inherit handlers, but it inherits that a signal is
/// ignored, for example under `nohup`. The command then ignores the signal too.
pub(crate) fn install() {
    for signal in SIGNALS {
        if is_ignored(signal) {
            continue;
        }
        // SAFETY: all bytes zero are a valid value: no flags, an empty mask and the default action.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = pass_on as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: the pointer is to a local variable, and the handler only uses atomics and `kill`.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: all bytes zero are a valid value: no flags, an empty mask and the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null pointer changes nothing, and the other pointer is to a local variable.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

/// Waits until the program ends. Until then, signals are passed on to it.
pub(crate) fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let process = i32::try_from(child.id()).map_err(io::Error::other)?;
    PROGRAM.store(process, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    if early != 0 {
        // SAFETY: the function takes numbers. The process is a child that has not been waited for.
        unsafe { libc::kill(process, early) };
    }
    loop {
        // SAFETY: all bytes zero are a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // WNOWAIT keeps the number of the process in use, until no handler sends signals to it.
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the pointer is to a local variable.
        let code = unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut info, options) };
        if code == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    PROGRAM.store(0, Ordering::SeqCst);
    child.wait()
}
