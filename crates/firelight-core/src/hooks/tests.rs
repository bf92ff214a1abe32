use super::*;
use crate::attention::{Attention, AttentionConfig, Projection};
use crate::block::NormPlacement;
use crate::context::{AttentionContext, EncoderOutput};
use crate::init::ParamBuilder;
use crate::mixer::MixerConfig;
use crate::pass::Trace;
use crate::transformer::{SequenceInput, Transformer, TransformerConfig};
use crate::vision::VisionTransformerConfig;
use crate::weight::Weight;
use crate::{AttentionMechanism, GatedDeltaConfig, LatentConfig};
use burn::module::Param;
use burn::tensor::{Device, Distribution};
use firelight_kernels::{assert_close, assert_same_bits, is_gpu};

fn random(shape: [usize; 3], device: &Device) -> Tensor<3> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn stack(config: TransformerConfig) -> Transformer {
    config.with_max_seq_len(8).init_with(&ParamBuilder::new(&Device::default(), 0))
}

fn small() -> TransformerConfig {
    TransformerConfig::new(8, 2, 2)
}

fn run(model: &Transformer, x: &Tensor<3>, pass: &mut Pass) -> Tensor<3> {
    model.forward(x.clone(), &SequenceInput::default(), pass)
}

/// One head for each channel, in which every token sees all alike: `W_Q = 0`, `W_V = W_O = 1`.
fn mean_of_channels() -> Attention {
    let device = Device::default();
    let config = AttentionConfig::new(2, 2).with_bias(false);
    let mut layer = config.init_with(&ParamBuilder::new(&device, 0));
    let matrix = |number: f32| Weight::of_map(Param::from_tensor(Tensor::<2>::eye(2, &device) * number));
    let Projection::Separate(parts) = &mut layer.projection else { panic!("three matrices") };
    (parts.query.weight, parts.value.weight) = (matrix(0.0), matrix(1.0));
    layer.output.weight = matrix(1.0);
    layer
}

/// What that attention gives of two tokens, [2, 4] and [6, 0], under hooks.
fn hooked(mut hooks: Hooks) -> Tensor<3> {
    let x = Tensor::<3>::from_floats([[[2.0, 4.0], [6.0, 0.0]]], &Device::default());
    let forward = |pass: &mut Pass| {
        let context = AttentionContext::default();
        mean_of_channels().forward(x.clone(), &context, &mut pass.layer(0))
    };
    hooks.run(forward).expect("hooks that fit").0
}

#[test]
fn heads_and_weights_are_switched_off_and_replaced_as_by_hand() {
    assert_close(&hooked(Hooks::new()), &[4.0, 2.0, 4.0, 2.0], 1e-6);
    let ablated = |by, slice| hooked(Hooks::new().ablate("blocks.0.attention.heads", by, slice));
    assert_close(&ablated(Ablation::Zero, ActivationSlice::heads([1])), &[4.0, 0.0, 4.0, 0.0], 1e-6);
    assert_close(&ablated(Ablation::Zero, ActivationSlice::heads([0]).at_positions([1])), &[4.0, 2.0, 0.0, 2.0], 1e-6);
    // Of equal tokens the mean is each of them.
    assert_close(&ablated(Ablation::Mean, ActivationSlice::all()), &[4.0, 2.0, 4.0, 2.0], 1e-6);

    // The first token sees itself alone, the second one the first: of head 1, then of both.
    let weights = Tensor::<4>::from_floats([[[[1.0, 0.0], [1.0, 0.0]]]], &Device::default());
    let patched = |slice| hooked(Hooks::new().patch("blocks.0.attention.weights", weights.clone(), slice));
    assert_close(&patched(ActivationSlice::heads([1])), &[4.0, 4.0, 4.0, 4.0], 1e-6);
    assert_close(&patched(ActivationSlice::all()), &[2.0, 4.0, 2.0, 4.0], 1e-6);
    let edited = hooked(Hooks::new().edit("blocks.0.*.weights", |weights: Tensor<4>| weights * 0.5));
    assert_close(&edited, &[2.0, 1.0, 2.0, 1.0], 1e-6);
}

