//! The backends that can be compiled in, and what each of them finds on this machine.

use std::panic;
#[cfg(any(feature = "cuda", feature = "rocm", feature = "wgpu", feature = "vulkan", feature = "metal"))]
use std::panic::AssertUnwindSafe;

use burn::tensor::Device;
#[cfg(any(feature = "wgpu", feature = "vulkan", feature = "metal"))]
use burn::tensor::DeviceKind;
#[cfg(any(feature = "cuda", feature = "rocm", feature = "wgpu", feature = "vulkan", feature = "metal"))]
use burn::tensor::DeviceType;

use super::libdevice;

/// A Burn backend; each has a cargo feature of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// NVIDIA GPUs.
    Cuda,
    /// Apple GPUs, shaders in MSL.
    Metal,
    /// AMD GPUs.
    Rocm,
    /// Any GPU with a Vulkan driver, shaders in SPIR-V.
    Vulkan,
    /// Any GPU through the graphics interface of the system, shaders in WGSL.
    Wgpu,
    /// The CPU, in pure Rust.
    Flex,
    /// The CPU through ndarray; Burn 0.22 is the last version that has it.
    Ndarray,
}

/// What one backend offers on this machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackendReport {
    /// The backend.
    pub backend: Backend,
    /// Whether this build contains it.
    pub compiled: bool,
    /// Its devices in the order of their indices; empty if it is not compiled in or nothing is there.
    pub devices: Vec<NamedDevice>,
    /// A file that its devices need to compute anything, if it is not there.
    pub missing: Option<String>,
}

/// A device that is there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamedDevice {
    /// The name that selects it, such as `cuda:0` or `flex`.
    pub name: String,
    /// True for a CPU that plays a GPU, such as llvmpipe; it is only used when named.
    pub software: bool,
    /// The handle that tensors are created with.
    pub device: Device,
}

impl Backend {
    /// All backends, the preferred ones first: Burn's own order.
    pub const ALL: [Self; 7] =
        [Self::Cuda, Self::Metal, Self::Rocm, Self::Vulkan, Self::Wgpu, Self::Flex, Self::Ndarray];

    /// The name of the backend and of its cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Metal => "metal",
            Self::Rocm => "rocm",
            Self::Vulkan => "vulkan",
            Self::Wgpu => "wgpu",
            Self::Flex => "flex",
            Self::Ndarray => "ndarray",
        }
    }

    /// The backend of this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name().eq_ignore_ascii_case(name))
    }

    /// Whether the backend may have several devices, distinguished by an index.
    pub fn has_index(self) -> bool {
        !matches!(self, Self::Flex | Self::Ndarray)
    }

    /// Whether Burn can sum over several devices of this backend without the host: CUDA does so by NCCL, whose library must be installed.
    pub fn has_collective(self) -> bool {
        self == Self::Cuda
    }

    /// Looks for the devices of this backend.
    pub fn probe(self) -> BackendReport {
        // A broken driver may panic where it should report nothing; then nothing usable is there.
        let found = panic::catch_unwind(|| self.enumerate()).unwrap_or(Some(Vec::new()));
        let compiled = found.is_some();
        let named = |(index, device)| NamedDevice {
            name: self.device_name(index),
            software: self.is_software(&device),
            device,
        };
        BackendReport {
            backend: self,
            compiled,
            devices: found.unwrap_or_default().into_iter().enumerate().map(named).collect(),
            missing: if self == Self::Cuda && compiled { libdevice::missing() } else { None },
        }
    }

    /// What it takes to have a device of this backend.
    pub(super) fn requirement(self) -> &'static str {
        match self {
            Self::Cuda => "no NVIDIA GPU with a working driver",
            Self::Metal => "no Apple GPU",
            Self::Rocm => "no AMD GPU with a working ROCm installation",
            Self::Vulkan => "no GPU with a Vulkan driver",
            Self::Wgpu => "no GPU with a Vulkan, Metal, DirectX or OpenGL driver",
            Self::Flex | Self::Ndarray => "no CPU",
        }
    }

    fn device_name(self, index: usize) -> String {
        if self.has_index() { format!("{}:{index}", self.name()) } else { self.name().to_string() }
    }

    /// The devices that are there, `None` if the backend is not compiled in. Burn's own list would not do: with
    /// `burn-train` the flex backend is in every build, wanted or not.
    fn enumerate(self) -> Option<Vec<Device>> {
        match self {
            #[cfg(feature = "cuda")]
            Self::Cuda => {
                firelight_kernels::cache_compiled_kernels();
                Some(Device::enumerate(DeviceType::Cuda).into_vec())
            }
            #[cfg(feature = "metal")]
            Self::Metal => Some(Device::enumerate(DeviceType::Metal).into_vec()),
            #[cfg(feature = "rocm")]
            Self::Rocm => Some(Device::enumerate(DeviceType::Rocm).into_vec()),
            #[cfg(feature = "vulkan")]
            Self::Vulkan => Some(Device::enumerate(DeviceType::Vulkan).into_vec()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Some(Device::enumerate(DeviceType::Wgpu).into_vec()),
            #[cfg(feature = "flex")]
            Self::Flex => Some(vec![Device::flex()]),
            // Deprecated in Burn 0.22 and gone in 0.23: supported here for as long as Burn is 0.22.
            #[cfg(feature = "ndarray")]
            #[allow(deprecated)]
            Self::Ndarray => Some(vec![Device::ndarray()]),
            #[allow(unreachable_patterns)] // With every feature on, no backend is left for this arm.
            _ => None,
        }
    }

    #[allow(unused_variables)] // Without a graphics backend nothing is looked at.
    fn is_software(self, device: &Device) -> bool {
        match self {
            #[cfg(feature = "metal")]
            Self::Metal => *device == Device::metal(DeviceKind::Cpu),
            #[cfg(feature = "vulkan")]
            Self::Vulkan => *device == Device::vulkan(DeviceKind::Cpu),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => *device == Device::wgpu(DeviceKind::Cpu),
            _ => false,
        }
    }
}

