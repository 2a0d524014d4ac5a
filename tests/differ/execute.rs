//! Executes the calls of a program, and describes their results.

use super::structures::Structure;
use super::table::{Kind, MEMORY, Row};
use cuda_sys::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY3D, CUarray, CUarray_format, CUcontext, CUevent,
    CUfunc_cache, CUgraph, CUgraphExec, CUgreenCtx, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlibrary, CUmemPool_attribute, CUmemoryPool, CUmemorytype, CUmipmappedArray, CUmodule,
    CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus, cuArray3DGetDescriptor_v2,
    cuArrayDestroy, cuCtxDestroy_v2, cuCtxGetCurrent, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2,
    cuCtxSetCacheConfig, cuCtxSetCurrent, cuCtxSynchronize, cuDeviceGetDefaultMemPool,
    cuDeviceGraphMemTrim, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxSetFlags_v2,
    cuDeviceSetMemPool, cuEventDestroy_v2, cuGraphDestroy, cuGraphExecDestroy, cuGreenCtxDestroy,
    cuInit, cuLibraryUnload, cuMemAddressFree, cuMemFree_v2, cuMemFreeHost, cuMemPoolDestroy,
    cuMemPoolSetAttribute, cuMemPoolTrimTo, cuMemRelease, cuMemUnmap, cuMemcpy3D_v2,
    cuMemcpyDtoH_v2, cuMemsetD8Async, cuMipmappedArrayDestroy, cuModuleUnload, cuStreamDestroy_v2,
    cuStreamEndCapture, cuStreamIsCapturing, cuStreamSetAttribute, cuSurfObjectDestroy,
    cuTexObjectDestroy, cuThreadExchangeStreamCaptureMode,
};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The calls of host functions in this process.
static HOST_CALLS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn host_function(_: *mut c_void) {
    HOST_CALLS.fetch_add(1, Ordering::Relaxed);
}

/// The address of the host function.
pub(super) fn host() -> u64 {
    let function: unsafe extern "C" fn(*mut c_void) = host_function;
    function as usize as u64
}

/// The number of bytes of the largest structure that the driver writes: a `CUdevResource`.
const STRUCTURE: usize = 160;

#[derive(Debug)]
struct Object {
    name: String,
    class: &'static str,
    /// The handle or address. For a structure, the address of `bytes`.
    value: u64,
    size: u64,
    is_alive: bool,
    /// Whether the whole memory has known contents.
    is_filled: bool,
    /// Whether the memory has undefined contents, and is therefore not used.
    is_undefined: bool,
    /// Whether the object ends with another one: the body of a conditional node, a level of an array.
    is_part: bool,
    /// The context with which it ends: the one that was current when it was created.
    context: Option<usize>,
    /// The green context of a context, with which it ends.
    green: Option<String>,
    /// Of a structure, or of pageable memory.
    bytes: Option<Box<[u64]>>,
}

/// Everything that a program creates.
pub(crate) struct World<'a> {
    rows: &'a [Row],
    objects: Vec<Object>,
    names: HashMap<String, usize>,
    primary: u64,
    /// The calls of host functions before this program.
    host_calls: u64,
    /// Whether a call destroyed an object by the name of another one, whose value it has. Whether a driver gives a new
    /// object the value of an earlier one is not defined.
    has_reused: bool,
}

/// The types of memory in copies.
pub(super) const HOST: u64 = 1;
const DEVICE: u64 = 2;
pub(super) const ARRAY: u64 = 3;
const UNIFIED: u64 = 4;

impl<'a> World<'a> {
    /// Starts a program: the primary context is retained once for the process, and current.
    pub(crate) fn new(rows: &'a [Row]) -> Self {
        let host_calls = HOST_CALLS.load(Ordering::Relaxed);
        let pool = reset_settings();
        let mut its = Self {
            rows,
            objects: Vec::new(),
            names: HashMap::new(),
            primary: primary(),
            host_calls,
            has_reused: false,
        };
        its.add("context0", "context", its.primary, 0);
        its.add("pool0", "pool", pool as u64, 0);
        for (name, size) in [("pageable0", 4096), ("pageable1", 65536)] {
            let bytes = vec![0x1111_1111_1111_1111u64; size / 8].into_boxed_slice();
            its.add(name, "pageable", bytes.as_ptr() as u64, size as u64);
            let object = its.objects.last_mut().expect("it was added");
            object.bytes = Some(bytes);
            object.is_filled = true;
        }
        its
    }

