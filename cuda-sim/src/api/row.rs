//! Turns the rows of the table of functions into C functions.

use crate::state::INVALID;
use crate::state::{Answer, fail_if};

/// An output parameter: null, or a place where one value can be written. It is not a reference, because
/// C code may pass the same place twice.
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `place` is null, or a value may be written there while the result and its copies are used.
    pub(crate) unsafe fn new(place: *mut T) -> Self {
        Self(place)
    }

    /// Returns a place that is null.
    pub(super) const fn none() -> Self {
        Self(core::ptr::null_mut())
    }

    /// Fails if the place is null.
    pub(crate) fn required(self) -> Answer {
        fail_if(self.0.is_null(), INVALID)
    }

    /// Writes the value, unless the place is null.
    pub(crate) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: `new` requires that a value may be written there.
            unsafe { self.0.write(value) };
        }
    }

    /// Writes the value, unless the place is null, and succeeds.
    pub(crate) fn put(self, value: T) -> Answer {
        self.set(value);
        Ok(())
    }
}

macro_rules! c_type {
    (val $ty:ty) => { $ty };
    (in $ty:ty) => { *const $ty };
    ($out:ident $ty:ty) => { *mut $ty };
}

macro_rules! receive {
    (val $param:ident) => {};
    (in $param:ident) => {
        // SAFETY: the caller guarantees that the pointer is null or refers to one readable value during the
        // call.
        let $param = unsafe { $param.as_ref() };
    };
    (inout $param:ident) => {
        // SAFETY: the caller guarantees that the pointer is null or refers to one readable and writable
        // value during the call.
        let mut $param = unsafe { $param.as_mut() };
    };
    ($out:ident $param:ident) => {
        // SAFETY: the caller guarantees that the pointer is null or a place for one value during the
        // call.
        let $param = unsafe { Out::new($param) };
    };
}

/// Fails if a parameter that must not be null is null.
macro_rules! require {
    (must $param:ident) => {
        $param.required()?;
    };
    (result $param:ident) => {
        $param.required()?;
    };
    (in $param:ident) => {
        let $param = $param.ok_or(crate::state::INVALID)?;
    };
    ($mode:ident $param:ident) => {};
}

/// Calls the body of a row. It does not receive the parameter with the mode `result`: the value that the
/// body returns is written there.
macro_rules! invoke {
    ($body:expr, [$($argument:expr),*]) => { $body($($argument),*) };
    ($body:expr, [$($argument:expr),*] result $param:ident $($rest:tt)*) => {
        $param.put(invoke!($body, [$($argument),*] $($rest)*)?)
    };
    ($body:expr, [$($argument:expr),*] inout $param:ident $($rest:tt)*) => {
        invoke!($body, [$($argument,)* &mut $param] $($rest)*)
    };
    ($body:expr, [$($argument:expr),*] $mode:ident $param:ident $($rest:tt)*) => {
        invoke!($body, [$($argument,)* $param] $($rest)*)
    };
}

/// Adds a parameter to the list of recorded arguments. Output parameters are left out; a pointer with a
/// length in brackets is dereferenced.
macro_rules! note {
    ($list:ident out $param:ident) => {};
    ($list:ident must $param:ident) => {};
    ($list:ident result $param:ident) => {};
    ($list:ident in $param:ident) => { note!($list val $param [1]) };
    ($list:ident inout $param:ident) => { note!($list val $param [1]) };
    ($list:ident val $param:ident) => { $list.value(stringify!($param), $param) };
    ($list:ident val $param:ident [bytes $count:expr]) => {
        // SAFETY: the caller guarantees that the pointer is null or refers to a value of that size.
        unsafe { $list.pointed(stringify!($param), $param.cast::<u8>(), $count) }
    };
    ($list:ident val $param:ident [$count:expr]) => {
        // SAFETY: the caller guarantees that the pointer is null or refers to that number of values
        // during the call.
        unsafe { $list.pointed(stringify!($param), $param, $count as usize) }
    };
}

/// Turns a row into functions of the symbols' types: the function of the first name, and that of the second
/// name, for which stream 0 is the per-thread default stream.
macro_rules! function {
    ($class:ident $name:ident [$($per_thread:ident)?] ($($param:ident: $mode:ident $ty:ty $([$($count:tt)+])?),*) => $body:expr) => {
        #[allow(non_snake_case, reason = "NVIDIA's name")]
        unsafe extern "C" fn $name($($param: c_type!($mode $ty)),*) -> CUresult {
            let arguments = arguments(|_list| {
                $(note!(_list $mode $param $([$($count)+])?);)*
            });
            $(receive!($mode $param);)*
            call(Class::$class, stringify!($name), arguments, &mut |world| {
                $(require!($mode $param);)*
                invoke!($body, [world] $($mode $param)*)
            })
        }
        function!(@per_thread [$($per_thread)?] $class ($($param: $mode $ty $([$($count)+])?),*) => $body);
    };
    (@per_thread [] $($row:tt)*) => {};
    (@per_thread [$name:ident] $class:ident ($($param:ident: $mode:ident $ty:ty $([$($count:tt)+])?),*) => $body:expr) => {
        #[allow(non_snake_case, reason = "NVIDIA's name")]
        unsafe extern "C" fn $name($($param: c_type!($mode $ty)),*) -> CUresult {
            let arguments = arguments(|_list| {
                $(note!(_list $mode $param $([$($count)+])?);)*
            });
            $(receive!($mode $param);)*
            thread::with_per_thread_default(|| {
                call(Class::$class, stringify!($name), arguments, &mut |world| {
                    $(require!($mode $param);)*
                    invoke!($body, [world] $($mode $param)*)
                })
            })
        }
    };
}

/// Turns rows into functions, and defines a function that finds one by name. A row has the name of a function,
/// and after a bar the name of its variant for the per-thread default stream, if it has one.
macro_rules! functions {
    ($find:ident $home:ident $($class:ident $name:ident $(| $per_thread:ident)? ($($params:tt)*) => $body:expr;)*) => {
        $(function!($class $name [$($per_thread)?] ($($params)*) => $body);)*

        fn $find(symbol: &str) -> *const c_void {
            // The names as bytes: the compiler compares a string with one pattern after another, but searches
            // slices of bytes by their length and their first different byte.
            #[allow(non_upper_case_globals, reason = "NVIDIA's names")]
            mod names {
                $(
                    pub(super) const $name: &[u8] = stringify!($name).as_bytes();
                    $(pub(super) const $per_thread: &[u8] = stringify!($per_thread).as_bytes();)?
                )*
            }
            match symbol.as_bytes() {
                $(names::$name => {
                    // With the type of the symbol, so that a wrong signature does not compile.
                    let function: $home::$name = $name;
                    function as *const c_void
                }
                $(names::$per_thread => {
                    let function: cuda_sys::ptds::$per_thread = $per_thread;
                    function as *const c_void
                })?)*
                _ => core::ptr::null(),
            }
        }
    };
}
