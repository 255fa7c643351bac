//! The `ringd` binary.

fn main() {}
