//! Attention in blocks of queries, as a GPU computes it, beside its reference.

use super::*;

#[test]
fn blocks_with_every_set_of_options_equal_the_reference() {
    for case in block_cases() {
        for options in case.some(SMALL.options(&case).iter()) {
            compare_blocks(&case, SMALL, 2, SMALL.by_head(&case), options);
        }
    }
}

#[test]
fn blocks_with_every_rule_equal_the_reference() {
    for case in block_cases() {
        for options in case.some(SMALL.rules(&case).iter()) {
            compare_blocks(&case, SMALL, 2, SMALL.by_head(&case), options);
        }
    }
}

#[test]
fn blocks_give_a_bias_of_every_breadth_its_gradient() {
    for case in block_cases() {
        for bits in case.some(0..16usize) {
            let whole = [SMALL.b, SMALL.h, SMALL.q, SMALL.k];
            let shape: [usize; 4] = std::array::from_fn(|d| if bits >> d & 1 == 1 { whole[d] } else { 1 });
            let [q, k, v] = SMALL.by_head(&case);
            let options = SMALL.options(&case).swap_remove(2 * bits + 1);
            compare_blocks(&case, SMALL, 2, [q, k, v, random(&case, shape, 3)], &options);
        }
    }
}

#[test]
fn blocks_of_one_token_of_few_keys_and_of_large_scores() {
    let one = Sizes { q: 1, k: 1, ..SMALL };
    let few_keys = Sizes { q: 9, k: 4, ..SMALL };
    for case in block_cases() {
        for (sizes, size) in [(one, 1.0), (Sizes { k: 33, ..one }, 1.0), (few_keys, 1.0), (few_keys, 30.0)] {
            let case = Case { size, ..case.clone() };
            let options = AttentionOptions::default().with_mask(causal_where_it_can_be(sizes));
            compare_blocks(&case, sizes, 2, sizes.by_head(&case), &options);
        }
    }
}

#[test]
fn blocks_of_sparse_rules_leave_out_the_keys_that_nobody_sees() {
    let long = Sizes { b: 1, h: 2, g: 1, q: 300, k: 310, e: 8, f: 5 };
    for case in block_cases() {
        let blocks = RandomBlocks { count: 2, size: 32, seed: 1 };
        let rules = [
            PairRule::window(20, 0),
            PairRule::window(20, 9),
            PairRule::local_global(10, 2),
            PairRule::big_bird(5, 1, blocks),
            PairRule::strided(20),
        ];
        for rule in case.some(rules.into_iter()) {
            let options = AttentionOptions::default().with_mask(AttentionMask::rule(rule));
            compare_blocks(&case, long, long.q, long.by_head(&case), &options);
        }
    }
}

#[test]
fn one_block_of_heads_side_by_side_equals_the_reference() {
    for case in block_cases() {
        let options = AttentionOptions::default().with_mask(AttentionMask::causal()).with_scale(Some(0.3));
        let turn = |x: Tensor<4>| x.swap_dims(1, 2);
        let fused = |[q, k, v]: [Tensor<4>; 3]| {
            let settings = extension::Settings::new(&options, &turn(q.clone()));
            turn(extension::attention([q, k, v].map(turn), &options, settings))
        };
        let slow = |[q, k, v]: [Tensor<4>; 3]| turn(slow(turn(q), turn(k), turn(v), &options));
        compare(&case, SMALL.by_token(&case), fused, slow);
    }
}
