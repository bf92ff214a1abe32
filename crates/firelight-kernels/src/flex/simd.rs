//! Which vector units the loops of the flex kernels are compiled for.
//!
//! Every level gives the same bits. Matrix products choose theirs inside the `gemm` crate, which offers no way to force
//! one.

use pulp::Arch;
use std::ffi::OsStr;
use std::sync::OnceLock;

/// The environment variable that forces a level.
const SWITCH: &str = "FIRELIGHT_SIMD";

/// The level that [`vectorised`](super::vectorised) takes: the widest of this CPU, or the one that the environment names.
pub(super) fn arch() -> Arch {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    #[cfg(test)]
    if let Some(arch) = forced::level() {
        return arch;
    }
    *ARCH.get_or_init(|| {
        let (arch, warning) = chosen(&std::env::var_os(SWITCH).unwrap_or_default());
        if let Some(warning) = warning {
            log::warn!("{warning}");
        }
        arch
    })
}

/// The level of a value of [`SWITCH`], and what is wrong with the value.
fn chosen(value: &OsStr) -> (Arch, Option<String>) {
    if value.is_empty() {
        return (Arch::new(), None);
    }
    let levels = levels();
    if let Some((_, arch)) = levels.iter().find(|(name, _)| value == *name) {
        return (*arch, None);
    }
    let names = levels.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let warning = format!("{SWITCH}={} is ignored: this CPU has {names}", value.display());
    (Arch::new(), Some(warning))
}

/// The levels that this CPU has, the narrowest first.
fn levels() -> Vec<(&'static str, Arch)> {
    #[allow(unused_mut)] // Other processors have one alone.
    let mut levels = vec![("scalar", Arch::Scalar)];
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        levels.extend(pulp::x86::V3::try_new().map(|simd| ("avx2", Arch::V3(simd))));
        levels.extend(pulp::x86::V4::try_new().map(|simd| ("avx512", Arch::V4(simd))));
    }
    levels
}

#[cfg(test)]
pub(crate) use forced::on_every_level;

#[cfg(test)]
mod forced {
    use super::Arch;
    use std::cell::Cell;

    thread_local! {
        static LEVEL: Cell<Option<Arch>> = const { Cell::new(None) };
    }

    /// What this thread is held to.
    pub(super) fn level() -> Option<Arch> {
        LEVEL.get()
    }

    /// What `work` gives at each level of this CPU, by name, the narrowest first. It runs on threads that are held to it.
    pub(crate) fn on_every_level<R: Send>(work: impl Fn() -> R + Sync) -> Vec<(&'static str, R)> {
        let at = |(name, arch)| {
            let held = rayon::ThreadPoolBuilder::new().num_threads(2).start_handler(move |_| LEVEL.set(Some(arch)));
            (name, held.build().expect("a pool of threads").install(&work))
        };
        super::levels().into_iter().map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    fn name(arch: Arch) -> String {
        format!("{arch:?}").split('(').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_level_is_forced_by_name_and_what_the_cpu_lacks_is_warned_of() {
        for (level, arch) in levels() {
            let (found, warning) = chosen(OsStr::new(level));
            assert_eq!((name(found), warning), (name(arch), None));
        }
        assert_eq!(name(chosen(OsStr::new("")).0), name(Arch::new()));
        let (found, warning) = chosen(OsStr::new("AVX2"));
        assert_eq!(name(found), name(Arch::new()));
        let warning = warning.expect("a warning");
        assert!(warning.starts_with("FIRELIGHT_SIMD=AVX2 is ignored: this CPU has `scalar`"), "{warning}");
    }

    #[test]
    fn the_widest_level_is_the_default() {
        let levels = levels();
        assert_eq!(levels[0].0, "scalar");
        #[cfg(target_arch = "x86_64")]
        assert_eq!(levels.last().map(|(_, arch)| name(*arch)), Some(name(Arch::new())));
    }

    #[test]
    fn every_thread_of_forced_work_is_held_to_its_level() {
        let expected = levels().into_iter().map(|(level, arch)| (level, vec![name(arch); 100]));
        let found = on_every_level(|| (0..100).into_par_iter().map(|_| name(arch())).collect::<Vec<_>>());
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
