//! `firelight devices`: what is compiled in, what is there, and which one is the default.

use anyhow::Result;
use firelight::device::{self, BackendReport};

use crate::output;

const EXAMPLES: &str = "\
Examples:
  firelight devices
  firelight train dates --device cuda:1
  BURN_DEVICE=wgpu firelight train dates

Devices are named cpu, flex, ndarray, wgpu, vulkan, metal, cuda or rocm, the GPUs with an index where there are several, as \
cuda:1. Without --device and BURN_DEVICE, or with --device auto, it is the best device found.";

/// List the backends of this build, the devices found, and the default
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Devices {}

impl Devices {
    pub(crate) fn run(self) -> Result<()> {
        let default = device::choose(None);
        let default_name = default.as_ref().ok().map(|chosen| chosen.name.as_str());
        let rows = device::available().into_iter().flat_map(|report| rows(&report, default_name));
        let table: String = rows.map(|[backend, built, device]| format!("{backend:<9}{built:<13}{device}\n")).collect();
        output::print(&format!("{:<9}{:<13}{}\n{table}", "BACKEND", "COMPILED IN", "DEVICES"))?;
        // A BURN_DEVICE that cannot be had is worth an error here, too: every other command will end with it.
        let default = default?;
        output::print(&format!("\ndefault: {}\n", default.name))?;
        Ok(())
    }
}

/// One line for each device, or one that says why there is none.
fn rows(report: &BackendReport, default: Option<&str>) -> Vec<[String; 3]> {
    let row = |built: &str, device: String| [report.backend.name().to_string(), built.to_string(), device];
    if !report.compiled {
        return vec![row("no", format!("build with --features {}", report.backend.name()))];
    }
    if report.devices.is_empty() {
        return vec![row("yes", "none found".to_string())];
    }
    let mark = |name: &str| if Some(name) == default { "  <- default" } else { "" };
    let line =
        |device: &device::NamedDevice| format!("{} ({}){}", device.name, device.description(), mark(&device.name));
    report.devices.iter().map(|device| row("yes", line(device))).collect()
}