#[test]
fn queries_keys_and_values_are_read_and_changed_as_by_hand() {
    let device = Device::default();
    let x = Tensor::<3>::from_floats([[[2.0, 4.0], [6.0, 0.0]]], &device);
    let mut layer = mean_of_channels();
    let Projection::Separate(parts) = &mut layer.projection else { panic!("three matrices") };
    parts.query.weight = Weight::of_map(Param::from_tensor(Tensor::<2>::eye(2, &device) * 0.5));
    let run = |mut hooks: Hooks| {
        let forward = |pass: &mut Pass| layer.forward(x.clone(), &AttentionContext::default(), &mut pass.layer(0));
        hooks.run(forward).expect("hooks that fit")
    };
    let (_, found) = run(Hooks::new().record("blocks.0.attention.query").record("blocks.0.attention.value"));
    let read = |name: &str| found.get::<4>(&format!("blocks.0.attention.{name}")).expect("recorded");
    assert_close(&read("query"), &[1.0, 3.0, 2.0, 0.0], 1e-6); // Head 0 of both tokens, then head 1.
    assert_close(&read("value"), &[2.0, 6.0, 4.0, 0.0], 1e-6);
    // Queries of zeros see all alike; values of zeros are nothing to see.
    let off = |name: &str| {
        run(Hooks::new().ablate(format!("blocks.0.attention.{name}"), Ablation::Zero, ActivationSlice::all())).0
    };
    assert_close(&off("query"), &[4.0, 2.0, 4.0, 2.0], 1e-6);
    assert_close(&off("value"), &[0.0; 4], 0.0);
}

#[test]
fn a_pass_without_hooks_is_the_same_to_the_bit() {
    let (model, x) = (stack(small()), random([2, 5, 8], &Device::default()));
    let plain = run(&model, &x, &mut Pass::default());
    let (hooked, found) = Hooks::new().run(|pass| run(&model, &x, pass)).expect("nothing that could fail");
    assert_same_bits(&hooked.into_data(), &plain.into_data());
    assert_eq!(found.paths().count(), 0);
}

/// Puts every activation of a pass back where it was.
fn put_back(forward: impl Fn(&mut Pass) -> Tensor<3>) {
    let paths = Hooks::paths_of(&forward);
    let mut hooks = paths.iter().fold(Hooks::new(), |hooks, path| hooks.record(path.clone()));
    let (plain, found) = hooks.run(&forward).expect("the paths of this pass");
    assert!(found.paths().eq(paths.iter()), "{found:?}");
    let put = |hooks: Hooks, path: &String| match found.shape(path).map(<[usize]>::len) {
        Some(4) => hooks.patch(path.clone(), found.get::<4>(path).expect("heads"), ActivationSlice::all()),
        _ => hooks.patch(path.clone(), found.get::<3>(path).expect("vectors"), ActivationSlice::all()),
    };
    let (patched, _) = paths.iter().fold(Hooks::new(), put).run(&forward).expect("the same shapes");
    match is_gpu(&plain.device()) {
        true => assert_close(&patched, &plain, 1e-5), // It may choose other kernels for the second pass.
        false => assert_same_bits(&patched, &plain),
    }
    // Without hooks attention is fused, which sums in another order.
    assert_close(&plain, &forward(&mut Pass::default()), 1e-5);
}

#[test]
fn what_a_pass_did_put_back_into_it_changes_nothing() {
    let x = random([2, 5, 8], &Device::default());
    let delta = MixerConfig::GatedDelta(GatedDeltaConfig::default());
    let configs = [
        small(),
        small().with_norm_placement(NormPlacement::Post),
        small().with_norm_placement(NormPlacement::Parallel),
        small().with_n_kv_heads(1).with_attention_gate(true).with_attention_sinks(true),
        small().with_attention_mechanism(AttentionMechanism::Linear),
        small().with_mixer(MixerConfig::Latent(LatentConfig::new(6, 2))).with_position(crate::PositionConfig::rotary()),
        small().with_mixer(delta).with_position(crate::PositionConfig::None),
    ];
    for config in configs {
        let model = stack(config);
        put_back(|pass| run(&model, &x, pass));
    }
}

#[test]
fn decoders_with_a_memory_and_images_have_paths_too() {
    let (device, model) = (Device::default(), stack(TransformerConfig::decoder(8, 2, 1)));
    let (x, memory) = (random([1, 3, 8], &device), EncoderOutput::new(random([1, 4, 8], &device)));
    let input = SequenceInput::default().with_encoder_output(memory);
    put_back(|pass| model.forward(x.clone(), &input, pass));
    let mut hooks = Hooks::new().record("blocks.0.cross_attention.weights");
    let (_, found) = hooks.run(|pass| model.forward(x.clone(), &input, pass)).expect("a cross-attention");
    assert_eq!(found.shape("blocks.0.cross_attention.weights"), Some(&[1, 2, 3, 4][..]));

    let config = VisionTransformerConfig::new(4, 2, 3, TransformerConfig::encoder(8, 2, 1));
    let model = config.init_with(&ParamBuilder::new(&device, 0));
    let images = Tensor::<4>::random([2, 3, 4, 4], Distribution::Default, &device);
    put_back(|pass| model.hidden(images.clone(), pass));
}

#[test]
fn a_trace_shows_what_hooks_have_made_of_the_weights() {
    let (model, x) = (stack(small()), random([1, 4, 8], &Device::default()));
    let mut trace = Trace::default();
    let mut hooks = Hooks::new().ablate("blocks.1.attention.weights", Ablation::Zero, ActivationSlice::heads([0]));
    run(&model, &x, &mut Pass::default().with_trace(&mut trace).with_hooks(&mut hooks));
    hooks.finish().expect("a path of this pass");
    let weights = trace.layers[1].attention.clone().expect("weights");
    assert_close(&weights.clone().narrow(1, 0, 1), &[0.0; 16], 0.0);
    assert_close(&weights.narrow(1, 1, 1).sum_dim(3), &[1.0; 4], 1e-5);
}

