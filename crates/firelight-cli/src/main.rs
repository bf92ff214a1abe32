//! The firelight command.
fn main() {}
