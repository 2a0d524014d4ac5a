//! Array interfaces: which ones are accepted, which are refused, and that NumPy agrees.

mod corpus;
mod numpy;

use cuda_safe::Invalid;
use cuda_safe::interop::{
    ArrayInterface, ByteOrder, DescrEntry, DescrType, Dtype, ExportedStream, Index, Kind, Layout,
    RawInterface, ReadOptions, Record, TypeString,
};

fn parse(text: &str) -> TypeString {
    text.parse().expect(text)
}

#[test]
fn type_strings_are_read_and_written_as_numpy_writes_them() {
    let table = [
        ("|b1", "|b1", Kind::Bool, 1),
        ("<i1", "|i1", Kind::Int, 1),
        ("|u1", "|u1", Kind::Uint, 1),
        ("<i8", "<i8", Kind::Int, 8),
        (">u2", ">u2", Kind::Uint, 2),
        ("<f2", "<f2", Kind::Float, 2),
        ("<f16", "<f16", Kind::Float, 16),
        ("<c16", "<c16", Kind::Complex, 16),
        ("<M8[ns]", "<M8[ns]", Kind::Datetime, 8),
        (">m8[25s]", ">m8[25s]", Kind::Timedelta, 8),
        ("<M8[1D]", "<M8[D]", Kind::Datetime, 8),
        ("<M8[generic]", "<M8", Kind::Datetime, 8),
        ("|S5", "|S5", Kind::Bytes, 5),
        ("<U3", "<U3", Kind::Unicode, 12),
        ("|V7", "|V7", Kind::Void, 7),
        ("|t12", "|t12", Kind::BitField, 2),
    ];
    for (text, written, kind, size) in table {
        let ty = parse(text);
        assert_eq!(ty.to_string(), written);
        assert_eq!((ty.kind(), ty.item_size()), (kind, size), "{text}");
    }
    assert_eq!(parse("=f8").byte_order(), ByteOrder::NATIVE);
    assert_eq!(parse("|f8").byte_order(), ByteOrder::NATIVE);
    assert!(parse("<f4").is_native() != parse(">f4").is_native());
    let unit = parse("<m8[25us]").unit().expect("a unit");
    assert_eq!((unit.name(), unit.count()), ("us", 25));
    assert_eq!(parse("|t12").bits(), Some(12));
    assert_eq!(TypeString::native(Kind::Unicode, 8).expect("2").to_string().len(), 3);
}

#[test]
fn invalid_type_strings_are_refused_with_the_key() {
    let wrong = [
        "",
        "<",
        "f8",
        "<f",
        "<f3",
        "<i16",
        "<b2",
        "<x8",
        "<O8",
        "|O",
        "<f8[ns]",
        "<M8[",
        "<M8[ns",
        "<M8[q]",
        "<M8[0s]",
        "<M8[2generic]",
        "<M8[s/4]",
        "<M4[s]",
        "<f-8",
        "<f+8",
        "<f 8",
        "<f8 ",
        "\u{fc}f8",
        "<\u{fc}8",
        "<U99999999999999999999",
        "<S9223372036854775807",
    ];
    for text in wrong {
        match text.parse::<TypeString>() {
            Err(Invalid::ArrayInterface { key, problem }) => {
                assert_eq!(key, "typestr");
                assert!(problem.contains(text), "{problem}");
            }
            done => panic!("{text}: {done:?}"),
        }
    }
}

fn raw() -> RawInterface {
    RawInterface {
        version: Some(3),
        shape: Some(vec![2, 3]),
        typestr: Some("<f4".to_owned()),
        data: Some((0x1000, false)),
        ..RawInterface::default()
    }
}

fn read(raw: &RawInterface) -> Result<ArrayInterface, Invalid> {
    raw.check(ReadOptions::default())
}

#[track_caller]
fn refused(raw: &RawInterface, expected: &str) {
    match read(raw) {
        Err(Invalid::ArrayInterface { key, problem }) => assert_eq!(key, expected, "{problem}"),
        done => panic!("{done:?}"),
    }
}

