//! Takes the functions that the profile's driver does not have out of what `dlsym` finds.
//!
//! Programs ask a driver for a function to learn whether there is one, and what a library exports
//! is fixed when it is linked. So the library edits its own table of dynamic symbols while it is
//! loaded, before anybody can have asked: there a newer function becomes undefined. Where this
//! cannot be done, and for programs that are bound before, the function answers that it is not
//! there.

use crate::driver::PROFILE;
use crate::exports;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ptr::{null, null_mut};
use cuda_sys::Function;

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// `Dl_info`.
#[repr(C)]
struct Found {
    file: *const c_char,
    base: *mut c_void,
    name: *const c_char,
    address: *mut c_void,
}

/// What `dladdr1` is to tell besides: the entry of the table.
const RTLD_DL_SYMENT: c_int = 1;
const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const PROT_EXEC: c_int = 4;
const SC_PAGESIZE: c_int = 30;

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        found: *mut Found,
        symbol: *mut *mut Symbol,
        flags: c_int,
    ) -> c_int;
    fn mprotect(start: *mut c_void, length: usize, protection: c_int) -> c_int;
    fn sysconf(name: c_int) -> c_long;
}

// SAFETY (of the section): the dynamic linker calls what is there, once, when the library is
// loaded; a function that takes no arguments may be given some.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = hide;

extern "C" fn hide() {
    let driver = PROFILE.driver();
    let functions: Vec<Function> = Function::all().collect();
    let newer = exports::all().filter(|(index, _)| functions[*index].since() > driver);
    let symbols: Vec<*mut Symbol> = newer
        .filter_map(|(index, address)| symbol_of(address, functions[index].symbol_c()))
        .collect();
    let (Some(first), Some(last)) = (symbols.iter().min(), symbols.iter().max()) else {
        return;
    };
    // SAFETY: it takes a number.
    let page = unsafe { sysconf(SC_PAGESIZE) };
    let Some(page) = usize::try_from(page)
        .ok()
        .filter(|page| page.is_power_of_two())
    else {
        return;
    };
    let start = first.map_addr(|first| first & !(page - 1));
    let length = last.addr() + size_of::<Symbol>() - start.addr();
    if !protect(start, length, PROT_READ | PROT_WRITE) {
        return;
    }
    for symbol in symbols {
        // SAFETY: an entry of the table, which can be written now, and which nobody else uses: the
        // dynamic linker holds its lock while it loads the library.
        let symbol = unsafe { &mut *symbol };
        // An entry of no section, without a value, is undefined.
        symbol.section = 0;
        symbol.value = 0;
    }
    // Some linkers put the table beside the code.
    protect(start, length, PROT_READ | PROT_EXEC);
}

fn protect(start: *mut Symbol, length: usize, protection: c_int) -> bool {
    // SAFETY: the pages of the table. What lies beside it is read only too, or code, of which none
    // runs before the library is loaded but this function, which lies elsewhere.
    unsafe { mprotect(start.cast(), length, protection) == 0 }
}

/// The entry of an exported function in the table of dynamic symbols.
fn symbol_of(address: *const c_void, name: &CStr) -> Option<*mut Symbol> {
    let mut found = Found {
        file: null(),
        base: null_mut(),
        name: null(),
        address: null_mut(),
    };
    let mut symbol = null_mut();
    // SAFETY: the address is one of this library's, and the pointers are to locals.
    let code = unsafe { dladdr1(address, &raw mut found, &raw mut symbol, RTLD_DL_SYMENT) };
    if code == 0 || found.name.is_null() || symbol.is_null() {
        return None;
    }
    // SAFETY: what the dynamic linker tells is a name of its table, which ends with a NUL.
    let is_it = unsafe { CStr::from_ptr(found.name) } == name;
    is_it.then_some(symbol)
}
