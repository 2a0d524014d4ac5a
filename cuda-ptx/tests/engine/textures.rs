//! Textures and surfaces: faults, and forms that do not run. `tests/ptx` has the results.

use crate::device::{Memory, kernel, launch};
use cuda_ptx::check::SiteId;
use cuda_ptx::texture::{
    AddressMode, Coordinates, Format, Level, Number, Read, Sampler, Texels, Texture,
};
use cuda_ptx::{Access, Device, FaultKind, Launch, Program, Region, run, syntax};
use std::sync::Arc;

/// A device with a surface of two rows of 16 bytes, whose handle is 1. A texel has so many words.
struct Surface(Memory, u64, u32);

impl Device for Surface {
    fn region(
        &self,
        address: u64,
        len: u64,
        access: Access,
        by: SiteId,
    ) -> Result<Region<'_>, String> {
        self.0.region(address, len, access, by)
    }

    fn print(&self, text: &str) {
        self.0.print(text);
    }

    fn allocate(&self, size: u64) -> Option<u64> {
        self.0.allocate(size)
    }

    fn free(&self, address: u64) -> Result<(), String> {
        self.0.free(address)
    }

    fn set_conditional(&self, handle: u64, value: u32) -> Result<(), String> {
        self.0.set_conditional(handle, value)
    }

    fn surface(&self, handle: u64) -> Result<Arc<Texels>, String> {
        let Self(_, address, channels) = *self;
        let format = Format { number: Number::Unsigned, bits: 32, channels, is_srgb: false };
        let level = Level { address, extent: [4 / channels, 2, 0], pitch: 16, slice: 32 };
        let texels =
            Texels { format, levels: vec![level], layers: 0, is_cubemap: false, is_memory: true };
        (handle == 1).then(|| Arc::new(texels)).ok_or(format!("{handle} is not a surface"))
    }
}

/// Runs code with the handle 1 in `%d1` on a surface that counts up from 0. Returns the kind and the text of the
/// fault, or the texels.
fn on_surface(code: &str) -> Result<Vec<u32>, (FaultKind, String)> {
    on_surface_of(1, code)
}

