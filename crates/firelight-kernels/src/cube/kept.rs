//! Compiled kernels that outlive the process.

use burn_cubecl::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// Caches compiled CUDA kernels on disk, for later processes. Call it before the first device is used.
///
/// The place is CubeCL's: `target/environment` of the outermost Rust project around the working directory, else `cubecl` in the
/// user's cache folder, unless a `cubecl.toml` names another one; its key `compilation.cache` has no effect. A configuration of CubeCL that
/// the program has set or read before stays as it is.
pub fn cache_compiled_kernels() {
    let mut config = CubeClRuntimeConfig::from_current_dir();
    config.compilation.cache = true;
    CubeClRuntimeConfig::try_set(config.override_from_env());
}