    fn add(&mut self, name: &str, class: &'static str, value: u64, size: u64) {
        let object = Object {
            name: name.to_owned(),
            class,
            value,
            size,
            is_alive: true,
            is_filled: false,
            is_undefined: false,
            is_part: false,
            context: self.current(),
            green: None,
            bytes: None,
        };
        self.names.insert(name.to_owned(), self.objects.len());
        self.objects.push(object);
    }

    /// Returns the context that is current, if the program has it.
    fn current(&self) -> Option<usize> {
        let mut current = std::ptr::null_mut();
        // SAFETY: the pointer refers to a local variable.
        let _ = unsafe { cuCtxGetCurrent(&raw mut current) };
        let is_current = |its: &Object| its.class == "context" && its.value == current as u64;
        self.objects.iter().rposition(is_current)
    }

    fn object(&self, name: &str) -> Option<&Object> {
        self.names.get(name).map(|index| &self.objects[*index])
    }

    /// Returns the number for a token: a number, an object, or an address in memory.
    pub(super) fn number(&self, token: &str) -> Option<u64> {
        if let Ok(number) = token.parse::<i64>() {
            return Some(number as u64);
        }
        if let Ok(number) = token.parse::<u64>() {
            return Some(number);
        }
        let (name, offset) = token.split_once('+').unwrap_or((token, "0"));
        let offset: u64 = offset.parse().expect("an offset");
        // The driver has freed the pinned memory of a destroyed context, and may write where it was.
        let is_freed = |object: &&Object| object.class == "pinned" && self.has_ended(object);
        let object =
            self.object(name).filter(|object| !object.is_undefined && !is_freed(object))?;
        Some(object.value.wrapping_add(offset))
    }

    /// Returns the type of memory that a token names.
    pub(super) fn memory_type(&self, token: &str) -> u64 {
        let name = token.split('+').next().unwrap_or_default();
        match self.object(name).map(|object| object.class) {
            Some("pageable" | "pinned") => HOST,
            Some("managed") => UNIFIED,
            Some("array") => ARRAY,
            _ => DEVICE,
        }
    }

    /// Executes a line without its thread, and returns the result.
    pub(crate) fn execute(&mut self, line: &str) -> String {
        let tokens = tokens(line);
        match tokens[0] {
            "check" => self.check(),
            "fill" => self.fill(&tokens[1..]),
            _ => self.call(&tokens),
        }
    }

    fn call(&mut self, tokens: &[&str]) -> String {
        let with_name = |row: &&Row| row.function.symbol() == tokens[0];
        // Rows with the same name differ in the words for numbers only, or in their results.
        let rows: Vec<&Row> = self.rows.iter().filter(with_name).collect();
        let row = rows.iter().find(|row| fits(row, &tokens[1..])).expect("a row of the table");
        let Some(mut call) = self.prepared(row, &tokens[1..]) else {
            return "skipped".to_owned();
        };
        let Ok(address) = row.function.address() else {
            return "absent".to_owned();
        };
        let code = call.run(address.as_ptr());
        let queries = ["cuStreamQuery", "cuEventQuery", "cuEventElapsedTime_v2"];
        let is_query = queries.contains(&tokens[0]);
        if is_query && matches!(code, 0 | 600) {
            // Whether work is complete depends on time.
            return "0 or 600".to_owned();
        }
        let mut result = code.to_string();
        if code == 0 {
            self.note(row, &tokens[1..], call, &mut result);
        }
        result
    }

    /// Returns the arguments of a call, or `None` if an object does not exist.
    fn prepared(&self, row: &Row, tokens: &[&str]) -> Option<Prepared> {
        let mut call = Prepared::default();
        let mut tokens = tokens.iter();
        for kind in &row.kinds {
            let word = match kind {
                Kind::New(class) => {
                    tokens.next();
                    let bytes = if *class == "resource" { STRUCTURE } else { 8 };
                    call.storage(bytes)
                }
                Kind::Found(_) | Kind::Result(_) | Kind::Unknown => call.storage(STRUCTURE),
                Kind::Object(_) | Kind::Destroyed(_) | Kind::Structure(_) => {
                    let token = tokens.next()?;
                    if self.object(token).is_some_and(|object| self.has_ended(object)) {
                        return None;
                    }
                    self.number(token)?
                }
                Kind::Host => host(),
                Kind::Written(what) => {
                    let token = tokens.next()?;
                    let fields: Vec<&str> =
                        token.trim_matches(['[', ']']).split_whitespace().collect();
                    let structure = Structure::new(self, what, &fields)?;
                    let word = structure.word();
                    call.structures.push(structure);
                    word
                }
                _ => self.number(tokens.next()?)?,
            };
            call.words.push(word);
        }
        Some(call)
    }