#[test]
fn an_interface_reads_and_writes_the_same() {
    let array = read(&raw()).expect("it is valid");
    assert_eq!(array.layout().shape(), [2, 3]);
    assert_eq!(array.layout().strides(), [12, 4]);
    assert_eq!((array.address(), array.is_read_only()), (0x1000, false));
    assert_eq!((array.version(), array.stream()), (3, None));
    assert_eq!(array.to_raw(), raw(), "C-contiguous: without strides");

    let transposed = RawInterface {
        strides: Some(vec![4, 8]),
        data: Some((0x1000, true)),
        stream: Some(2),
        ..raw()
    };
    let array = read(&transposed).expect("it is valid");
    assert!(array.layout().is_f_contiguous() && array.is_read_only());
    assert_eq!(array.stream(), Some(ExportedStream::PerThread));
    assert_eq!(array.to_raw(), transposed);

    // A scalar, and an array without elements, whose address is 0.
    let scalar = RawInterface { shape: Some(vec![]), ..raw() };
    assert_eq!(read(&scalar).expect("it is valid").layout().len(), Some(1));
    let none = RawInterface { shape: Some(vec![3, 0]), data: Some((0x1234, false)), ..raw() };
    let none = read(&none).expect("it is valid");
    assert_eq!(none.to_raw().data, Some((0, false)));
    assert_eq!(none.layout().len(), Some(0));
}

