//! Which device the tensors live on: the one place that knows the backends by name. Every command and example asks
//! [`select`]; the parts of the library take the device that it returns.
//!
//! The explicit name decides, else the environment variable `BURN_DEVICE`, else the first backend of [`Backend::ALL`]
//! that is compiled in and whose device is really there. A software adapter such as llvmpipe counts only when named.

mod backend;
mod error;
mod libdevice;

use std::fmt;

use burn::tensor::Device;

pub use backend::{Backend, BackendReport, NamedDevice};
pub use error::DeviceError;

/// The variable that names a backend when the caller does not. Burn reads it too, for its own default device.
pub const DEVICE_VARIABLE: &str = "BURN_DEVICE";

/// The device of this name, or the best one when there is none.
///
/// Names are `cuda`, `metal`, `rocm`, `vulkan` and `wgpu`, each with an optional index (`cuda:1`), `flex`, `ndarray`, `cpu` for
/// the one of these two that is built in, and `auto` for the best device whatever `BURN_DEVICE` says.
///
/// # Errors
/// A name that is unknown, a backend that is not compiled in, or a device that is not there; the message lists what is
/// available and how to enable the rest.
pub fn select(name: Option<&str>) -> Result<Device, DeviceError> {
    choose(name).map(|chosen| chosen.device)
}

/// As [`select`], with the chosen device's name.
///
/// # Errors
/// As [`select`].
pub fn choose(name: Option<&str>) -> Result<NamedDevice, DeviceError> {
    let variable = std::env::var(DEVICE_VARIABLE).ok();
    Chooser { probe: Backend::probe }.choose(name, variable.as_deref())
}

/// As [`choose`], for one of several processes on this machine, `local_rank` from 0: where no index is named, they take the GPUs that CUDA or
/// ROCm find in turn. Other backends list GPUs of different kinds, so that their processes share the chosen one.
///
/// # Errors
/// As [`select`].
pub fn choose_in_turn(name: Option<&str>, local_rank: usize) -> Result<NamedDevice, DeviceError> {
    let variable = std::env::var(DEVICE_VARIABLE).ok();
    Chooser { probe: Backend::probe }.choose_in_turn(name, variable.as_deref(), local_rank)
}

/// A device for each of several ranks of one process, by their names as in [`choose`]: devices of one backend, each GPU once. A CPU may be named more
/// than once.
///
/// # Errors
/// As [`select`], and if a GPU is named twice or the backends differ.
///
/// ```
/// # #[cfg(feature = "flex")]
/// assert_eq!(firelight::device::choose_several(&["flex", "cpu"])?.len(), 2);
/// # Ok::<(), firelight::device::DeviceError>(())
/// ```
pub fn choose_several<S: AsRef<str>>(names: &[S]) -> Result<Vec<NamedDevice>, DeviceError> {
    Chooser { probe: Backend::probe }.choose_several(names)
}

/// What is compiled in and what is there, in order of preference.
pub fn available() -> Vec<BackendReport> {
    Backend::ALL.into_iter().map(Backend::probe).collect()
}

/// A wish for a device, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// The caller's name.
    Name(String),
    /// The value of `BURN_DEVICE`.
    Variable(String),
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "device `{name}`"),
            Self::Variable(value) => write!(f, "{DEVICE_VARIABLE}={value}"),
        }
    }
}

/// The rules of choice, over whatever tells which devices are there.
struct Chooser<P: Fn(Backend) -> BackendReport> {
    probe: P,
}

impl<P: Fn(Backend) -> BackendReport> Chooser<P> {
    fn choose(&self, name: Option<&str>, variable: Option<&str>) -> Result<NamedDevice, DeviceError> {
        match (name, variable) {
            (Some(name), _) if name.eq_ignore_ascii_case("auto") => self.best(),
            (Some(name), _) if name.eq_ignore_ascii_case("cpu") => self.by_name(self.cpu().name()),
            (Some(name), _) => self.by_name(name),
            (None, Some(value)) if !value.is_empty() => self.by_variable(value),
            (None, _) => self.best(),
        }
    }

