//! What hooks have read of a pass.

use super::error::HookError;
use burn::tensor::Tensor;
use std::any::Any;

/// A tensor of any number of dimensions.
pub(super) type Erased = Box<dyn Any + Send>;

/// Activations of a pass by their paths, in the order in which it had them.
#[derive(Default)]
pub struct Activations {
    found: Vec<Found>,
}

struct Found {
    path: String,
    shape: Vec<usize>,
    tensor: Erased,
}

impl Activations {
    /// Keeps an activation. Of several passes the last one counts.
    pub(super) fn put<const R: usize>(&mut self, path: &str, tensor: Tensor<R>) {
        self.found.retain(|found| found.path != path);
        let (path, shape) = (path.to_owned(), tensor.dims().to_vec());
        self.found.push(Found { path, shape, tensor: Box::new(tensor) });
    }

    /// The paths of what was recorded.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.found.iter().map(|found| found.path.as_str())
    }

    /// The shape of an activation, if it was recorded.
    pub fn shape(&self, path: &str) -> Option<&[usize]> {
        self.found.iter().find(|found| found.path == path).map(|found| found.shape.as_slice())
    }

    /// An activation of `R` dimensions.
    ///
    /// # Errors
    /// If it was not recorded, or has another number of dimensions.
    pub fn get<const R: usize>(&self, path: &str) -> Result<Tensor<R>, HookError> {
        let Some(found) = self.found.iter().find(|found| found.path == path) else {
            let paths: Vec<String> = self.paths().map(String::from).collect();
            return Err(HookError::unrecorded(path, &paths));
        };
        let other = || HookError::new(path, format!("it has the shape {:?}, not {R} dimensions", found.shape));
        found.tensor.downcast_ref::<Tensor<R>>().cloned().ok_or_else(other)
    }
}

impl std::fmt::Debug for Activations {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_map().entries(self.found.iter().map(|found| (&found.path, &found.shape))).finish()
    }
}
