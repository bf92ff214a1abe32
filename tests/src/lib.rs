//! The end-to-end tests live in `tests/main.rs`; this library is empty.