/// The same, on texels of so many words.
fn on_surface_of(channels: u32, code: &str) -> Result<Vec<u32>, (FaultKind, String)> {
    let text = kernel(0, &format!("mov.u64 %d1, 1; {code}"));
    let module = syntax::parse(&text).unwrap();
    let program = Program::link(&[module]).unwrap();
    let mut memory = Memory::default();
    let address = memory.words(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let surface = Surface(memory, address, channels);
    let done = run(&Launch::new(&program, 0), &surface);
    done.map(|()| surface.0.read(address)).map_err(|fault| (fault.kind, fault.text))
}

#[test]
fn a_store_outside_of_a_surface_does_what_its_boundary_says() {
    let store = |boundary: &str| {
        on_surface(&format!("mov.u32 %r1, 9; sust.b.2d.b32.{boundary} [%d1, {{16, 1}}], {{%r1}};"))
    };
    assert_eq!(store("zero"), Ok(vec![0, 1, 2, 3, 4, 5, 6, 7]));
    assert_eq!(store("clamp"), Ok(vec![0, 1, 2, 3, 4, 5, 6, 9]));
    let (kind, text) = store("trap").unwrap_err();
    assert_eq!(kind, FaultKind::IllegalAddress);
    let expected =
        "4 bytes at (16, 1, 0) are outside of a surface of 16 bytes, 2 rows and 1 slices";
    assert_eq!(text, expected);
}

#[test]
fn a_surface_is_accessed_at_multiples_of_the_size() {
    let (kind, text) = on_surface("suld.b.2d.b32.zero {%r1}, [%d1, {2, 0}];").unwrap_err();
    assert_eq!(kind, FaultKind::MisalignedAddress);
    assert!(text.contains("4 bytes at the byte 2"), "{text}");
}

#[test]
fn a_reduction_of_a_surface_updates_a_texel() {
    let code = "mov.u32 %r1, 10; sured.b.add.2d.u32.trap [%d1, {4, 1}], %r1;";
    assert_eq!(on_surface(code), Ok(vec![0, 1, 2, 3, 4, 15, 6, 7]));
}

#[test]
fn the_coordinate_of_a_formatted_reduction_counts_words() {
    // A sum of 64 bits would carry into the next word.
    for (at, expected) in [(0, [0, 1, 2, 3, 3, 5, 6, 7]), (1, [0, 1, 2, 3, 4, 4, 6, 7])] {
        let code = format!("mov.u32 %r1, -1; sured.p.add.2d.b32.zero [%d1, {{{at}, 1}}], %r1;");
        for channels in [1, 2, 4] {
            assert_eq!(on_surface_of(channels, &code), Ok(expected.to_vec()), "{at}, {channels}");
        }
    }
}

#[test]
fn a_handle_of_no_object_is_an_illegal_address() {
    let (kind, text) = on_surface("suld.b.1d.b32.zero {%r1}, [%d2, {0}];").unwrap_err();
    assert_eq!((kind, text.as_str()), (FaultKind::IllegalAddress, "0 is not a surface"));
    let text = kernel(0, "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%d1, {%r1}];");
    let fault = launch(&text, &Memory::default(), (1, 1), &[]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert_eq!(fault.text, "there are no textures");
}

/// Links a module with a texture reference, a sampler and a kernel.
fn link(code: &str) -> Result<Program, String> {
    let text = kernel(0, code).replace(".visible", ".global .texref t;\n.visible");
    let module = syntax::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    Program::link(&[module]).map_err(|error| error.to_string())
}

#[test]
fn references_samplers_and_depths_are_refused_by_name() {
    for code in [
        "tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [t, {%f1}];",
        "tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, %d2, {%f1}];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f1, %f2}], %f3;",
        "tex.2dms.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%d1, {%r1, %r2, %r3, %r3}];",
        "istypep.texref %p1, t;",
    ] {
        let program = link(code).unwrap();
        let refused: Vec<_> = program.kernels()[0].unsupported().map(|(name, _)| name).collect();
        let [name] = refused[..] else { panic!("{code}: {refused:?}") };
        assert!(code.starts_with(name), "{name}");
    }
}

#[test]
fn accesses_without_coordinates_or_channels_are_errors() {
    for (code, words) in [
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f1}];", "coordinate is missing"),
        ("tex.2d.v4.f32.f32 {%f1, %f2}, [%d1, {%f1, %f2}];", "four channels"),
        ("tex.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f1}];", "geometry is missing"),
        ("suld.b.1d.v4.b64.zero {%d3, %d4, %d5, %d6}, [%d1, {%r1}];", "at most 128 bits"),
        ("txq.b32 %r1, [%d1];", "property is missing"),
    ] {
        let error = link(code).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

const POINT: Sampler = Sampler {
    address_modes: [AddressMode::Clamp; 3],
    is_linear: false,
    is_mipmap_linear: false,
    is_normalized: false,
    border: [1.0; 4],
    level_bias: 0.0,
    levels: [0.0; 2],
};

#[test]
fn a_texture_without_levels_reads_zero() {
    let format = Format { number: Number::Unsigned, bits: 32, channels: 1, is_srgb: false };
    let texels =
        Texels { format, levels: Vec::new(), layers: 0, is_cubemap: false, is_memory: false };
    let texture = Texture { texels, sampler: POINT };
    let mut fetch = |_, _| Err("there are no texels");
    for at in [Coordinates::Number([0.5; 3]), Coordinates::Index([0; 3])] {
        let read = Read::new(2, at);
        assert_eq!(texture.read(&read, &mut fetch), Ok([0; 4]), "{at:?}");
        assert_eq!(texture.gather(&read, 0, &mut fetch), Ok([0; 4]), "{at:?}");
    }
}

/// Reads the middle between two texels of memory with a linear filter.
fn between(number: Number, bits: u32, texels: [u32; 2]) -> f32 {
    let format = Format { number, bits, channels: 1, is_srgb: false };
    let level = Level { address: 0, extent: [2, 0, 0], pitch: 8, slice: 8 };
    let texels_of =
        Texels { format, levels: vec![level], layers: 0, is_cubemap: false, is_memory: true };
    let sampler = Sampler { is_linear: true, ..POINT };
    let mut fetch = |address: u64, bytes: u32| {
        Ok::<_, String>(u128::from(texels[(address / u64::from(bytes)) as usize]))
    };
    let texture = Texture { texels: texels_of, sampler };
    let read = texture.read(&Read::new(1, Coordinates::Number([1.0, 0.0, 0.0])), &mut fetch);
    f32::from_bits(read.unwrap()[0])
}

#[test]
fn a_linear_filter_clamps_fractions_and_adds_numbers_of_any_magnitude() {
    assert_eq!(between(Number::SignedFraction, 8, [0x80, 0x80]), -1.0);
    assert_eq!(between(Number::SignedFraction, 8, [0x80, 0x7f]), 0.0);
    let both = [f32::MAX, f32::MIN_POSITIVE].map(f32::to_bits);
    assert_eq!(between(Number::Float, 32, both), f32::MAX / 2.0);
}
