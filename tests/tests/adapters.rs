//! Fine-tuning with low-rank adapters, from a plain model's file to a merged one: through the trainer with groups of
//! parameters, the adapters in a file of their own. The test of what no crate sees alone.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};
use firelight::kernels::{assert_close, assert_same_bits};
use firelight::language::{LanguageModel, LanguageModelConfig, LmBatch, LmTask};
use firelight::nn::{AdapterConfig, LossConfig, ParamBuilder, merge_adapters};
use firelight::storage::{load_adapters, load_base, load_weights, save_adapters, save_base, save_weights};
use firelight::training::{OptimizerConfig, ParameterGroup, Recompute, ScheduleConfig, Trainer, freeze};

use crate::support::{device, is_gpu};

/// Parameters by path.
#[derive(Default)]
struct Values {
    found: Vec<(String, TensorData)>,
    path: Vec<String>,
}

impl ModuleVisitor for Values {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push((self.path.join("."), param.val().into_data()));
    }
}

fn values(model: &LanguageModel) -> Vec<(String, TensorData)> {
    let mut values = Values::default();
    model.visit(&mut values);
    values.found
}

fn config() -> LanguageModelConfig {
    LanguageModelConfig::new(7, 8, 2, 2).with_max_seq_len(8)
}

fn adapters() -> AdapterConfig {
    AdapterConfig::new(2).with_alpha(4.0).with_targets(["query", "value", "feed_forward.*"])
}

/// The model of a seed, with adapters.
fn adapted(seed: u64, device: &Device) -> LanguageModel {
    let params = ParamBuilder::new(device, seed).with_adapters(&adapters());
    let model = config().init_with(&params);
    params.check_adapters().expect("every target is a layer");
    model
}

fn batch(device: &Device) -> LmBatch {
    LmBatch {
        inputs: Tensor::from_ints([[1, 2, 3, 4, 5], [0, 6, 0, 6, 0]], device),
        targets: Tensor::from_ints([[2, 3, 4, 5, 6], [6, 0, 6, 0, 1]], device),
        padding: None,
        documents: None,
    }
}

/// Trains the adapters alone for some steps; gives the last loss, too.
fn tuned(model: LanguageModel, steps: usize, recompute: Recompute) -> (LanguageModel, f64) {
    let patterns = ["*", "!*.adapter"].map(str::to_owned);
    let model = freeze(model, &patterns).expect("there are adapters");
    let group = |parameters: &str, factor: f64| ParameterGroup {
        parameters: parameters.into(),
        learning_rate_factor: Some(factor),
        ..ParameterGroup::default()
    };
    let groups = vec![group("*.adapter.up", 2.0), group("*.query.weight", 3.0)];
    let optimizer = OptimizerConfig { learning_rate: 2e-2, groups, ..OptimizerConfig::default() };
    let schedule = ScheduleConfig { warmup_steps: 1, ..ScheduleConfig::default() };
    let task = LmTask::new(model, LossConfig::default()).with_recompute(recompute);
    let mut trainer = Trainer::new(task, optimizer, schedule, 1);
    let losses: Vec<f64> =
        (0..steps).map(|_| trainer.step(batch(&device().autodiff())).expect("a step").loss).collect();
    (trainer.model().model.clone(), losses[steps - 1])
}

#[test]
fn adapters_are_trained_saved_and_merged_and_nothing_else_changes() {
    let home = tempfile::tempdir().expect("a folder");
    let [base, alone, merged] = ["base", "adapters", "merged"].map(|name| home.path().join(name));
    save_weights(&config().init_with(&ParamBuilder::new(&device(), 1)), &base).expect("written");

    let mut model = adapted(9, &device().autodiff());
    load_base(&mut model, &base).expect("a model without adapters");
    let before = values(&model);
    let (_, first) = tuned(model.clone(), 1, Recompute::None);
    let (model, last) = tuned(model, 40, Recompute::None);
    assert!(last < 0.97 * first, "{first} became {last}");
    let after = values(&model);
    assert_eq!(before.len(), after.len());
    for ((path, before), (_, after)) in before.iter().zip(after) {
        assert_eq!(*before == after, !path.contains(".adapter."), "{path}");
    }

    save_adapters(&model, &alone).expect("written");
    let model = model.valid();
    save_base(&merge_adapters(model.clone(), &adapters()), &merged).expect("written");
    let logits = |model: &LanguageModel| model.forward(batch(&device()).inputs).into_data();

    let mut again = adapted(3, &device());
    load_base(&mut again, &base).expect("the same base");
    load_adapters(&mut again, &alone).expect("the adapters");
    assert_same_bits(&logits(&again), &logits(&model));
    let mut plain = config().init_with(&ParamBuilder::new(&device(), 5));
    load_weights(&mut plain, &merged).expect("a model without adapters");
    assert_close(&logits(&plain), &logits(&model), 1e-5);
}

#[test]
fn recomputed_blocks_train_their_adapters_alike() {
    let tracked = device().autodiff();
    if let Err(refusal) = Recompute::Blocks.check(&tracked) {
        assert!(is_gpu(), "{refusal}");
        return;
    }
    let [kept, recomputed] = [Recompute::None, Recompute::Blocks].map(|recompute| {
        let (model, _) = tuned(adapted(9, &tracked), 3, recompute);
        values(&model)
    });
    assert_eq!(kept.len(), recomputed.len());
    for ((path, kept), (_, recomputed)) in kept.iter().zip(&recomputed) {
        // A GPU takes the sums of a gradient in another order.
        match is_gpu() && path.contains(".adapter.") {
            true => assert_close(recomputed, kept, 1e-5),
            false => assert_same_bits(recomputed, kept),
        }
    }
}
