//! Parameters, or their gradients, whose numbers come from other ranks in pieces of any length.

use std::collections::VecDeque;

use burn::module::{Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Shape, Tensor, TensorData};

use super::buckets::Take;

/// What makes a tensor of its numbers, if there is one.
type Make = Box<dyn FnOnce(&[f32], &mut GradientsParams)>;

/// Tensors whose numbers come one after the other, and those that are complete.
#[derive(Default)]
pub(super) struct Incoming {
    expected: VecDeque<(usize, Make)>,
    arrived: Vec<f32>,
    complete: GradientsParams,
}

impl Incoming {
    /// Expects the numbers of a parameter next.
    pub(super) fn expect<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (id, shape, device) = place(param);
        self.then(shape.num_elements(), move |numbers, complete| {
            complete.register(id, tensor::<D>(numbers.to_vec(), shape, &device));
        });
    }

    /// Expects the gradient of a parameter next: how many ranks have one, and its numbers.
    pub(super) fn expect_gradient<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (id, shape, device) = place(param);
        self.then(1 + shape.num_elements(), move |numbers, complete| {
            if numbers[0] > 0.0 {
                complete.register(id, tensor::<D>(numbers[1..].to_vec(), shape, &device));
            }
        });
    }

    fn then(&mut self, numbers: usize, make: impl FnOnce(&[f32], &mut GradientsParams) + 'static) {
        self.expected.push_back((numbers, Box::new(make)));
    }

    /// Whether nothing more is to come.
    pub(super) fn is_complete(&self) -> bool {
        self.expected.is_empty() && self.arrived.is_empty()
    }

    /// The tensors that are complete, by the ids of their parameters.
    pub(super) fn into_complete(self) -> GradientsParams {
        self.complete
    }
}

impl Take for Incoming {
    fn take(&mut self, numbers: &[f32]) {
        self.arrived.extend_from_slice(numbers);
        let mut begin = 0;
        while self.expected.front().is_some_and(|(length, _)| begin + length <= self.arrived.len()) {
            let Some((length, make)) = self.expected.pop_front() else { break };
            make(&self.arrived[begin..begin + length], &mut self.complete);
            begin += length;
        }
        self.arrived.drain(..begin);
    }
}

/// What stays of a parameter when its numbers change.
fn place<const D: usize>(param: &Param<Tensor<D>>) -> (ParamId, Shape, Device) {
    let value = param.val();
    (param.id, value.shape(), value.device().inner())
}

/// A tensor without gradients.
pub(super) fn tensor<const D: usize>(values: Vec<f32>, shape: impl Into<Shape>, device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (device, DType::F32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_made_when_all_of_their_numbers_have_come() {
        let device = Device::default();
        let matrix = Param::from_tensor(Tensor::<2>::zeros([2, 2], &device));
        let [vector, without] = [3, 1].map(|length| Param::from_tensor(Tensor::<1>::zeros([length], &device)));
        for piece in 1..=11 {
            let mut incoming = Incoming::default();
            incoming.expect(&matrix);
            incoming.expect_gradient(&vector);
            incoming.expect_gradient(&without);
            let numbers = [1.0, 2.0, 3.0, 4.0, 2.0, 5.0, 6.0, 7.0, 0.0, 8.0];
            numbers.chunks(piece).for_each(|piece| incoming.take(piece));
            assert!(incoming.is_complete());
            let complete = incoming.into_complete();
            let found: Vec<f32> = complete.get::<2>(matrix.id).unwrap().try_into_vec_as().unwrap();
            assert_eq!(found, [1.0, 2.0, 3.0, 4.0]);
            let found: Vec<f32> = complete.get::<1>(vector.id).unwrap().try_into_vec_as().unwrap();
            assert_eq!(found, [5.0, 6.0, 7.0]);
            assert!(complete.get::<1>(without.id).is_none());
        }
    }
}
