use super::*;
use crate::{OptimizerConfig, Threads, ThreadsOptions};
use burn::tensor::Device;
use burn_pack::Reader;
use proptest::prelude::*;
use std::sync::Arc;
use std::thread;

/// What each rank of a world returns.
fn on_ranks<R: Send>(world: usize, work: impl Fn(&Ranks) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let rank = |rank: Threads| scope.spawn(move || work(&Ranks::new(Arc::new(rank))));
        let ranks: Vec<_> = Threads::ranks(world, ThreadsOptions::default()).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[derive(Module, Debug)]
struct Parts {
    matrices: Vec<Param<Tensor<2>>>,
    vector: Param<Tensor<1>>,
    frozen: Param<Tensor<1>>,
}

/// Matrices of so many rows of three numbers, a vector of two, and one that is not trained; each has the number of its place times ten, plus
/// `more`.
fn parts(rows: &[usize], more: f32) -> Parts {
    let device = Device::default().autodiff();
    let number = |place: usize| 10.0 * place as f32 + more;
    let matrix = |(place, rows): (usize, &usize)| Tensor::<2>::full([*rows, 3], number(place), &device);
    let vector = |place| Param::from_tensor(Tensor::<1>::full([2], number(place), &device));
    Parts {
        matrices: rows.iter().enumerate().map(matrix).map(Param::from_tensor).collect(),
        vector: vector(rows.len()),
        frozen: vector(rows.len() + 1).no_grad(),
    }
}

/// All numbers of each parameter.
fn numbers(parts: &Parts) -> Vec<Vec<f32>> {
    let vectors = [&parts.vector, &parts.frozen].map(|vector| vector.val().try_into_vec_as().unwrap());
    let matrices = parts.matrices.iter().map(|matrix| matrix.val().try_into_vec_as().unwrap());
    matrices.chain(vectors).collect()
}

#[test]
fn the_largest_parameter_goes_first_to_the_rank_that_has_the_least() {
    assert_eq!(balanced(&[6, 5, 4, 3, 2, 1], 3), (vec![0, 1, 2, 2, 1, 0], vec![7, 7, 7]));
    assert_eq!(balanced(&[1, 1, 1], 2), (vec![0, 1, 0], vec![2, 1]));
    assert_eq!(balanced(&[5], 4), (vec![0], vec![5, 0, 0, 0]));
    assert_eq!(balanced(&[], 2), (vec![], vec![0, 0]));
}

proptest! {
    #[test]
    fn every_parameter_has_one_owner_and_no_rank_has_much_more_than_its_part(
        sizes in prop::collection::vec(0_usize..1000, 0..40), world in 1_usize..9,
    ) {
        let (owners, held) = balanced(&sizes, world);
        prop_assert_eq!((owners.len(), held.len()), (sizes.len(), world));
        let of_rank = |rank: usize| -> usize {
            sizes.iter().zip(&owners).filter(|(_, owner)| **owner == rank).map(|(size, _)| *size).sum()
        };
        prop_assert_eq!(&held, &(0..world).map(of_rank).collect::<Vec<usize>>());
        let (total, largest) = (sizes.iter().sum::<usize>(), sizes.iter().max().copied().unwrap_or(0));
        prop_assert_eq!(held.iter().sum::<usize>(), total);
        prop_assert!(held.iter().all(|held| held * world <= total + largest * world));
    }
}

#[test]
fn one_rank_shares_nothing() {
    assert!(Shards::of(&parts(&[1], 0.0), &Ranks::alone()).is_none());
}

#[test]
fn every_rank_gets_what_the_owners_have() {
    let rows = [3, 1, 2];
    for world in [2, 3, 8] {
        let (owners, _) = balanced(&[9, 3, 6, 2], world);
        for bucket in [1, 7, 16, 1000] {
            let found = on_ranks(world, |ranks| {
                let model = parts(&rows, ranks.0.rank() as f32);
                let shards = Shards::of(&model, ranks).unwrap();
                let model = ranks.all_updated_in(bucket, model, &shards).unwrap();
                assert!(model.matrices.iter().all(|matrix| matrix.val().is_require_grad()));
                assert!(model.vector.val().is_require_grad() && !model.frozen.val().is_require_grad());
                numbers(&model)
            });
            for (rank, found) in found.into_iter().enumerate() {
                let owned = owners.iter().zip([9, 3, 6, 2]).enumerate();
                let owned = owned.map(|(place, (owner, size))| vec![(10 * place + owner) as f32; size]);
                let expected: Vec<Vec<f32>> = owned.chain([vec![40.0 + rank as f32; 2]]).collect();
                assert_eq!(found, expected, "rank {rank} of {world} by buckets of {bucket}");
            }
        }
    }
}

#[test]
fn a_rank_keeps_the_moments_of_its_share_alone() {
    // Eight matrices of twelve numbers and a vector of two: two matrices for each of four ranks, the vector for the first one.
    let held = on_ranks(4, |ranks| {
        let model = parts(&[4; 8], 0.0);
        let shards = Shards::of(&model, ranks).unwrap();
        let mut gradients = GradientsParams::new();
        let device = Device::default();
        model.matrices.iter().for_each(|matrix| gradients.register(matrix.id, Tensor::<2>::ones([4, 3], &device)));
        gradients.register(model.vector.id, Tensor::<1>::ones([2], &device));
        let own = shards.own(&model, gradients);
        let mut optimizer = OptimizerConfig::default().init(&model);
        let updated = optimizer.step(0.1, model.clone(), own);
        let moved = numbers(&updated).iter().zip(numbers(&model)).filter(|(new, old)| *new != old).count();
        let reader = Reader::from_bytes(optimizer.into_bytes().unwrap()).unwrap();
        let bytes: usize = reader.into_tensors().unwrap().iter().map(burn_pack::Tensor::byte_len).sum();
        (moved, bytes / size_of::<f32>())
    });
    assert_eq!(held, [(3, 2 * 26), (2, 2 * 24), (2, 2 * 24), (2, 2 * 24)]);
}

#[test]
fn the_first_rank_gets_the_bytes_of_all() {
    let expected: [Vec<Vec<u8>>; 3] = [vec![vec![], vec![1; 5], vec![1; 10]], vec![], vec![]];
    for bucket in [1, 7, 1000] {
        let found = on_ranks(3, |ranks| ranks.at_first(bucket, &[1; 10][..5 * ranks.0.rank()]).unwrap());
        assert_eq!(found, expected, "by pieces of {bucket}");
    }
}

#[test]
fn a_rank_that_has_failed_ends_the_exchange() {
    let errors = on_ranks(2, |ranks| {
        let model = parts(&[3, 1], 0.0);
        let shards = Shards::of(&model, ranks).unwrap();
        if !ranks.is_first() {
            ranks.0.fail("the disk is full");
            return String::new();
        }
        ranks.all_updated_in(1, model, &shards).unwrap_err().to_string()
    });
    assert_eq!(errors[0], "rank 1 has failed: the disk is full");
}
