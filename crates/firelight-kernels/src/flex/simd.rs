//! Which vector units the loops of the flex kernels are compiled for, and whether products of `bf16` run in tile registers.
//!
//! Every level gives the same bits in `f32` and `f64`. Matrix products choose theirs inside the `gemm` crate, which offers no way to
//! force one.

use pulp::Arch;
use std::ffi::OsStr;
use std::sync::OnceLock;

/// The environment variable that forces a level.
const SWITCH: &str = "FIRELIGHT_SIMD";

/// A set of instructions to compute with.
#[derive(Debug, Clone, Copy)]
struct Level {
    name: &'static str,
    /// Its vector units.
    arch: Arch,
    /// Whether it has tile registers for `bf16` as well.
    #[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), allow(dead_code))]
    has_tiles: bool,
}

/// The vector units that [`vectorised`](super::vectorised) takes: the widest of this CPU, or those that the environment names.
pub(super) fn arch() -> Arch {
    level().arch
}

/// Whether this processor multiplies and adds in one instruction, whatever level is forced.
pub(crate) fn has_fma() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return pulp::x86::V3::try_new().is_some();
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
    cfg!(target_arch = "aarch64")
}

/// What products of eight-bit integers run in.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integers {
    /// Loops for the vector units.
    Plain,
    /// AVX2.
    Avx2,
    /// AVX-512 with VNNI.
    Avx512,
}

/// The widest units for integers of this CPU within the level that is forced. Miri knows none of their instructions.
#[cfg(target_arch = "x86_64")]
pub(crate) fn integers() -> Integers {
    match arch() {
        _ if cfg!(miri) => Integers::Plain,
        Arch::V4(_) if std::arch::is_x86_feature_detected!("avx512vnni") => Integers::Avx512,
        Arch::V4(_) | Arch::V3(_) => Integers::Avx2,
        _ => Integers::Plain,
    }
}

/// Whether products of `bf16` run in tile registers, if the system permits it.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) fn has_tiles() -> bool {
    level().has_tiles
}

fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    #[cfg(test)]
    if let Some(level) = forced::level() {
        return level;
    }
    *LEVEL.get_or_init(|| {
        let (level, warning) = chosen(&std::env::var_os(SWITCH).unwrap_or_default());
        if let Some(warning) = warning {
            log::warn!("{warning}");
        }
        level
    })
}

/// The level of a value of [`SWITCH`], and what is wrong with the value.
fn chosen(value: &OsStr) -> (Level, Option<String>) {
    let levels = levels();
    let widest = levels.last().unwrap_or_else(|| unreachable!("every processor has one"));
    let widest = Level { arch: Arch::new(), ..*widest }; // Where there is one alone, the processor may have units that it does not name.
    if value.is_empty() {
        return (widest, None);
    }
    if let Some(level) = levels.iter().find(|level| value == level.name) {
        return (*level, None);
    }
    let names = levels.iter().map(|level| format!("`{}`", level.name)).collect::<Vec<_>>().join(", ");
    let warning = format!("{SWITCH}={} is ignored: this CPU has {names}", value.display());
    (widest, Some(warning))
}

/// The levels that this CPU has, the narrowest first.
fn levels() -> Vec<Level> {
    let vectors = |name, arch| Level { name, arch, has_tiles: false };
    #[allow(unused_mut)] // Other processors have one alone.
    let mut levels = vec![vectors("scalar", Arch::Scalar)];
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        levels.extend(pulp::x86::V3::try_new().map(|simd| vectors("avx2", Arch::V3(simd))));
        levels.extend(pulp::x86::V4::try_new().map(|simd| vectors("avx512", Arch::V4(simd))));
    }
    if super::halves::has_tiles() {
        levels.push(Level { name: "amx", arch: Arch::new(), has_tiles: true });
    }
    levels
}

#[cfg(test)]
pub(crate) use forced::on_every_level;

#[cfg(test)]
mod forced {
    use super::Level;
    use std::cell::Cell;

    thread_local! {
        static LEVEL: Cell<Option<Level>> = const { Cell::new(None) };
    }

    /// What this thread is held to.
    pub(super) fn level() -> Option<Level> {
        LEVEL.get()
    }

    /// What `work` gives at each level of this CPU, by name, the narrowest first. It runs on threads that are held to it.
    pub(crate) fn on_every_level<R: Send>(work: impl Fn() -> R + Sync) -> Vec<(&'static str, R)> {
        let at = |level: Level| {
            let held = rayon::ThreadPoolBuilder::new().num_threads(2).start_handler(move |_| LEVEL.set(Some(level)));
            (level.name, held.build().expect("a pool of threads").install(&work))
        };
        super::levels().into_iter().map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    fn widest() -> &'static str {
        levels().last().expect("a level").name
    }

    #[test]
    fn a_level_is_forced_by_name_and_what_the_cpu_lacks_is_warned_of() {
        for level in levels() {
            let (found, warning) = chosen(OsStr::new(level.name));
            assert_eq!((found.name, warning), (level.name, None));
        }
        assert_eq!(chosen(OsStr::new("")).0.name, widest());
        let (found, warning) = chosen(OsStr::new("AVX2"));
        assert_eq!(found.name, widest());
        let warning = warning.expect("a warning");
        assert!(warning.starts_with("FIRELIGHT_SIMD=AVX2 is ignored: this CPU has `scalar`"), "{warning}");
    }

    #[test]
    fn the_widest_level_is_the_default() {
        let levels = levels();
        assert_eq!(levels[0].name, "scalar");
        #[cfg(target_arch = "x86_64")]
        let kind = |arch: Arch| format!("{arch:?}").split('(').next().map(str::to_owned);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(levels.last().map(|level| kind(level.arch)), Some(kind(Arch::new())));
    }

    #[test]
    fn every_thread_of_forced_work_is_held_to_its_level() {
        let expected = levels().into_iter().map(|level| (level.name, vec![level.name; 100]));
        let found = on_every_level(|| (0..100).into_par_iter().map(|_| super::level().name).collect::<Vec<_>>());
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
