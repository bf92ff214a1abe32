//! Whole stacks against code that was written from the papers, in double precision (`fixtures/stacks`): positions with grouped
//! heads, padding, windows and a memory; norms in every place; sparse patterns; scaled rotary positions; experts. Every file names
//! the configurations, so that what is built here is what was computed there.

use burn::tensor::Tensor;
use firelight::kernels::Difference;
use firelight::nn::{AuxiliaryLosses, EncoderOutput, Pass, SequenceInput, Transformer, TransformerConfig};

use super::described::{assert_felt, config, paths};
use crate::support::device;
use crate::support::golden::Golden;

/// The share of the gradient of `x` that every branch has: see `fixtures/SOURCE.md`.
const LEAST_SHARE: f64 = 0.1;

#[test]
fn position_schemes_agree_with_grouped_heads_padding_windows_and_a_memory() {
    assert_eq!(agree("stack_positions"), Compared { cases: 14, parameters: 385, memories: 3 });
}

#[test]
fn norms_agree_in_every_place() {
    assert_eq!(agree("stack_norms"), Compared { cases: 11, parameters: 314, memories: 3 });
}

#[test]
fn sparse_patterns_agree() {
    assert_eq!(agree("stack_patterns"), Compared { cases: 11, parameters: 241, memories: 0 });
}

#[test]
fn scaled_rotary_positions_agree() {
    assert_eq!(agree("stack_rotary"), Compared { cases: 7, parameters: 119, memories: 0 });
}

#[test]
fn stacks_of_experts_agree() {
    assert_eq!(agree("stack_experts"), Compared { cases: 6, parameters: 193, memories: 0 });
}

#[test]
fn layers_that_differ_agree() {
    assert_eq!(agree("stack_layers"), Compared { cases: 5, parameters: 200, memories: 1 });
}

#[test]
fn published_families_agree_with_transformers() {
    // Llama, Qwen 3, OLMo 2, Gemma 3, SmolLM 3, GPT-NeoX, ModernBERT, Llama with padding, GLM 4.5, ALBERT.
    assert_eq!(parameters_of("families"), [19, 12, 23, 40, 19, 34, 22, 19, 45, 32]);
}

#[test]
fn rotary_positions_of_published_families_agree_with_transformers() {
    // Llama with YaRN and, within and beyond the original length, dynamic scaling; Phi-3 with LongRoPE, the same.
    // Qwen2-VL, Qwen3-VL, Pixtral, DINOv3.
    assert_eq!(parameters_of("rotary_families"), [10, 10, 10, 8, 8, 13, 12, 10, 20]);
}

/// How many parameters of each case were compared.
fn parameters_of(name: &str) -> Vec<usize> {
    let golden = Golden::load(name);
    let compared = golden.cases().map(|golden| {
        let (stack, _) = compare(&golden);
        assert_felt(&golden, &paths(&stack));
        paths(&stack).len()
    });
    compared.collect()
}

#[test]
fn latent_attention_agrees_with_transformers() {
    // Of each layer two norms, three of the feed-forward network and seven of the attention, five without a latent of queries.
    assert_eq!(parameters_of("deepseek"), [2 * 12 + 1, 10 + 1]);
}

#[test]
fn differential_attention_agrees_with_transformers() {
    // Of each of two layers two norms, three of the feed-forward network, four matrices and four vectors of lambda.
    assert_eq!(parameters_of("diff_llama"), [2 * 13 + 1; 2]);
}

#[test]
fn gated_delta_beside_gated_attention_agrees_with_transformers() {
    let golden = Golden::load("qwen3_next");
    let (stack, _) = compare(&golden);
    assert_felt(&golden, &paths(&stack));
    // Of each layer two norms and three of the feed-forward network; nine of a gated delta rule, seven of the attention.
    assert_eq!(paths(&stack).len(), 14 + 12 + 1);
}

#[test]
fn scaled_residual_branches_agree_with_transformers() {
    let golden = Golden::load("granite");
    let (stack, _) = compare(&golden);
    assert_felt(&golden, &paths(&stack));
    assert_eq!(paths(&stack).len(), 2 + 4 + 3 + 1);
}

#[test]
fn two_position_schemes_at_once_agree_with_transformers() {
    let golden = Golden::load("mpnet");
    let (stack, _) = compare(&golden);
    assert_felt(&golden, &paths(&stack));
    // Both tables, the norm of the embeddings, and of each layer two norms, four projections and two of the feed-forward network.
    assert_eq!(paths(&stack).len(), 2 + 2 + 2 * (4 + 8 + 4));
}