    fn choose_in_turn(
        &self,
        name: Option<&str>,
        variable: Option<&str>,
        local_rank: usize,
    ) -> Result<NamedDevice, DeviceError> {
        let chosen = self.choose(name, variable)?;
        let is_named = name.is_some_and(|name| name.contains(':'));
        let backend = chosen.name.split(':').next().and_then(Backend::from_name);
        match backend.filter(|backend| matches!(backend, Backend::Cuda | Backend::Rocm) && !is_named) {
            Some(backend) => {
                let devices = (self.probe)(backend).devices;
                Ok(devices.get(local_rank % devices.len().max(1)).cloned().unwrap_or(chosen))
            }
            None => Ok(chosen),
        }
    }

    fn choose_several<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<NamedDevice>, DeviceError> {
        let mut chosen: Vec<NamedDevice> = Vec::new();
        for name in names {
            let device = self.choose(Some(name.as_ref()), None)?;
            let may_repeat = device.backend().is_some_and(|backend| !backend.has_index());
            if !may_repeat && chosen.iter().any(|before| before.name == device.name) {
                return Err(DeviceError::Twice { device: device.name });
            }
            if let Some(first) = chosen.first().filter(|first| first.backend() != device.backend()) {
                return Err(DeviceError::Mixed { first: first.name.clone(), other: device.name });
            }
            chosen.push(device);
        }
        Ok(chosen)
    }

    /// The first backend with a device that is no software adapter.
    fn best(&self) -> Result<NamedDevice, DeviceError> {
        let mut reports = Backend::ALL.into_iter().map(&self.probe);
        let found = reports.find_map(|report| report.hardware().map(|device| (report, device)));
        let (report, device) = found.ok_or_else(|| DeviceError::NoDevice { available: self.offer() })?;
        self.able(&report, device)
    }

    /// The backend of the CPU that is compiled in; flex where both are.
    fn cpu(&self) -> Backend {
        let is_there = |backend: &Backend| (self.probe)(*backend).compiled;
        [Backend::Flex, Backend::Ndarray].into_iter().find(is_there).unwrap_or(Backend::Flex)
    }

    fn by_name(&self, name: &str) -> Result<NamedDevice, DeviceError> {
        let request = Request::Name(name.to_string());
        let (backend, index) = match name.split_once(':') {
            None => (Backend::from_name(name), None),
            Some((backend, index)) => match index.parse() {
                Ok(index) => (Backend::from_name(backend).filter(|backend| backend.has_index()), Some(index)),
                Err(_) => (None, None),
            },
        };
        match backend {
            Some(backend) => self.device(request, backend, index),
            None => Err(DeviceError::Unknown { request, expected: names_with_index(), available: self.offer() }),
        }
    }

    /// `BURN_DEVICE` holds a plain backend name: Burn, which reads it as well, knows neither `auto` nor an index.
    fn by_variable(&self, value: &str) -> Result<NamedDevice, DeviceError> {
        let request = Request::Variable(value.to_string());
        match Backend::from_name(value) {
            Some(backend) => self.device(request, backend, None),
            None => Err(DeviceError::Unknown { request, expected: names(), available: self.offer() }),
        }
    }

    fn device(&self, request: Request, backend: Backend, index: Option<usize>) -> Result<NamedDevice, DeviceError> {
        let report = (self.probe)(backend);
        if !report.compiled {
            return Err(DeviceError::NotCompiled { request, backend, available: self.offer() });
        }
        let found = match index {
            Some(index) => report.devices.get(index).cloned(),
            None => report.hardware().or_else(|| report.devices.first().cloned()),
        };
        let found = found.ok_or_else(|| DeviceError::NotThere { request, backend, available: self.offer() })?;
        self.able(&report, found)
    }

    /// The device, if no file is missing that its kernels are compiled with.
    fn able(&self, report: &BackendReport, device: NamedDevice) -> Result<NamedDevice, DeviceError> {
        match &report.missing {
            None => Ok(device),
            Some(file) => Err(DeviceError::MissingFile {
                device: device.name,
                backend: report.backend,
                file: file.clone(),
                available: self.offer(),
            }),
        }
    }