    /// Returns whether the object's context has been destroyed, and the object with it.
    fn has_ended(&self, object: &Object) -> bool {
        object.class != "context"
            && object.context.is_some_and(|context| !self.objects[context].is_alive)
    }

    /// Adds the results of a successful call, and notes the objects that it created and destroyed.
    fn note(&mut self, row: &Row, tokens: &[&str], call: Prepared, result: &mut String) {
        let mut length = 0;
        for (kind, word) in row.kinds.iter().zip(&call.words) {
            if matches!(kind, Kind::Size) {
                length = *word;
            }
        }
        if row.function.symbol() == "cuMemAddressReserve" {
            length = call.words[1];
        }
        let mut tokens = tokens.iter();
        let mut outputs = call.outputs.into_iter();
        let mut structures = call.structures.iter();
        for kind in &row.kinds {
            match kind {
                Kind::New(class) => {
                    let (name, bytes) = (tokens.next().expect("a name"), outputs.next());
                    let bytes = bytes.expect("storage");
                    let value = match *class {
                        "resource" => bytes.as_ptr() as u64,
                        _ => bytes[0],
                    };
                    self.add(name, class, value, length);
                    let object = self.objects.last_mut().expect("it was added");
                    if row.function.symbol() == "cuCtxFromGreenCtx" {
                        object.green = tokens.clone().next().map(|green| (*green).to_owned());
                    }
                    object.is_part = row.function.symbol() == "cuMipmappedArrayGetLevel";
                    if *class == "pinned" {
                        let memory = std::ptr::with_exposed_provenance_mut::<u8>(value as usize);
                        // SAFETY: the memory is new, has this size, and is accessible to the host.
                        unsafe { memory.write_bytes(0x22, length as usize) };
                        object.is_filled = true;
                    }
                    if *class == "resource" {
                        // The type, the number of SMs, that of the smallest partition, and the alignment.
                        let (sms, least) = (bytes[12] as u32, bytes[12] >> 32);
                        let (kind, alignment) = (bytes[0] as u32, bytes[13] as u32);
                        result.push_str(&format!(" {kind} {sms} {least} {alignment}"));
                        object.bytes = Some(bytes);
                    }
                }
                Kind::Found(class) => {
                    let value = outputs.next().expect("storage")[0];
                    let is_class = |its: &&Object| its.class == *class && its.value == value;
                    let found = self.objects.iter().rfind(is_class);
                    let name = match value {
                        0 => "0",
                        _ => found.map_or("unknown", |its| &its.name),
                    };
                    result.push_str(&format!(" {name}"));
                }
                Kind::Result(what) => {
                    let words = outputs.next().expect("storage");
                    let value = words[0];
                    result.push_str(&match *what {
                        "u32" => format!(" {}", value as u32),
                        "i32" => format!(" {}", value as i32),
                        "address" => format!(" {}", self.name_of(value)),
                        what if what.starts_with("halves") => {
                            let count = what["halves".len()..].parse().expect("a count");
                            let halves =
                                words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
                            halves.take(count).map(|half| format!(" {half:x}")).collect()
                        }
                        _ => format!(" {value}"),
                    });
                }
                Kind::Unknown => drop(outputs.next()),
                Kind::Written(_) => {
                    tokens.next();
                    let structure = structures.next().expect("a structure");
                    result.push_str(&structure.result());
                    if let Some((name, graph)) = structure.body() {
                        self.add(name, "graph", graph, 0);
                        self.objects.last_mut().expect("it was added").is_part = true;
                    }
                }
                Kind::Destroyed(_) => {
                    let name = tokens.next().copied().unwrap_or_default();
                    let ended =
                        |its: &&mut Object| its.name == name || its.green.as_deref() == Some(name);
                    let was_alive = self.object(name).is_none_or(|its| its.is_alive);
                    self.objects.iter_mut().filter(ended).for_each(|its| its.is_alive = false);
                    if !was_alive {
                        self.end_reused(name);
                    }
                }
                Kind::Host => {}
                _ => drop(tokens.next()),
            }
        }
    }

