//! Why a device could not be selected. Every message lists what is available and how to enable the rest.

use super::{Backend, Request};

/// A device that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The name means nothing.
    #[error("{request} is unknown: expected {expected}; available: {available}")]
    Unknown {
        /// The name, and whose it is.
        request: Request,
        /// The names there are.
        expected: String,
        /// What is available and how to enable the rest.
        available: String,
    },

    /// The backend is not part of this build.
    #[error("{request} is not in this build: rebuild with `--features {}`; available: {available}", .backend.name())]
    NotCompiled {
        /// The name, and whose it is.
        request: Request,
        /// The backend it stands for.
        backend: Backend,
        /// What is available and how to enable the rest.
        available: String,
    },

    /// The backend is compiled in, and its device is not there.
    #[error("{request} is not there: {} was found for it; available: {available}", .backend.requirement())]
    NotThere {
        /// The name, and whose it is.
        request: Request,
        /// The backend it stands for.
        backend: Backend,
        /// What is available and how to enable the rest.
        available: String,
    },

    /// The device is there, but a file that its kernels are compiled with is not.
    #[error(
        "{device} cannot compute: {} needs {file}; install the CUDA toolkit or NVIDIA's package nvidia-cuda-nvcc and set CUDA_PATH, or choose \
         another device: {available}",
        .backend.name()
    )]
    MissingFile {
        /// The device.
        device: String,
        /// Its backend.
        backend: Backend,
        /// The file, and where it was looked for.
        file: String,
        /// What is available and how to enable the rest.
        available: String,
    },

    /// Two ranks of a training cannot have one GPU.
    #[error(
        "device `{device}` is named twice: name each GPU once, as in `cuda:0,cuda:1`; the CPU alone may be named more often"
    )]
    Twice {
        /// The device.
        device: String,
    },

    /// Ranks of a training whose devices compute differently.
    #[error(
        "devices `{first}` and `{other}` are of different backends, which round differently: name devices of one backend"
    )]
    Mixed {
        /// The first device.
        first: String,
        /// The first one of another backend.
        other: String,
    },

    /// Nothing is compiled in that works on this machine without being named.
    #[error("no device was found: available: {available}; the CPU is always there with `--features flex`")]
    NoDevice {
        /// What is available when named, and how to enable the rest.
        available: String,
    },
}

impl DeviceError {
    /// Always true: another name or another build helps.
    pub fn is_user_error(&self) -> bool {
        true
    }
}
