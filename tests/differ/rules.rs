//! Known differences between the software driver and a real one.

use super::compare::Rule;

pub(crate) const RULES: &[Rule] = &[];