    /// Notes that a call destroyed an object by the name of one that was destroyed before, if a new object has its value.
    fn end_reused(&mut self, name: &str) {
        let Some(&Object { class, value, .. }) = self.object(name) else { return };
        let is_it = |its: &&mut Object| its.is_alive && its.class == class && its.value == value;
        for object in self.objects.iter_mut().filter(is_it) {
            object.is_alive = false;
            self.has_reused = true;
        }
    }

    /// Returns whether a call destroyed an object by the name of another one since the last question.
    pub(crate) fn take_reused(&mut self) -> bool {
        std::mem::take(&mut self.has_reused)
    }

    /// Names the memory at an address.
    fn name_of(&self, value: u64) -> String {
        if value == 0 {
            return "0".to_owned();
        }
        let alive = self.objects.iter().rev().filter(|object| object.is_alive);
        let all = alive.chain(self.objects.iter().rev().filter(|object| !object.is_alive));
        for object in all.filter(|object| MEMORY.contains(&object.class)) {
            match value.wrapping_sub(object.value) {
                0 => return object.name.clone(),
                offset if offset < object.size => return format!("{}+{offset}", object.name),
                _ => {}
            }
        }
        "unknown".to_owned()
    }

    /// Writes known contents to new memory. If this fails, the memory is not used.
    fn fill(&mut self, tokens: &[&str]) -> String {
        let [name, value, home] = tokens else {
            unreachable!("{tokens:?}");
        };
        let Some(index) = self.names.get(*name).copied() else {
            return "skipped".to_owned();
        };
        let code = self.try_fill(index, value.parse().expect("a byte"), home);
        self.objects[index].is_undefined = code != Some(CUresult::CUDA_SUCCESS);
        code.map_or_else(|| "skipped".to_owned(), |code| code.0.to_string())
    }

    /// Returns the result of the call, or `None` if the stream has ended. Recorded in a capture, the contents
    /// stay unknown.
    fn try_fill(&mut self, index: usize, value: u8, home: &str) -> Option<CUresult> {
        if self.object(home).is_some_and(|stream| self.has_ended(stream) || !stream.is_alive) {
            return None;
        }
        let stream = self.number(home)? as CUstream;
        let object = &self.objects[index];
        let (address, size) = (object.value, object.size as usize);
        if object.class == "array" {
            let code = copy_array(address as CUarray, &mut |bytes| bytes.fill(value), true);
            self.objects[index].is_filled = code.is_success();
            return Some(code);
        }
        let mut capturing = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive, and the pointer refers to a local variable.
        let code = unsafe { cuStreamIsCapturing(stream, &raw mut capturing) };
        if !code.is_success() {
            return Some(code);
        }
        // SAFETY: the memory is alive and has this size.
        let code = unsafe { cuMemsetD8Async(address, value, size, stream) };
        let is_none = capturing == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        self.objects[index].is_filled = code.is_success() && is_none;
        Some(code)
    }

    /// Waits for all work of all contexts, and returns hashes of the memory.
    fn check(&mut self) -> String {
        for object in self.objects.iter().filter(|its| its.class == "context" && its.is_alive) {
            if object.value != self.primary {
                // SAFETY: the context is alive.
                let pushed = unsafe { cuCtxPushCurrent_v2(object.value as CUcontext) };
                if !pushed.is_success() {
                    continue;
                }
                // SAFETY: this call has no arguments.
                let _ = unsafe { cuCtxSynchronize() };
                let mut popped = std::ptr::null_mut();
                // SAFETY: the pointer refers to a local variable.
                let _ = unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
            }
        }
        let primary = self.primary as CUcontext;
        // SAFETY: the primary context is alive.
        let pushed = unsafe { cuCtxPushCurrent_v2(primary) };
        // SAFETY: this call has no arguments.
        let code = unsafe { cuCtxSynchronize() };
        let mut result = format!("{} {}", pushed.0, code.0);
        if code.is_success() {
            for index in 0..self.objects.len() {
                if let Some(hash) = self.hash(index) {
                    result.push_str(&format!(" {}={hash}", self.objects[index].name));
                }
            }
            let calls = HOST_CALLS.load(Ordering::Relaxed) - self.host_calls;
            result.push_str(&format!(" calls={calls}"));
        }
        let mut popped = std::ptr::null_mut();
        // SAFETY: the pointer refers to a local variable.
        let _ = unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
        result
    }

