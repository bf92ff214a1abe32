//! Short programs that show Firelight as a library; run one with `cargo run --release -p firelight-examples --example quickstart`.
