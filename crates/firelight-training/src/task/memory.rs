//! A training that the memory of the machine cannot hold is refused by its estimate, before any of it is allocated.

use std::fs;

use burn::tensor::Device;

use super::begin::Plan;
use super::estimate::cost_by_paths;
use super::{Estimate, RecipeOf, Task};
use crate::ranks::Ranks;
use crate::words::{size_available, size_needed};
use crate::{Problem, Recipe};

/// What a device may have whose memory is not known: 1 TiB, more than any has today.
const UNKNOWN: usize = 1 << 40;

/// The keys that a message names at most.
const NAMED: usize = 3;

/// Refuses a recipe whose estimate is above the memory of the machine, which the `ranks` that are on it have together, naming the keys of which
/// a smaller value would fit.
pub(super) fn check<T: Task>(plan: &Plan<T>, device: &Device, ranks: &Ranks) -> Option<Problem> {
    let all = limit(device);
    let sharing = if all == UNKNOWN { 1 } else { ranks.sharing() }; // a GPU has its own
    check_within((all, sharing), ranks.world(), plan, device)
}

/// The same, where so many of the `world` ranks have `all` bytes together.
fn check_within<T: Task>(
    (all, sharing): (usize, usize),
    world: usize,
    plan: &Plan<T>,
    device: &Device,
) -> Option<Problem> {
    let limit = all / sharing;
    let Plan { recipe, corpus, config } = plan;
    let bytes = bytes::<T>((limit, world), recipe, config, device);
    if bytes <= limit {
        return None;
    }
    let mut smaller = smaller::<T>((limit, world), recipe, corpus, device);
    smaller.truncate(NAMED);
    let each = if sharing == 1 { String::new() } else { format!(" for each of {sharing} ranks on this machine") };
    let too_much =
        format!("would take about {} of memory, and there is {}{each}", size_needed(bytes), size_available(limit));
    let fitting = smaller.iter().map(|(key, _, fits)| format!("{key} = {fits}")).collect::<Vec<_>>().join(" or ");
    Some(match smaller.first() {
        Some((key, value, _)) => {
            Problem { text: format!("{key} = {value}: the training {too_much}; {fitting} would fit"), key: key.clone() }
        }
        None => {
            let text = format!("the training {too_much}; make the model and its batches smaller");
            Problem { text, key: "model".into() }
        }
    })
}

/// Bytes that a training on `device` may take: the memory of the machine where the device is its CPU.
fn limit(device: &Device) -> usize {
    let name = format!("{:?}", device.clone().inner());
    let is_cpu = ["Flex", "NdArray", "Cpu"].iter().any(|cpu| name.contains(cpu));
    if is_cpu { of_machine().unwrap_or(UNKNOWN) } else { UNKNOWN }
}

/// The memory of the machine, or of the container that the process runs in; none where the system does not tell.
fn of_machine() -> Option<usize> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let container =
        number("/sys/fs/cgroup/memory.max").or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    let machine = total_in(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(container.map_or(machine, |container| container.min(machine)))
}

/// Memory and swap in bytes, as Linux lists them.
fn total_in(meminfo: &str) -> Option<usize> {
    let kilobytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
    };
    Some((kilobytes("MemTotal:")? + kilobytes("SwapTotal:").unwrap_or(0)).saturating_mul(1024))
}

/// The keys of which a smaller value alone would make the training fit, the largest first: the key, its value, and the largest of
/// its halves, quarters and so on that fits.
fn smaller<T: Task>(
    limit: (usize, usize),
    recipe: &RecipeOf<T>,
    corpus: &T::DataModule,
    device: &Device,
) -> Vec<(String, usize, usize)> {
    let (Ok(values), Ok(text)) = (recipe.values(), recipe.to_toml()) else { return Vec::new() };
    let is_a_size = |key: &str| key.starts_with("model.") || key.starts_with("data.") || key == "training.batch_size";
    let sizes = values.into_iter().filter(|(key, _)| is_a_size(key));
    let sizes = sizes.filter_map(|(key, value)| Some((key, usize::try_from(value.as_integer()?).ok()?)));
    let halves = |value: usize| (1..usize::BITS).map(move |bits| value >> bits).take_while(|value| *value > 0);
    let fitting = |(key, value): (String, usize)| {
        let fits = halves(value).find(|value| fits::<T>(limit, &text, (&key, *value), corpus, device))?;
        Some((key, value, fits))
    };
    let mut found: Vec<_> = sizes.filter_map(fitting).collect();
    found.sort_by_key(|(_, value, _)| std::cmp::Reverse(*value));
    found
}

/// About the bytes of a training on each of `world` ranks. No model is built whose parameters alone are more than `limit`, at four bits each.
fn bytes<T: Task>((limit, world): (usize, usize), recipe: &RecipeOf<T>, config: &T::Config, device: &Device) -> usize {
    let all = Estimate::of::<T>(recipe, config, device);
    let found = if all.parameters / 2 > limit { all } else { cost_by_paths::<T>(recipe, config, device) };
    found.bytes_on(if recipe.training.shard_optimizer { world } else { 1 })
}