    fn hash(&self, index: usize) -> Option<String> {
        let object = &self.objects[index];
        let is_shown = object.is_alive && object.is_filled && !self.has_ended(object);
        if !is_shown || object.class != "array" && !MEMORY.contains(&object.class) {
            return None;
        }
        let mut hash = 0;
        if object.class == "array" {
            let code = copy_array(object.value as CUarray, &mut |bytes| hash = fnv(bytes), false);
            return Some(match code.is_success() {
                true => format!("{hash:08x}"),
                false => format!("error {}", code.0),
            });
        }
        let mut bytes = vec![0u8; object.size as usize];
        let target = bytes.as_mut_ptr().cast::<c_void>();
        let code = match object.class {
            "pageable" | "pinned" => {
                let from = std::ptr::with_exposed_provenance::<u8>(object.value as usize);
                // SAFETY: the memory is alive and has this size, and no work uses it.
                unsafe { std::ptr::copy_nonoverlapping(from, target.cast(), bytes.len()) };
                CUresult::CUDA_SUCCESS
            }
            // SAFETY: the memory is alive and has this size, as the target.
            _ => unsafe { cuMemcpyDtoH_v2(target, object.value, bytes.len()) },
        };
        match code.is_success() {
            true => Some(format!("{:08x}", fnv(&bytes))),
            false => Some(format!("error {}", code.0)),
        }
    }

    /// Destroys what is alive. Returns whether the process can run another program.
    pub(crate) fn end(mut self) -> bool {
        let primary = self.primary as CUcontext;
        empty_stack();
        // SAFETY: the primary context is alive.
        let current = unsafe { cuCtxSetCurrent(primary) };
        for object in self.objects.iter().filter(|its| its.class == "stream" && its.is_alive) {
            if !self.has_ended(object) {
                end_capture(object.value as CUstream);
            }
        }
        let legacy = std::ptr::null_mut();
        end_capture(legacy);
        // SAFETY: this call has no arguments.
        let waited = unsafe { cuCtxSynchronize() };
        if !current.is_success() || !waited.is_success() {
            return false;
        }
        let mut is_clean = true;
        for class in ORDER {
            for index in (0..self.objects.len()).rev() {
                let object = &self.objects[index];
                let is_ours = object.name != "context0" && object.name != "pool0";
                let is_ours = is_ours && !object.is_part;
                if object.class == *class && object.is_alive && is_ours && !self.has_ended(object) {
                    is_clean &= destroy(object).is_success();
                    self.objects[index].is_alive = false;
                }
            }
        }
        // SAFETY: the device exists.
        let trimmed = unsafe { cuDeviceGraphMemTrim(0) };
        let pool = self.object("pool0").map_or(0, |pool| pool.value);
        // SAFETY: this call has no arguments.
        let waited = unsafe { cuCtxSynchronize() };
        // SAFETY: the default pool always exists.
        let _ = unsafe { cuMemPoolTrimTo(pool as CUmemoryPool, 0) };
        is_clean && trimmed.is_success() && waited.is_success()
    }
}

/// The classes in the order of destruction.
#[rustfmt::skip]
const ORDER: &[&str] = &[
    "texture", "surface", "array", "mipmapped", "exec", "graph", "event", "device", "managed", "pinned", "range", "physical", "pool", "library",
    "module", "stream", "green", "context",
];

