//! Hides the functions that the profile's driver does not have from `dlsym`.
//!
//! Programs look up a function in the driver to find out whether it exists, but the exports of a library
//! are fixed when it is linked. Therefore this library edits its own dynamic symbol table while it is
//! loaded, before a program can look up a symbol: the entries of newer functions become undefined. Where
//! this is not possible, and in programs that bind symbols before that, a hidden function returns
//! `CUDA_ERROR_NOT_FOUND`.

use crate::driver::SETTINGS;
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

/// Makes `dladdr1` return the symbol table entry too.
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

// SAFETY (of the section): the dynamic linker calls the functions in this section once, when the library
// is loaded. It passes arguments, which a function without parameters may ignore.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = hide;

extern "C" fn hide() {
    let driver = SETTINGS.profile.driver();
    let functions: Vec<Function> = Function::all().collect();
    let newer = exports::all().filter(|(index, _)| functions[*index].since() > driver);
    let symbols: Vec<*mut Symbol> = newer
        .filter_map(|(index, address)| symbol_of(address, functions[index].symbol_c()))
        .collect();
    let (Some(first), Some(last)) = (symbols.iter().min(), symbols.iter().max()) else {
        return;
    };
    // SAFETY: the function takes an integer.
    let page = unsafe { sysconf(SC_PAGESIZE) };
    let Some(page) = usize::try_from(page).ok().filter(|page| page.is_power_of_two()) else {
        return;
    };
    let start = first.map_addr(|first| first & !(page - 1));
    let length = last.addr() + size_of::<Symbol>() - start.addr();
    if !protect(start, length, PROT_READ | PROT_WRITE) {
        return;
    }
    for symbol in symbols {
        // SAFETY: the pointer is to an entry of the table, which is writable now. Nothing else uses the
        // entry, because the dynamic linker holds its lock while it loads the library.
        let symbol = unsafe { &mut *symbol };
        // An entry without a section and without a value is undefined.
        symbol.section = 0;
        symbol.value = 0;
    }
    // Some linkers place the table in the same pages as code.
    protect(start, length, PROT_READ | PROT_EXEC);
}

fn protect(start: *mut Symbol, length: usize, protection: c_int) -> bool {
    // SAFETY: these are the pages of the table. Anything else in them is read-only data, or code. No
    // code of this library runs before the library is loaded, except for this function, which is in
    // other pages.
    unsafe { mprotect(start.cast(), length, protection) == 0 }
}

/// Returns the entry of an exported function in the dynamic symbol table.
fn symbol_of(address: *const c_void, name: &CStr) -> Option<*mut Symbol> {
    let mut found = Found { file: null(), base: null_mut(), name: null(), address: null_mut() };
    let mut symbol = null_mut();
    // SAFETY: the address belongs to this library, and the pointers refer to local variables.
    let code = unsafe { dladdr1(address, &raw mut found, &raw mut symbol, RTLD_DL_SYMENT) };
    if code == 0 || found.name.is_null() || symbol.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker returned a name from its table, which is NUL-terminated.
    let is_it = unsafe { CStr::from_ptr(found.name) } == name;
    is_it.then_some(symbol)
}