#[test]
fn each_invalid_key_is_refused_by_name() {
    let without = |change: fn(&mut RawInterface)| {
        let mut raw = raw();
        change(&mut raw);
        raw
    };
    refused(&without(|raw| raw.version = None), "version");
    refused(&without(|raw| raw.version = Some(1 << 40)), "version");
    refused(&without(|raw| raw.version = Some(-1)), "version");
    refused(&without(|raw| raw.shape = None), "shape");
    refused(&without(|raw| raw.shape = Some(vec![-1])), "shape");
    refused(&without(|raw| raw.shape = Some(vec![1 << 62, 1 << 62])), "shape");
    refused(&without(|raw| raw.typestr = None), "typestr");
    refused(&without(|raw| raw.typestr = Some("|O8".to_owned())), "typestr");
    refused(&without(|raw| raw.data = None), "data");
    refused(&without(|raw| raw.data = Some((0, false))), "data");
    refused(&without(|raw| raw.data = Some((-1, false))), "data");
    refused(&without(|raw| raw.data = Some((u64::MAX.into(), false))), "data");
    refused(&without(|raw| raw.strides = Some(vec![4])), "strides");
    refused(&without(|raw| raw.strides = Some(vec![1 << 62, 1 << 62])), "strides");
    refused(&without(|raw| raw.strides = Some(vec![1 << 80, 4])), "strides");
    refused(&without(|raw| raw.stream = Some(0)), "stream");
    refused(&without(|raw| raw.stream = Some(-5)), "stream");
    let text = read(&without(|raw| raw.stream = Some(0))).expect_err("0").to_string();
    for word in ["None", "legacy", "Numba", "sync=False", "ignore_stream"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // A reversed array that would start below address 0.
    let below = without(|raw| {
        raw.strides = Some(vec![-0x2000, 4]);
    });
    refused(&below, "data");
}

#[test]
fn streams_and_masks_count_from_their_versions_on() {
    let old = |version| RawInterface { version: Some(version), stream: Some(0), ..raw() };
    for version in 0..3 {
        assert_eq!(read(&old(version)).expect("no stream yet").stream(), None);
    }
    let ignored = RawInterface { stream: Some(77), ..raw() };
    let options = ReadOptions { ignore_stream: true, ..ReadOptions::default() };
    assert_eq!(ignored.check(options).expect("ignored").stream(), None);
    let handle = read(&ignored).expect("a handle").stream();
    assert_eq!(handle, Some(ExportedStream::Handle(77)));

    let mask = RawInterface { shape: Some(vec![3]), typestr: Some("|b1".to_owned()), ..raw() };
    let masked = RawInterface { mask: Some(Box::new(mask)), ..raw() };
    refused(&masked, "mask");
    let first = RawInterface { version: Some(0), ..masked.clone() };
    assert_eq!(read(&first).expect("no mask yet").mask(), None);
    let options = ReadOptions { masks: true, ..ReadOptions::default() };
    let array = masked.check(options).expect("it is honored");
    assert_eq!(array.mask().expect("a mask").layout().shape(), [3]);
    assert_eq!(array.to_raw(), masked);
    let other = RawInterface { shape: Some(vec![2, 4]), ..masked };
    match other.check(options) {
        Err(Invalid::ArrayInterface { key, .. }) => assert_eq!(key, "mask"),
        done => panic!("{done:?}"),
    }
}

#[test]
fn stream_0_is_accepted_only_if_the_stream_is_ignored() {
    let zero = RawInterface { stream: Some(0), ..raw() };
    refused(&zero, "stream");
    let options = ReadOptions { ignore_stream: true, ..ReadOptions::default() };
    let array = zero.check(options).expect("ignored");
    assert_eq!((array.stream(), array.to_raw().stream), (None, None));
    // Other numbers that are not handles are still errors.
    let wrong = RawInterface { stream: Some(-1), ..raw() };
    match wrong.check(options) {
        Err(Invalid::ArrayInterface { key, .. }) => assert_eq!(key, "stream"),
        done => panic!("{done:?}"),
    }
}

#[test]
fn a_newer_version_is_read_as_version_3() {
    for version in [4, 99] {
        let newer = RawInterface {
            version: Some(version),
            stream: Some(77),
            mask: Some(Box::new(raw())),
            ..raw()
        };
        refused(&newer, "mask");
        let array = read(&RawInterface { mask: None, ..newer.clone() });
        let array = array.expect("read as version 3");
        assert_eq!(i128::from(array.version()), version);
        assert_eq!(array.stream(), Some(ExportedStream::Handle(77)));
        // It is exported in the known version.
        assert_eq!(array.to_raw().version, Some(3));
        refused(&RawInterface { stream: Some(0), mask: None, ..newer }, "stream");
    }
}

fn entry(name: &str, ty: &str, shape: &[usize]) -> DescrEntry {
    DescrEntry {
        name: name.to_owned(),
        title: None,
        ty: DescrType::Text(ty.to_owned()),
        shape: shape.to_vec(),
    }
}

#[test]
fn records_contain_fields_padding_arrays_and_records() {
    let descr = vec![
        entry("id", "<i4", &[]),
        entry("", "|V4", &[]),
        DescrEntry { title: Some("where it is".to_owned()), ..entry("at", "<f8", &[2, 3]) },
        DescrEntry {
            name: "inner".to_owned(),
            title: None,
            ty: DescrType::Nested(vec![entry("a", "|u1", &[]), entry("b", ">i2", &[])]),
            shape: vec![2],
        },
        entry("", "|V2", &[]),
    ];
    let raw =
        RawInterface { typestr: Some("|V64".to_owned()), descr: Some(descr.clone()), ..raw() };
    let array = read(&raw).expect("it is valid");
    let Dtype::Record(record) = array.dtype() else { panic!("{:?}", array.dtype()) };
    let offsets: Vec<usize> = record.fields().iter().map(|field| field.offset).collect();
    assert_eq!((offsets, record.size()), (vec![0, 8, 56], 64));
    assert_eq!(array.to_raw(), raw);
    assert_eq!(record.to_descr(), descr);

    let wrong = [
        vec![entry("a", "<i4", &[]), entry("a", "<i4", &[])],
        vec![entry("a", "<i3", &[])],
        vec![entry("a", "<i4", &[usize::MAX])],
        vec![entry("a", "<i4", &[])],
    ];
    for descr in wrong {
        refused(&RawInterface { descr: Some(descr), ..raw.clone() }, "descr");
    }
    let mut deep = DescrType::Text("|u1".to_owned());
    for _ in 0..1000 {
        deep = DescrType::Nested(vec![DescrEntry { ty: deep, ..entry("x", "", &[]) }]);
    }
    let ty = deep;
    let deep = DescrEntry { ty, ..entry("x", "", &[]) };
    let deep = RawInterface { typestr: Some("|V1".to_owned()), descr: Some(vec![deep]), ..raw };
    refused(&deep, "descr");
}

#[test]
fn a_record_follows_from_its_descr_alone() {
    let descr = [
        entry("id", "<u2", &[]),
        // Padding has no name. A field without a name gets one.
        entry("", "|V6", &[]),
        entry("", "<f8", &[2]),
    ];
    let record = Record::from_descr(&descr).expect("it is valid");
    let fields: Vec<_> = record.fields().iter().collect();
    let told: Vec<_> = fields.iter().map(|its| (its.name.as_str(), its.offset)).collect();
    assert_eq!(told, [("id", 0), ("f2", 8)]);
    assert_eq!(record.size(), 24);
    let again = Record::from_descr(&record.to_descr()).expect("its own");
    assert_eq!(again, record);
    assert_eq!(Record::from_descr(&[]).expect("no fields").size(), 0);

    let mut deep = entry("x", "|u1", &[]);
    for _ in 0..1000 {
        deep.ty = DescrType::Nested(vec![deep.clone()]);
    }
    for wrong in [deep, entry("x", "i", &[]), entry("x", "<f8", &[usize::MAX])] {
        match Record::from_descr(&[wrong]) {
            Err(Invalid::ArrayInterface { key, .. }) => assert_eq!(key, "descr"),
            done => panic!("{done:?}"),
        }
    }
}

#[test]
fn a_descr_of_a_plain_type_changes_nothing() {
    for ty in ["<f8", "|V8"] {
        let raw = RawInterface {
            typestr: Some(ty.to_owned()),
            descr: Some(vec![entry("", ty, &[])]),
            ..raw()
        };
        let array = read(&raw).expect("it is valid");
        assert_eq!(*array.dtype(), Dtype::Plain(parse(ty)));
    }
    // Found by fuzzing: this was read as a record and written as bytes.
    let raw = RawInterface {
        typestr: Some("|V8".to_owned()),
        descr: Some(vec![entry("", "|V3", &[]), entry("", "|V5", &[])]),
        ..raw()
    };
    let array = read(&raw).expect("it is valid");
    assert_eq!(*array.dtype(), Dtype::Plain(parse("|V8")));
}

#[test]
fn a_reversed_range_begins_at_the_last_element() {
    let layout = Layout::c_contiguous(&[5], 4).expect("a layout");
    let range = |start, end, step| Index::Range { start, end, step };
    let cases = [
        (range(None, None, -1), (16, 5)),
        (range(None, None, -2), (16, 3)),
        (range(Some(9), None, -4), (16, 2)),
        (range(Some(-2), Some(0), -1), (12, 3)),
        (range(None, Some(-9), -3), (16, 2)),
        (range(Some(1), Some(3), -1), (0, 0)),
    ];
    for (by, expected) in cases {
        let (offset, part) = layout.index(&[by]).expect("a part");
        assert_eq!((offset, part.shape()[0]), expected, "{by:?}");
    }
}

#[test]
fn layouts_report_their_properties() {
    let layout =
        |shape: &[usize], strides: &[isize]| Layout::strided(shape, strides, 8).expect("a layout");
    let broadcast = layout(&[3, 4], &[0, 8]);
    assert!(broadcast.is_broadcast() && !broadcast.is_c_contiguous());
    assert!(broadcast.may_overlap_itself());
    assert!(layout(&[2], &[0]).is_broadcast() && !layout(&[1], &[0]).is_broadcast());
    let reversed = layout(&[4], &[-8]);
    assert!(reversed.is_reversed() && !reversed.may_overlap_itself());
    let range = reversed.byte_range();
    assert_eq!((range.start, range.end), (-24, 8));
    assert!(layout(&[2, 2], &[8, 4]).may_overlap_itself());
    assert!(!layout(&[2, 3], &[8, 16]).may_overlap_itself());
    let (one, other) = (layout(&[4], &[8]), layout(&[4], &[8]));
    assert!(one.ranges_overlap(0x1000, &other, 0x1018));
    assert!(!one.ranges_overlap(0x1000, &other, 0x1020));
    assert!(one.ranges_overlap(0x1018, &reversed, 0x1018));
    assert!(!layout(&[0], &[8]).ranges_overlap(0x1000, &one, 0x1000));
    // With broadcasting, an array has more elements than memory, and the counts must still be
    // right.
    let huge = layout(&[usize::MAX / 2, 4], &[0, 8]);
    assert_eq!((huge.len(), huge.byte_range().end), (None, 32));
    // Found by fuzzing: this was accepted with strides, and refused after it was written without
    // them.
    Layout::strided(&[0, 1 << 40, 1 << 40], &[1, 1, 1], 1).expect_err("as NumPy");
}
