//! Type strings.

use super::names_a_key;
use cuda_safe::interop::dlpack::DataType;
use cuda_safe::interop::{ByteOrder, Kind, TypeString};

/// A type string that is accepted can be written and read again with the same result; any other is
/// rejected.
pub(crate) fn type_string(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<TypeString>() {
        Ok(ty) => {
            assert_eq!(ty.to_string().parse(), Ok(ty), "{text:?}");
            made_by_hand(ty);
        }
        Err(refusal) => names_a_key(&refusal),
    }
}

/// Constructs the type from its kind and size. Properties that only the string contains are ignored.
fn made_by_hand(ty: TypeString) {
    let native = TypeString::native(ty.kind(), ty.item_size());
    if ty.bits().is_some_and(|bits| bits % 8 != 0) {
        return assert_ne!(native, Ok(ty));
    }
    let native = native.expect("every such type can be constructed");
    assert_eq!(native.item_size(), ty.item_size());
    assert!(native.is_native());
    assert_eq!(native == ty, ty.is_native() && ty.unit().is_none());
    if let Some(unit) = ty.unit() {
        assert!(unit.count() > 0 && ty.to_string().contains(unit.name()));
    }
    if ty.byte_order() == ByteOrder::None {
        assert_eq!(native, ty);
    }
    let of_rust = [
        DataType::of::<u8>(),
        DataType::of::<i64>(),
        DataType::of::<f32>(),
        DataType::of::<[f64; 2]>(),
    ];
    for data in of_rust.into_iter().filter(|data| data.numpy() == Some(ty)) {
        assert_eq!(DataType::from_numpy(&ty.into()), Ok(data));
    }
    let halves = TypeString::native(Kind::Unicode, ty.item_size());
    assert_eq!(halves.is_ok(), ty.item_size() % 4 == 0);
}