fn destroy(object: &Object) -> CUresult {
    let value = object.value;
    match object.class {
        // SAFETY: the objects of this class are alive, in this and the following arms.
        "exec" => unsafe { cuGraphExecDestroy(value as CUgraphExec) },
        // SAFETY: as above.
        "texture" => unsafe { cuTexObjectDestroy(value) },
        // SAFETY: as above.
        "surface" => unsafe { cuSurfObjectDestroy(value) },
        // SAFETY: as above.
        "array" => unsafe { cuArrayDestroy(value as CUarray) },
        // SAFETY: as above.
        "mipmapped" => unsafe { cuMipmappedArrayDestroy(value as CUmipmappedArray) },
        // SAFETY: as above.
        "graph" => unsafe { cuGraphDestroy(value as CUgraph) },
        // SAFETY: as above.
        "event" => unsafe { cuEventDestroy_v2(value as CUevent) },
        // SAFETY: as above.
        "device" | "managed" => unsafe { cuMemFree_v2(value) },
        // SAFETY: as above.
        "pinned" => unsafe { cuMemFreeHost(value as *mut c_void) },
        "range" => {
            let size = object.size as usize;
            for part in (0..object.size).step_by(2 << 20) {
                // SAFETY: the range is reserved, and no work uses it.
                let _ = unsafe { cuMemUnmap(value + part, 2 << 20) };
            }
            // SAFETY: the whole range.
            let _ = unsafe { cuMemUnmap(value, size) };
            // SAFETY: the range has this size.
            unsafe { cuMemAddressFree(value, size) }
        }
        // SAFETY: as above.
        "physical" => unsafe { cuMemRelease(value) },
        // SAFETY: as above.
        "pool" => unsafe { cuMemPoolDestroy(value as CUmemoryPool) },
        // SAFETY: as above.
        "library" => unsafe { cuLibraryUnload(value as CUlibrary) },
        // SAFETY: as above.
        "module" => unsafe { cuModuleUnload(value as CUmodule) },
        // SAFETY: as above.
        "stream" => unsafe { cuStreamDestroy_v2(value as CUstream) },
        // SAFETY: as above.
        "green" => unsafe { cuGreenCtxDestroy(value as CUgreenCtx) },
        // SAFETY: as above; contexts of green contexts are refused.
        "context" => unsafe { cuCtxDestroy_v2(value as CUcontext) },
        _ => CUresult::CUDA_SUCCESS,
    }
}

/// Copies the bytes of a whole array from or to host memory, which `access` writes before or reads after
/// the copy.
fn copy_array(array: CUarray, access: &mut dyn FnMut(&mut [u8]), is_write: bool) -> CUresult {
    let mut shape = CUDA_ARRAY3D_DESCRIPTOR::default();
    // SAFETY: the array is alive, and the pointer refers to a local variable.
    let code = unsafe { cuArray3DGetDescriptor_v2(&raw mut shape, array) };
    if !code.is_success() {
        return code;
    }
    let width = shape.Width * shape.NumChannels as usize * format_size(shape.Format);
    let (height, depth) = (shape.Height.max(1), shape.Depth.max(1));
    let mut bytes = vec![0; width * height * depth];
    let mut copy = CUDA_MEMCPY3D {
        srcArray: array,
        dstArray: array,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
        ..CUDA_MEMCPY3D::default()
    };
    if is_write {
        access(&mut bytes);
        copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
        copy.srcHost = bytes.as_ptr().cast();
        (copy.srcPitch, copy.srcHeight) = (width, height);
    } else {
        copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
        copy.dstHost = bytes.as_mut_ptr().cast();
        (copy.dstPitch, copy.dstHeight) = (width, height);
    }
    // SAFETY: the array and the bytes have these extents.
    let code = unsafe { cuMemcpy3D_v2(&raw const copy) };
    if !is_write {
        access(&mut bytes);
    }
    code
}

fn format_size(format: CUarray_format) -> usize {
    match format {
        CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8 => 1,
        CUarray_format::CU_AD_FORMAT_HALF => 2,
        _ => 4,
    }
}

fn end_capture(stream: CUstream) {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    let code = unsafe { cuStreamIsCapturing(stream, &raw mut status) };
    if code.is_success() && status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        return;
    }
    let mut graph = std::ptr::null_mut();
    // SAFETY: as above.
    let _ = unsafe { cuStreamEndCapture(stream, &raw mut graph) };
    if !graph.is_null() {
        // SAFETY: the graph is new.
        let _ = unsafe { cuGraphDestroy(graph) };
    }
}

/// Sets what programs change of the device and the primary context to its initial value. Returns the
/// default pool of the device.
fn reset_settings() -> CUmemoryPool {
    let mut pool = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuDeviceGetDefaultMemPool(&raw mut pool, 0) };
    assert!(code.is_success(), "no pool: {code:?}");
    // SAFETY: the device and its pool exist.
    let _ = unsafe { cuDeviceSetMemPool(0, pool) };
    for attribute in 1..4 {
        let mut value = 1u64;
        // SAFETY: these attributes are numbers of at most 64 bits.
        let _ = unsafe {
            cuMemPoolSetAttribute(pool, CUmemPool_attribute(attribute), (&raw mut value).cast())
        };
    }
    // SAFETY: the setting is a value of the enumeration.
    let _ = unsafe { cuCtxSetCacheConfig(CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE) };
    // SAFETY: the device exists.
    let _ = unsafe { cuDevicePrimaryCtxSetFlags_v2(0, 0) };
    let mut attribute = CUlaunchAttributeValue::default();
    attribute.priority = 0;
    let priority = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    // SAFETY: this is the default stream, and the value of the attribute.
    let _ = unsafe { cuStreamSetAttribute(std::ptr::null_mut(), priority, &raw const attribute) };
    pool
}

