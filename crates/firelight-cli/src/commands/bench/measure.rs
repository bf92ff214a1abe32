//! The clock and the scale: median seconds of a step, and how far memory rises.

use std::fs;
use std::time::Instant;

use anyhow::Result;

use super::workload::Workload;

/// What was found.
pub(super) struct Measurement {
    /// Median of the runs.
    pub(super) seconds: f64,
    /// Largest resident size of the process, in MiB.
    pub(super) peak_mib: Option<f64>,
    /// The same above the resident size before the first step.
    pub(super) above_start_mib: Option<f64>,
}

impl Measurement {
    /// The same of a device with a memory of its own, of which the process says nothing.
    pub(super) fn without_memory(self) -> Self {
        Self { peak_mib: None, above_start_mib: None, ..self }
    }
}

/// One run to warm up, then `runs` that count.
pub(super) fn measure(workload: &mut Workload, runs: u32) -> Result<Measurement> {
    reset_peak();
    let start = memory("VmRSS:");
    workload.step()?;
    let mut seconds = (0..runs).map(|_| time(workload)).collect::<Result<Vec<f64>>>()?;
    seconds.sort_by(f64::total_cmp);
    let peak_mib = memory("VmHWM:");
    let above_start_mib = peak_mib.zip(start).map(|(peak, start)| peak - start);
    Ok(Measurement { seconds: seconds[seconds.len() / 2], peak_mib, above_start_mib })
}

fn time(workload: &mut Workload) -> Result<f64> {
    let start = Instant::now();
    workload.step()?;
    Ok(start.elapsed().as_secs_f64())
}

pub(super) fn threads() -> usize {
    rayon::current_num_threads()
}

/// A size of this process in MiB, as Linux tells it.
fn memory(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?;
    Some(kib.parse::<f64>().ok()? / 1024.0)
}

/// Lets the largest resident size begin anew, where the system can.
fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}