    /// What an error message offers instead.
    fn offer(&self) -> String {
        let reports: Vec<BackendReport> = Backend::ALL.into_iter().map(&self.probe).collect();
        let devices: Vec<&str> =
            reports.iter().flat_map(|report| &report.devices).map(|device| device.name.as_str()).collect();
        let missing: Vec<&str> =
            reports.iter().filter(|report| !report.compiled).map(|report| report.backend.name()).collect();
        let devices = if devices.is_empty() { "nothing".to_string() } else { devices.join(", ") };
        match missing.as_slice() {
            [] => devices,
            missing => format!("{devices}; not in this build, enabled with `--features NAME`: {}", missing.join(", ")),
        }
    }
}

fn names() -> String {
    Backend::ALL.map(Backend::name).join(", ")
}

fn names_with_index() -> String {
    let name = |backend: Backend| {
        if backend.has_index() { format!("{}[:INDEX]", backend.name()) } else { backend.name().into() }
    };
    format!("auto, cpu, {}", Backend::ALL.map(name).join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which these backends are compiled in with these devices.
    fn machine(devices: &'static [(Backend, &'static [&'static str])]) -> Chooser<impl Fn(Backend) -> BackendReport> {
        let probe = move |backend| {
            let found = devices.iter().find(|(compiled, _)| *compiled == backend);
            let named = |name: &&str| NamedDevice {
                name: name.trim_end_matches('~').to_string(),
                software: name.ends_with('~'),
                device: Device::flex(),
            };
            let devices = found.map(|(_, names)| names.iter().map(named).collect()).unwrap_or_default();
            BackendReport { backend, compiled: found.is_some(), devices, missing: None }
        };
        Chooser { probe }
    }

    // A trailing ~ marks a software adapter.
    const WORKSTATION: &[(Backend, &[&str])] =
        &[(Backend::Cuda, &["cuda:0", "cuda:1"]), (Backend::Wgpu, &["wgpu:0~", "wgpu:1"]), (Backend::Flex, &["flex"])];
    const LAPTOP: &[(Backend, &[&str])] = &[
        (Backend::Cuda, &[]),
        (Backend::Wgpu, &["wgpu:0~"]),
        (Backend::Flex, &["flex"]),
        (Backend::Ndarray, &["ndarray"]),
    ];

    fn name(result: Result<NamedDevice, DeviceError>) -> String {
        result.map_or_else(|error| error.to_string(), |chosen| chosen.name)
    }

    #[test]
    fn a_device_without_the_file_that_it_needs_is_refused_by_the_name_of_the_file() {
        let probe = |backend| {
            let report = (machine(WORKSTATION).probe)(backend);
            let missing = (backend == Backend::Cuda).then(|| "nvvm/libdevice/libdevice.10.bc".to_string());
            BackendReport { missing, ..report }
        };
        for wish in [None, Some("cuda"), Some("cuda:1")] {
            let text = name(Chooser { probe }.choose(wish, None));
            assert!(text.contains("cannot compute: cuda needs nvvm/libdevice/libdevice.10.bc"), "{text}");
        }
        assert_eq!(name(Chooser { probe }.choose(Some("flex"), None)), "flex");
    }

    #[test]
    fn the_best_device_that_is_there_wins_and_software_does_not_count() {
        assert_eq!(name(machine(WORKSTATION).choose(None, None)), "cuda:0");
        assert_eq!(name(machine(LAPTOP).choose(None, None)), "flex");
        assert_eq!(name(machine(LAPTOP).choose(None, Some(""))), "flex");
        assert_eq!(name(machine(&[(Backend::Ndarray, &["ndarray"])]).choose(None, None)), "ndarray");
    }

    #[test]
    fn the_name_overrides_the_variable_and_the_variable_the_order() {
        assert_eq!(name(machine(WORKSTATION).choose(None, Some("flex"))), "flex");
        assert_eq!(name(machine(WORKSTATION).choose(Some("cuda:1"), Some("flex"))), "cuda:1");
        assert_eq!(name(machine(WORKSTATION).choose(Some("auto"), Some("flex"))), "cuda:0");
        assert_eq!(name(machine(WORKSTATION).choose(Some("cpu"), Some("cuda"))), "flex");
        assert_eq!(name(machine(&[(Backend::Ndarray, &["ndarray"])]).choose(Some("cpu"), None)), "ndarray");
    }

    #[test]
    fn processes_take_gpus_of_one_kind_in_turn_unless_one_is_named() {
        let of_ranks = |name, variable| {
            [0, 1, 2].map(|rank| self::name(machine(WORKSTATION).choose_in_turn(name, variable, rank)))
        };
        for (name, variable) in [(None, None), (Some("auto"), Some("flex")), (Some("cuda"), None), (None, Some("cuda"))]
        {
            assert_eq!(of_ranks(name, variable), ["cuda:0", "cuda:1", "cuda:0"]);
        }
        assert_eq!(of_ranks(Some("cuda:1"), None), ["cuda:1"; 3]);
        assert_eq!(of_ranks(Some("wgpu"), None), ["wgpu:1"; 3]);
        assert_eq!(of_ranks(None, Some("flex")), ["flex"; 3]);
        assert!(of_ranks(Some("gpu"), None)[2].starts_with("device `gpu` is unknown"));
    }

    #[test]
    fn a_named_backend_prefers_hardware_and_takes_software_when_alone() {
        assert_eq!(name(machine(WORKSTATION).choose(Some("WGPU"), None)), "wgpu:1");
        assert_eq!(name(machine(WORKSTATION).choose(Some("wgpu:0"), None)), "wgpu:0");
        assert_eq!(name(machine(LAPTOP).choose(Some("wgpu"), None)), "wgpu:0");
    }

    #[test]
    fn a_backend_that_is_not_compiled_in_says_how_to_get_it() {
        assert_eq!(
            name(machine(LAPTOP).choose(Some("rocm"), None)),
            "device `rocm` is not in this build: rebuild with `--features rocm`; available: wgpu:0, flex, ndarray; not in \
             this build, enabled with `--features NAME`: metal, rocm, vulkan"
        );
    }

    #[test]
    fn a_device_that_is_not_there_says_what_is() {
        let missing = name(machine(LAPTOP).choose(Some("cuda"), None));
        assert!(missing.starts_with("device `cuda` is not there: no NVIDIA GPU"), "{missing}");
        assert!(missing.contains("available: wgpu:0, flex, ndarray"), "{missing}");
        let missing = name(machine(WORKSTATION).choose(Some("cuda:2"), None));
        assert!(missing.contains("available: cuda:0, cuda:1, wgpu:0, wgpu:1, flex"), "{missing}");
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        for unknown in ["gpu", "cuda:x", "flex:0", ""] {
            let message = name(machine(LAPTOP).choose(Some(unknown), None));
            assert!(
                message.starts_with(&format!("device `{unknown}` is unknown: expected auto, cpu, cuda[:INDEX], ")),
                "{message}"
            );
        }
        for unknown in ["auto", "cuda:1", "tch"] {
            let message = name(machine(LAPTOP).choose(None, Some(unknown)));
            let start =
                format!("BURN_DEVICE={unknown} is unknown: expected cuda, metal, rocm, vulkan, wgpu, flex, ndarray;");
            assert!(message.starts_with(&start), "{message}");
        }
    }

    #[test]
    fn several_devices_are_of_one_backend_and_each_gpu_is_named_once() {
        let names = |wish: &[&str]| match machine(WORKSTATION).choose_several(wish) {
            Ok(devices) => devices.into_iter().map(|device| device.name).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(names(&["cuda:1", "CUDA:0"]), "cuda:1 cuda:0");
        assert_eq!(names(&["cpu", "flex", "flex"]), "flex flex flex");
        assert!(names(&["cuda", "cuda:0"]).starts_with("device `cuda:0` is named twice: name each GPU once"));
        let mixed = "devices `cuda:0` and `flex` are of different backends";
        assert!(names(&["cuda:0", "flex"]).starts_with(mixed), "{}", names(&["cuda:0", "flex"]));
        assert!(names(&["cuda:0", "cuda:2"]).starts_with("device `cuda:2` is not there"));
        assert!(names(&["cuda:0", "gpu"]).starts_with("device `gpu` is unknown"));
    }

    #[test]
    fn nothing_compiled_in_is_an_error_that_says_so() {
        let message = name(machine(&[]).choose(None, None));
        assert!(message.starts_with("no device was found: available: nothing"), "{message}");
    }
}