/// Pops all contexts of this thread.
pub(crate) fn empty_stack() {
    for _ in 0..200 {
        let mut popped = std::ptr::null_mut();
        // SAFETY: the pointer refers to a local variable.
        let code = unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
        if !code.is_success() {
            return;
        }
    }
}

/// Makes the primary context the only one of this thread's stack.
pub(crate) fn enter() {
    empty_stack();
    // SAFETY: the primary context is alive until the process ends.
    let _ = unsafe { cuCtxSetCurrent(primary() as CUcontext) };
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the pointer refers to a local variable.
    let _ = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
}

/// Returns the primary context, which is retained once.
fn primary() -> u64 {
    static PRIMARY: Mutex<Option<u64>> = Mutex::new(None);
    let mut primary = PRIMARY.lock().expect("no panic");
    *primary.get_or_insert_with(|| {
        let mut context = std::ptr::null_mut();
        // SAFETY: this may be called at any time.
        let started = unsafe { cuInit(0) };
        assert!(started.is_success(), "no driver: {started:?}");
        // SAFETY: the pointer refers to a local variable.
        let code = unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) };
        assert!(code.is_success(), "no context: {code:?}");
        context as u64
    })
}

/// The arguments of one call. The structures and results have fixed addresses.
#[derive(Default)]
struct Prepared {
    words: Vec<u64>,
    outputs: Vec<Box<[u64]>>,
    structures: Vec<Structure>,
}

impl Prepared {
    /// Returns the address of memory for a result.
    fn storage(&mut self, bytes: usize) -> u64 {
        self.outputs.push(vec![0; bytes / 8].into_boxed_slice());
        let last = self.outputs.last_mut().expect("it was added");
        last.as_mut_ptr().expose_provenance() as u64
    }

    fn run(&mut self, function: *mut c_void) -> i32 {
        type Any =
            unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;
        let word = |index: usize| self.words.get(index).copied().unwrap_or(0);
        // SAFETY: functions of the driver have at most 12 arguments, all of them integers and pointers,
        // which the calling conventions of 64-bit targets pass in the same places as `u64`s; a function
        // ignores the arguments that it does not have.
        let function: Any = unsafe { std::mem::transmute(function) };
        // SAFETY: a program may be wrong, which the driver answers with a code or a crash: it is run in a
        // process of its own.
        unsafe {
            function(
                word(0),
                word(1),
                word(2),
                word(3),
                word(4),
                word(5),
                word(6),
                word(7),
                word(8),
                word(9),
                word(10),
                word(11),
            )
        }
    }
}

/// Splits a line at spaces outside of brackets.
fn tokens(line: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = match rest.starts_with('[') {
            true => rest.find(']').map_or(rest.len(), |end| end + 1),
            false => rest.find(' ').unwrap_or(rest.len()),
        };
        tokens.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    tokens
}

/// Returns whether the tokens of a line can be those of a row.
fn fits(row: &Row, tokens: &[&str]) -> bool {
    let with_token = |kind: &&Kind| {
        !matches!(kind, Kind::Found(_) | Kind::Result(_) | Kind::Unknown | Kind::Host)
    };
    let kinds: Vec<&Kind> = row.kinds.iter().filter(with_token).collect();
    kinds.len() == tokens.len()
        && kinds.iter().zip(tokens).all(|(kind, token)| match kind {
            Kind::New(class) => token.trim_end_matches(char::is_numeric) == *class,
            Kind::Number { right, wrong } => {
                let number = token.parse::<i64>();
                number.is_ok_and(|number| right.contains(&number) || wrong.contains(&number))
            }
            Kind::Written(_) => token.starts_with('['),
            Kind::Address(_) | Kind::Object(_) | Kind::Destroyed(_) => !token.starts_with('['),
            _ => true,
        })
}

fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
