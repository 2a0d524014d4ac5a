//! The places of texels in memory.

use super::{Level, Texels};

/// What an access outside of a surface does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// It ends the kernel.
    Trap,
    /// It accesses the nearest texel.
    Clamp,
    /// A load gives zero, and a store does nothing.
    Zero,
}

impl Texels {
    /// Returns the address of the texel with these indices, which are inside.
    pub(super) fn address(&self, level: &Level, [x, y, z]: [u32; 3]) -> u64 {
        let x = u64::from(x) * u64::from(self.format.bytes());
        Self::offset(level, x, u64::from(y), u64::from(z))
    }

    /// Returns the address of a byte of a row.
    fn offset(level: &Level, x: u64, y: u64, z: u64) -> u64 {
        let rows = level.slice.wrapping_mul(z).wrapping_add(level.pitch.wrapping_mul(y));
        level.address.wrapping_add(rows).wrapping_add(x)
    }

    /// Returns the address of `size` bytes of a surface. The first coordinate counts bytes, and the last one layers and
    /// faces. `None` stands for a place outside, which is zero.
    ///
    /// # Errors
    /// The place is outside, and the boundary is a trap. The text names the bytes and the surface.
    pub fn place(
        &self,
        [x, y, z]: [i32; 3],
        size: u32,
        boundary: Boundary,
    ) -> Result<Option<u64>, String> {
        let Some(level) = self.levels.first() else {
            return Err("a surface without texels".to_owned());
        };
        let row = self.row(level);
        let limits = [
            i64::try_from(row).unwrap_or(i64::MAX) - i64::from(size),
            i64::from(level.extent[1].max(1)) - 1,
            i64::from(self.slices(level)) - 1,
        ];
        // The sign of a layer does not count.
        let z = if self.layers > 0 { z & i32::MAX } else { z };
        let at = [x, y, z].map(i64::from);
        let is_inside = at.iter().zip(limits).all(|(at, limit)| (0..=limit).contains(at));
        let at = match boundary {
            _ if is_inside => at,
            Boundary::Zero => return Ok(None),
            Boundary::Clamp => std::array::from_fn(|axis| at[axis].min(limits[axis]).max(0)),
            Boundary::Trap => {
                return Err(format!(
                    "{size} bytes at ({x}, {y}, {z}) are outside of a surface of {row} bytes, {} rows and {} slices",
                    limits[1] + 1,
                    limits[2] + 1,
                ));
            }
        };
        let [x, y, z] = at.map(|at| at as u64);
        Ok(Some(Self::offset(level, x, y, z)))
    }
}
