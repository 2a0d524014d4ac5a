//! Descriptions of arrays: layouts, types and indices, which need no driver.

use super::{Done, Operations, Skip, Step, wrong};
use cuda_safe::interop::dlpack::{ConsumerStream, DataType, TypeCode};
use cuda_safe::interop::{
    ArrayInterface, DescrEntry, DescrType, Dtype, ExportedStream, Field, Index, Kind, Layout,
    ReadOptions, Record, TypeString,
};
use cuda_safe::memory::{Extent, Region};
use cuda_safe::{Invalid, LaunchConfig};

impl From<Invalid> for Skip {
    fn from(_: Invalid) -> Self {
        Self
    }
}

/// Draws a layout of four-byte elements.
fn layout(s: &mut Step<'_>) -> Result<Layout, Invalid> {
    let shape = [s.below(4), 1 + s.below(3)];
    let stride = 4 * s.below(5) as isize;
    match s.below(3) {
        0 => Layout::c_contiguous(&shape, 4),
        1 => Layout::strided(&shape, &[stride, 4], 4),
        _ => Layout::strided(&shape, &[-stride, 4], 4),
    }
}

pub(super) const DESCRIPTIONS: Operations = &[
    ("layout", |s| {
        let layout = layout(s)?;
        let (start, end) = (layout.byte_range().start, layout.byte_range().end);
        let elements = layout.len().unwrap_or_default() as isize;
        if layout.is_c_contiguous() && end - start != 4 * elements {
            wrong(format!("wrong byte range: {layout:?}"));
        }
        let _ = (layout.is_f_contiguous(), layout.is_broadcast());
        let _ = (layout.is_reversed(), layout.may_overlap_itself());
        let _ = (layout.strides(), layout.item_size(), layout.is_empty());
        Ok(s.put(layout))
    }),
    ("overlap of layouts", |s| {
        let (first, second) = (s.get::<Layout>()?, s.get::<Layout>()?);
        let address = 0x1000 + 4 * s.below(64) as u64;
        let overlap = first.ranges_overlap(0x1000, &second, address);
        if overlap != second.ranges_overlap(address, &first, 0x1000) {
            wrong(format!("overlap is not symmetric: {first:?}, {second:?}"));
        }
        Ok(())
    }),
    ("index a layout", |s| {
        let layout = s.get::<Layout>()?;
        let index = s.choose(&[Index::ALL, Index::At(0), Index::step_by(2), Index::reversed(-1)]);
        let (_, part) = layout.index(&[index])?;
        Ok(s.put(part))
    }),
    ("other views of a layout", |s| {
        let layout = s.get::<Layout>()?;
        let transposed = layout.clone().transposed();
        s.put(transposed.permuted(&[1, 0])?);
        let mut shape = vec![2];
        shape.extend(layout.shape());
        s.put(layout.broadcast_to(&shape)?);
        Ok(s.put(layout.reshaped(&[layout.len().unwrap_or_default()])?))
    }),
    ("types", |s| {
        let kind = s.choose(&[Kind::Bool, Kind::Int, Kind::Float, Kind::BitField]);
        let ty = TypeString::native(kind, s.choose(&[1, 2, 4, 8]))?;
        let same: TypeString = ty.to_string().parse()?;
        if same != ty || !same.is_native() {
            wrong(format!("a type string is not read as written: {ty}"));
        }
        let _ = (ty.byte_order(), ty.kind(), ty.item_size(), ty.bits());
        if let Some(unit) = "<M8[10us]".parse::<TypeString>()?.unit() {
            let _ = (unit.name(), unit.count());
        }
        let tensor = DataType::from_numpy(&ty.into())?;
        let _ = (tensor.item_size(), tensor.numpy());
        let _ = DataType::scalar(TypeCode::FLOAT, 32).item_size();
        Ok(())
    }),
    ("records", |s| {
        let number = Dtype::from(TypeString::native(Kind::Uint, 4)?);
        let field = Field {
            name: "a".to_owned(),
            title: None,
            offset: 4 * s.below(2),
            dtype: number,
            shape: vec![1 + s.below(2)],
        };
        let record = Record::new(vec![field], 16)?;
        let same = Record::from_descr(&record.to_descr())?;
        if (same.fields().len(), same.size()) < (record.fields().len(), record.size()) {
            wrong(format!("a record is not read as written: {record:?}"));
        }
        let entry = DescrEntry {
            name: "b".to_owned(),
            title: None,
            ty: DescrType::Text("<f4".to_owned()),
            shape: Vec::new(),
        };
        let dtype = Dtype::from(Record::from_descr(&[entry])?);
        let read = Dtype::read(&dtype.typestr(), dtype.descr().as_deref())?;
        Ok(assert_eq!(read.item_size(), dtype.item_size()))
    }),
    ("array interface", |s| {
        let dtype = Dtype::from(TypeString::native(Kind::Uint, 4)?);
        let mask = TypeString::native(Kind::Bool, 1)?;
        let layout = layout(s)?;
        let mask_layout = Layout::c_contiguous(layout.shape(), 1)?;
        let mask = ArrayInterface::new(mask, mask_layout, 0x2000)?;
        let array = ArrayInterface::new(dtype, layout, 0x1000)?.with_mask(Some(mask));
        let stream = ExportedStream::from_number(1 + s.below(3) as i128)?;
        let array = array.with_stream(Some(stream)).read_only();
        let with_masks = ReadOptions { masks: true, ..Default::default() };
        let same = array.to_raw().check(with_masks)?;
        // Strides of dimensions with one element or none are not written.
        let is_same = (same.dtype(), same.layout().shape(), same.is_read_only())
            == (array.dtype(), array.layout().shape(), array.is_read_only());
        if !is_same || same.stream().map(|its| its.number()) != Some(stream.number()) {
            wrong(format!("an array is not read as written: {array:?}"));
        }
        let _ = (same.version(), same.mask().is_some());
        Ok(())
    }),
    ("streams of consumers", |s| {
        let number = s.choose(&[None, Some(-1), Some(1), Some(2), Some(0x1000)]);
        let stream = ConsumerStream::from_number(number)?;
        Ok(drop(stream.number()))
    }),
    ("extents", extents),
];

fn extents(s: &mut Step<'_>) -> Done {
    let extent = Extent::new_3d(1 + s.below(4), 1 + s.below(4), 1 + s.below(4));
    let _ = Region::new(extent);
    let config = LaunchConfig::for_elements(1 + s.number(), 32)?;
    let _ = config.with_shared_bytes(64);
    Ok(())
}
