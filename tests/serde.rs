//! Array descriptions as JSON: a written value reads back the same, and an invalid one is refused
//! with its key, as in all other conversions.

use cuda_safe::interop::dlpack::{DataType, MemoryKind, TypeCode};
use cuda_safe::interop::{
    ArrayInterface, ByteOrder, DescrEntry, DescrType, Dtype, ExportedStream, Field, Index, Kind,
    Layout, RawInterface, Record, StreamSync, TypeString,
};
use cuda_safe::manager::IpcHandle;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

#[track_caller]
fn goes<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, written: &str) {
    let text = serde_json::to_string(value).expect("it is written");
    assert_eq!(text, written);
    assert_eq!(&read::<T>(&text).expect("it is read"), value);
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[track_caller]
fn refused<T: DeserializeOwned + Debug>(text: &str, words: &[&str]) {
    let error = read::<T>(text).expect_err(text);
    assert!(words.iter().all(|words| error.contains(words)), "{error}");
}

fn ty(text: &str) -> TypeString {
    text.parse().expect("a type")
}

#[test]
fn types_serialize_as_type_strings() {
    goes(&ty(">M8[25ms]"), r#"">M8[25ms]""#);
    goes(&Dtype::from(ty("<f4")), r#""<f4""#);
    refused::<TypeString>(r#""<f3""#, &["typestr", "<f3"]);
    refused::<Dtype>(r#""|O8""#, &["typestr", "objects"]);
    goes(&Kind::Float, r#""Float""#);
    goes(&ByteOrder::Little, r#""Little""#);
}

#[test]
fn records_serialize_as_their_entries() {
    let field = |name: &str, offset, dtype, shape: &[usize]| Field {
        name: name.to_owned(),
        title: None,
        offset,
        dtype,
        shape: shape.to_vec(),
    };
    let inner = Record::new(vec![field("x", 0, ty("<i2").into(), &[])], 2).expect("a record");
    let fields = vec![field("a", 0, ty("<f8").into(), &[]), field("b", 16, inner.into(), &[3])];
    let record = Record::new(fields, 24).expect("a record");
    let written = concat!(
        r#"[{"name":"a","ty":"<f8"},{"name":"","ty":"|V8"},"#,
        r#"{"name":"b","ty":[{"name":"x","ty":"<i2"}],"shape":[3]},{"name":"","ty":"|V2"}]"#
    );
    goes(&record, written);
    goes(&Dtype::from(record), written);
    // A record with only padding is still a record.
    let empty = Record::new(Vec::new(), 8).expect("a record");
    goes(&Dtype::from(empty), r#"[{"name":"","ty":"|V8"}]"#);
    refused::<Record>(r#"[{"name":"a","ty":"<i3"}]"#, &["descr", "<i3"]);
    let twice = r#"[{"name":"a","ty":"<i4"},{"name":"a","ty":"<i4"}]"#;
    refused::<Dtype>(twice, &["descr", "two fields"]);
    goes(
        &DescrEntry {
            name: "a".to_owned(),
            title: Some("b".to_owned()),
            ty: DescrType::Text("<i4".to_owned()),
            shape: vec![],
        },
        r#"{"name":"a","title":"b","ty":"<i4"}"#,
    );
}

#[test]
fn layouts_are_checked_when_they_are_read() {
    let layout = Layout::strided(&[2, 3], &[-24, 8], 4).expect("a layout");
    goes(&layout, r#"{"shape":[2,3],"strides":[-24,8],"item_size":4}"#);
    let other = r#"{"shape":[2,3],"strides":[8],"item_size":4}"#;
    refused::<Layout>(other, &["strides", "1 strides for 2 dimensions"]);
    let far = r#"{"shape":[9],"strides":[9223372036854775807],"item_size":4}"#;
    refused::<Layout>(far, &["strides", "address space"]);
    let range = layout.byte_range();
    goes(&range, r#"{"start":-24,"end":20}"#);
    goes(&Index::At(-1), r#"{"At":-1}"#);
}

#[test]
fn interfaces_serialize_as_the_dict() {
    let layout = Layout::strided(&[2, 3], &[4, 8], 4).expect("a layout");
    let array = ArrayInterface::new(ty("<f4"), layout, 0x7f00_0000_0000).expect("an array");
    let mask = Layout::c_contiguous(&[3], 1).expect("a layout");
    let mask = ArrayInterface::new(ty("|b1"), mask, 0x1000).expect("an array");
    let stream = ExportedStream::Handle(u64::MAX);
    let array = array.read_only().with_stream(Some(stream)).with_mask(Some(mask));
    let written = concat!(
        r#"{"version":3,"shape":[2,3],"typestr":"<f4","descr":null,"#,
        r#""data":[139637976727552,true],"strides":[4,8],"mask":{"version":3,"shape":[3],"#,
        r#""typestr":"|b1","descr":null,"data":[4096,false],"strides":null,"mask":null,"#,
        r#""stream":null},"stream":18446744073709551615}"#
    );
    goes(&array, written);
    goes(&array.to_raw(), written);
    // Keys that are optional in the dict may be missing here too.
    let least = r#"{"version":3,"shape":[],"typestr":"<f4","data":[4096,false]}"#;
    let array: ArrayInterface = read(least).expect("it is valid");
    assert_eq!(array.layout().len(), Some(1));
    for (text, key) in [
        (r#"{"shape":[],"typestr":"<f4","data":[4096,false]}"#, "version"),
        (r#"{"version":3,"shape":[1],"typestr":"<f4","data":[0,false]}"#, "data"),
        (r#"{"version":3,"shape":[1],"typestr":"<f4","data":[4,false],"stream":0}"#, "stream"),
    ] {
        refused::<ArrayInterface>(text, &[key]);
        read::<RawInterface>(text).expect("the address is not checked");
    }
    goes(&ExportedStream::Legacy, "1");
    refused::<ExportedStream>("0", &["stream", "None"]);
}

#[test]
fn values_without_invariants_serialize_unchanged() {
    goes(&StreamSync::WaitEvent, r#""WaitEvent""#);
    goes(&MemoryKind::Managed, r#""Managed""#);
    goes(&DataType::scalar(TypeCode::BFLOAT, 16), r#"{"code":4,"bits":16,"lanes":1}"#);
}

#[test]
fn memory_handles_serialize_as_their_bytes() {
    let mut bytes = [0; IpcHandle::BYTES];
    for (byte, number) in bytes.iter_mut().zip(0..) {
        *byte = number;
    }
    let written: Vec<String> = bytes.iter().map(u8::to_string).collect();
    goes(&IpcHandle::from_bytes(&bytes), &format!("[{}]", written.join(",")));
    refused::<IpcHandle>("[1,2,3]", &["104 bytes"]);
}