impl BackendReport {
    /// The first device that is no software adapter.
    pub(super) fn hardware(&self) -> Option<NamedDevice> {
        self.devices.iter().find(|device| !device.software).cloned()
    }
}

impl NamedDevice {
    /// The backend of the device, by its name.
    pub fn backend(&self) -> Option<Backend> {
        self.name.split(':').next().and_then(Backend::from_name)
    }

    /// What the device is, such as the name of a graphics card. Opens the device, which may take a second.
    pub fn description(&self) -> String {
        #[cfg(any(feature = "cuda", feature = "rocm", feature = "wgpu", feature = "vulkan", feature = "metal"))]
        if let Ok(Some(identity)) = panic::catch_unwind(AssertUnwindSafe(|| self.device.identity())) {
            let kind = if self.software { " (software)" } else { "" };
            return format!("{}{kind}", identity.name);
        }
        if self.name.contains(':') { "GPU".to_string() } else { "CPU".to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_backends() {
        for backend in Backend::ALL {
            assert_eq!(Backend::from_name(&backend.name().to_uppercase()), Some(backend));
        }
        assert_eq!(Backend::from_name("tch"), None);
    }

    #[test]
    fn a_probe_knows_the_features_of_this_build() {
        for backend in Backend::ALL {
            let compiled = match backend {
                Backend::Cuda => cfg!(feature = "cuda"),
                Backend::Metal => cfg!(feature = "metal"),
                Backend::Rocm => cfg!(feature = "rocm"),
                Backend::Vulkan => cfg!(feature = "vulkan"),
                Backend::Wgpu => cfg!(feature = "wgpu"),
                Backend::Flex => cfg!(feature = "flex"),
                Backend::Ndarray => cfg!(feature = "ndarray"),
            };
            let report = backend.probe();
            assert_eq!(report.compiled, compiled, "{backend:?}");
            assert!(compiled || report.devices.is_empty());
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn the_cpu_is_always_there() {
        let report = Backend::Flex.probe();
        assert_eq!(report.devices[0].name, "flex");
        assert_eq!(report.devices[0].description(), "CPU");
        assert!(!report.devices[0].software);
    }
}