/// Whether the recipe `text` is one whose training fits, with this value of a key.
fn fits<T: Task>(
    limit: (usize, usize),
    text: &str,
    (key, value): (&str, usize),
    corpus: &T::DataModule,
    device: &Device,
) -> bool {
    let changed = Recipe::parse_with(text, key, &[(key.into(), value.to_string())], T::judge);
    let fits = |recipe: RecipeOf<T>| {
        let config = T::config(&recipe, corpus, key.as_ref()).ok()?;
        Some(bytes::<T>(limit, &recipe, &config, device) <= limit.0)
    };
    changed.ok().and_then(fits).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::super::toy_task::{Toy, request};
    use super::super::{NoKeys, Run, read_recipe};
    use super::*;
    use crate::RecipeError;

    #[test]
    fn memory_and_swap_count_as_linux_lists_them() {
        let listed = "MemTotal:       16384 kB\nMemFree:         1024 kB\nSwapTotal:        4096 kB\n";
        assert_eq!(total_in(listed), Some(20 << 20));
        assert_eq!(total_in("MemTotal:  8 kB\n"), Some(8 << 10));
        assert_eq!(total_in("MemFree: 8 kB\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_cpu_has_the_memory_of_the_machine() {
        let found = limit(&Device::flex().autodiff());
        assert!((64 << 20..UNKNOWN).contains(&found), "{found}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_memory_of_the_machine_counts_once_for_all_devices_of_one_process() {
        // 8 MB of points in each batch of a group that takes three quarters of the memory: enough for one rank, too much for two.
        let group = limit(&Device::flex()) / 4 * 3 / 8_000_000;
        let overrides = [("training.batch_size", 1_000_000), ("training.gradient_accumulation_steps", group)];
        let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string()));
        let plan = Plan::<Toy> { recipe: read_recipe::<Toy>(None, &overrides).unwrap(), corpus: (), config: NoKeys {} };
        let checked = |world: usize| {
            let rank = crate::Threads::ranks(world, crate::ThreadsOptions::default()).remove(0);
            check(&plan, &Device::flex(), &Ranks::new(std::sync::Arc::new(rank)))
        };
        assert_eq!(checked(1), None);
        let refused = checked(2).unwrap().text;
        assert!(refused.contains(" for each of 2 ranks on this machine"), "{refused}");
    }

    #[test]
    fn a_training_above_the_memory_names_the_key_and_a_value_that_fits() {
        // Two parameters with gradients and moments, and two floats for each point.
        let recipe = read_recipe::<Toy>(None, &[("training.batch_size".into(), "1000".into())]).unwrap();
        let plan = Plan::<Toy> { recipe, corpus: (), config: NoKeys {} };
        let check = |limit| check_within((limit, 1), 1, &plan, &Device::flex());
        let bytes = |points: usize| 4 * 2 * 4 + 4 * 2 * points;
        assert_eq!(check(bytes(1000)), None);
        for (limit, there_is, fits) in [
            (bytes(1000) - 1, "7.8 KiB", 500),
            (bytes(500) - 1, "3.9 KiB", 250),
            (bytes(125), "1.0 KiB", 125),
            (bytes(1), "40 B", 1),
        ] {
            let found = check(limit).unwrap();
            let expected = format!(
                "training.batch_size = 1000: the training would take about 7.9 KiB of memory, and there is {there_is}; \
                 training.batch_size = {fits} would fit"
            );
            assert_eq!((found.key.as_str(), found.text), ("training.batch_size", expected));
        }
        assert!(check(bytes(0)).unwrap().text.ends_with("; make the model and its batches smaller"));
        let shared = |limit| check_within((limit, 3), 3, &plan, &Device::flex());
        assert_eq!(shared(3 * bytes(1000)), None);
        let told = shared(3 * bytes(1000) - 1).unwrap().text;
        assert!(
            told.contains("there is 7.8 KiB for each of 3 ranks on this machine; training.batch_size = 500"),
            "{told}"
        );
    }

    #[test]
    fn a_share_of_the_moments_counts_and_no_more() {
        let overrides = [("training.batch_size", "1"), ("training.shard_optimizer", "true")];
        let overrides = overrides.map(|(key, value)| (key.to_string(), value.to_string()));
        let recipe = read_recipe::<Toy>(None, &overrides).unwrap();
        let plan = Plan::<Toy> { recipe, corpus: (), config: NoKeys {} };
        let check = |limit, world| check_within((limit, 1), world, &plan, &Device::flex());
        // Two parameters with gradients, a half of their moments or all of them, and two floats for the point.
        for (world, bytes) in [(1, 4 * (2 * 4 + 2)), (2, 4 * (2 * 3 + 2))] {
            assert_eq!(check(bytes, world), None);
            assert!(check(bytes - 1, world).is_some());
        }
    }

    #[test]
    fn a_training_that_no_machine_holds_is_refused_before_a_folder_is_made() {
        let (_home, request) =
            request(&[("training.batch_size", "1000000"), ("training.gradient_accumulation_steps", "1000000")]);
        let error = Run::<Toy>::prepare(&request).unwrap_err().downcast::<RecipeError>().unwrap();
        let text = error.to_string();
        assert!(error.is_user_error() && text.starts_with("`--set training.batch_size`: "), "{text}");
        assert!(text.contains("would take about 7450.6 GiB of memory"), "{text}"); // 4 * 2 * 10^12 bytes
        assert!(!request.out.unwrap().exists());
    }
}
