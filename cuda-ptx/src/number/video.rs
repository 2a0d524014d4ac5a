//! The video instructions: scalar (`vadd`) and packed (`vadd2`, `vadd4`).