#[test]
fn gpt_oss_agrees_with_transformers() {
    let golden = Golden::load("gpt_oss");
    let (stack, _) = compare(&golden);
    assert_felt(&golden, &paths(&stack));
    // Of each of two layers: two norms, eight of projections, the sinks, two of the router, six of each of three experts.
    assert_eq!(paths(&stack).len(), 2 * (2 + 8 + 1 + 2 + 3 * 6) + 1);
}

#[test]
fn patterns_see_the_keys_of_their_papers() {
    let mut pairs = 0;
    for golden in Golden::load("stack_patterns").cases() {
        let pattern = config::<TransformerConfig>(&golden, "config").first().pattern;
        for (pair, seen) in golden.data("seen").iter::<u8>().enumerate() {
            assert_eq!(!pattern.rule().hidden(0, pair / 24, pair % 24), seen == 1, "{pattern:?}: pair {pair}");
            pairs += 1;
        }
    }
    assert_eq!(pairs, 11 * 24 * 24);
}

/// How much was compared.
#[derive(Debug, Default, PartialEq)]
struct Compared {
    cases: usize,
    parameters: usize,
    memories: usize,
}

/// Outputs, losses, and the gradients of inputs and all parameters.
fn agree(name: &str) -> Compared {
    Golden::load(name).cases().fold(Compared::default(), |compared, golden| {
        let (parameters, has_memory) = check(&golden);
        Compared {
            cases: compared.cases + 1,
            parameters: compared.parameters + parameters,
            memories: compared.memories + usize::from(has_memory),
        }
    })
}

/// The number of parameters compared, and whether there is a memory.
fn check(golden: &Golden) -> (usize, bool) {
    let (stack, has_memory) = compare(golden);
    (every_part_counts(golden, &stack), has_memory)
}

/// The stack whose output and gradients were compared, and whether there is a memory.
fn compare(golden: &Golden) -> (Transformer, bool) {
    let config: TransformerConfig = config(golden, "config");
    let x = golden.input::<3>("x", &device());
    let memory = config.has_cross_attention().then(|| golden.input::<3>("memory", &device()));
    let stack = golden.fill(config.init(&x.device()));
    let mut losses = AuxiliaryLosses::default();
    let input = input(golden, &x, memory.as_ref());
    let balanced = golden.has("balance");
    let mut pass = if balanced { Pass::default().with_losses(&mut losses) } else { Pass::default() };
    let output = stack.forward(x.clone(), &input, &mut pass);
    golden.check("output", without_padding(output.clone(), &input));

    let mut loss = (output * golden.floats::<3>("cotangent", &x.device())).sum();
    if balanced {
        let balance = losses.load_balance().expect("experts");
        golden.check("load_balance", balance.clone());
        loss = loss + balance * golden.number("balance");
    }
    let gradients = loss.backward();
    golden.check_gradient("x", &x, &gradients);
    if let Some(memory) = &memory {
        golden.check_gradient("memory", memory, &gradients);
    }
    golden.check_gradients(&stack, &gradients);
    (stack, memory.is_some())
}

fn input(golden: &Golden, x: &Tensor<3>, memory: Option<&Tensor<3>>) -> SequenceInput {
    let flags = |key: &str| golden.has(key).then(|| golden.flags::<2>(key, &x.device()));
    let memory = memory.map(|hidden| EncoderOutput::new(hidden.clone()).with_padding(flags("memory_padding")));
    let coordinates = golden.has("coordinates").then(|| golden.floats::<3>("coordinates", &x.device()));
    SequenceInput { padding: flags("padding"), coordinates, encoder_output: memory, ..SequenceInput::default() }
}

/// Zeros at padding, where nobody reads.
fn without_padding(output: Tensor<3>, input: &SequenceInput) -> Tensor<3> {
    match &input.padding {
        Some(padding) => {
            let padding = padding.clone().unsqueeze_dim::<3>(2).expand(output.dims());
            output.mask_fill(padding, 0.0)
        }
        None => output,
    }
}

/// The comparison sees a backward pass of zero, of a whole branch or of one parameter. The number of parameters.
fn every_part_counts(golden: &Golden, stack: &Transformer) -> usize {
    let has_memory = stack.blocks.iter().any(|block| block.cross_attention.is_some());
    let branches = [Some("attention"), has_memory.then_some("cross_attention"), Some("feed_forward")];
    for branch in branches.into_iter().flatten() {
        let dead = golden.data(&format!("dead.{branch}"));
        let share = Difference::between(&dead, &golden.data("grad.x")).relative(0.0);
        assert!(share >= LEAST_SHARE, "{branch} is {share:.3} of the gradient");
    }
    let paths = paths(stack);
    assert_felt(golden, &paths);
    paths.len()
}