#[test]
fn a_stack_whose_parts_are_off_gives_its_embedding() {
    let (model, x) = (stack(small()), random([1, 4, 8], &Device::default()));
    let hooks = Hooks::new().ablate("blocks.*.*.output", Ablation::Zero, ActivationSlice::all());
    let mut hooks = hooks.record("embedding").record("blocks.1.output");
    let (_, found) = hooks.run(|pass| run(&model, &x, pass)).expect("paths of this pass");
    let [first, last] = ["embedding", "blocks.1.output"].map(|path| found.get::<3>(path).expect("recorded"));
    assert_close(&last, &first, 0.0);
}

#[test]
fn gradients_flow_through_patches_and_edits() {
    let device = Device::default().autodiff();
    let model = small().with_max_seq_len(8).init_with(&ParamBuilder::new(&device, 0));
    let x = random([1, 4, 8], &device).require_grad();
    let source = random([1, 4, 8], &device).require_grad();
    let gate = Tensor::<3>::ones([1, 1, 8], &device).require_grad();
    let edit = gate.clone();
    let mut hooks = Hooks::new()
        .patch("blocks.0.output", source.clone(), ActivationSlice::positions([1]))
        .edit("blocks.1.feed_forward.output", move |x: Tensor<3>| x * edit.clone());
    let cotangent = random([1, 4, 8], &device);
    let forward = |pass: &mut Pass| (run(&model, &x, pass) * cotangent).sum();
    let grads = hooks.run(forward).expect("hooks that fit").0.backward();
    let gradient = source.grad(&grads).expect("a gradient of the patch");
    let largest = |tokens: Tensor<3>| tokens.abs().max().into_scalar::<f32>();
    assert!(largest(gradient.clone().narrow(1, 1, 1)) > 1e-6);
    assert_eq!(largest(gradient.narrow(1, 2, 2)), 0.0, "the patch is of token 1 alone");
    assert!(largest(gate.grad(&grads).expect("a gradient of the gate")) > 1e-6);
    assert!(largest(x.grad(&grads).expect("a gradient of the input")) > 1e-6);
}

#[test]
fn a_hook_that_does_not_fit_is_told() {
    let (model, x) = (stack(small()), random([1, 4, 8], &Device::default()));
    let error = |mut hooks: Hooks| hooks.run(|pass| run(&model, &x, pass)).expect_err("no such hook").to_string();
    assert_eq!(
        error(Hooks::new().record("blocks.2.output")),
        "`blocks.2.output`: the pass had no such activation; the nearest are `blocks.0.output`, `blocks.1.output`, \
         `blocks.0.attention.output`"
    );
    let wide = Tensor::<3>::ones([1, 4, 9], &Device::default());
    assert_eq!(
        error(Hooks::new().patch("blocks.0.output", wide, ActivationSlice::all())),
        "`blocks.0.output`: the activation has the shape [1, 4, 8], and what replaces it [1, 4, 9]"
    );
    assert_eq!(
        error(Hooks::new().edit("final_norm", |x: Tensor<4>| x)),
        "`final_norm`: the activation has the shape [1, 4, 8], and the hook is for 4 dimensions"
    );
    assert_eq!(
        error(Hooks::new().edit("final_norm", |x: Tensor<3>| x.narrow(1, 0, 2))),
        "`final_norm`: the activation has the shape [1, 4, 8], and an edit made [1, 2, 8] of it"
    );
    let (_, found) = Hooks::new().record("embedding").run(|pass| run(&model, &x, pass)).expect("a path");
    let text = |error: HookError| error.to_string();
    assert_eq!(
        text(found.get::<3>("embeddings").expect_err("misspelt")),
        "`embeddings`: it was not recorded; the nearest that were are `embedding`"
    );
    assert_eq!(
        text(found.get::<2>("embedding").expect_err("three dimensions")),
        "`embedding`: it has the shape [1, 4, 8], not 2 dimensions"
    );
}

#[test]
fn hooks_run_again_and_again() {
    let (model, x) = (stack(small()), random([1, 4, 8], &Device::default()));
    let mut hooks = Hooks::new().record("embedding");
    for factor in [1.0, 2.0] {
        let (_, found) = hooks.run(|pass| run(&model, &(x.clone() * factor), pass)).expect("a path");
        assert_eq!(found.paths().collect::<Vec<_>>(), ["embedding"]);
    }
    let unused = hooks.finish().expect_err("no pass since");
    assert!(unused.to_string().contains("the pass had no activation at all"), "{unused}");
}
