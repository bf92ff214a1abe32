//! The loss of a language model on an [`LmBatch`]. Burn's `Learner` trains the model as an [`LmTask`].

use firelight_core::{LossConfig, Pass, SequenceInput, TokenLoss};
use firelight_tasks::{plain_pass, token_report, token_step, train_step};
use firelight_training::{Objective, Switches, TrainLoss, TrainingModule, ValidOutput};

use crate::data::LmBatch;
use crate::model::LanguageModel;

/// A language model with its loss.
pub type LmTask = TrainingModule<LanguageModel>;

fn compute_loss(model: &LanguageModel, batch: LmBatch, loss: LossConfig, pass: &mut Pass) -> TokenLoss {
    let input = SequenceInput { documents: batch.documents, ..SequenceInput::default() };
    let hidden = model.hidden(batch.inputs, &input, pass);
    loss.init().forward_head(model.lazy_logits(hidden), batch.targets, batch.padding)
}

impl Objective for LanguageModel {
    type Batch = LmBatch;
    type Loss = LossConfig;
    type Answers = ();

    /// What is minimised is the loss of the tokens and, with experts, their load balance.
    fn train_loss(&self, batch: LmBatch, loss: &LossConfig, switches: Switches) -> TrainLoss {
        train_step(switches, loss.load_balance, |[pass]| token_step(compute_loss(self, batch, *loss, pass), loss))
    }

    fn valid_step(&self, batch: LmBatch, switches: Switches) -> ValidOutput<()> {
        token_report(compute_loss(self, batch, LossConfig::default(), &mut plain_pass(switches))).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::LmBatcher;
    use crate::model::LanguageModelConfig;
    use burn::data::dataloader::batcher::Batcher;
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::tensor::{Device, Tensor, TensorData};
    use burn::train::{InferenceStep, TrainStep};
    use firelight_core::{AttentionPattern, AuxiliaryLosses, ParamBuilder, PositionConfig};
    use firelight_data::{PackedRow, Window};
    use firelight_kernels::{Difference, assert_close};

    #[test]
    fn training_reports_what_evaluation_does_whatever_it_minimises() {
        let device = Device::default().autodiff();
        let model = LanguageModelConfig::new(7, 8, 2, 1).init_with(&ParamBuilder::new(&device, 0));
        let task = LmTask::new(model, LossConfig::default().with_label_smoothing(0.3).with_z_loss(0.1));
        let batch = |device: &Device| LmBatch {
            inputs: Tensor::from_ints([[1, 2, 3]], device),
            targets: Tensor::from_ints([[2, 3, 6]], device),
            padding: None,
            documents: None,
        };
        let item = TrainStep::step(&task, batch(&device)).item;
        let training_loss = item.training_total.clone().expect("smoothed").into_scalar::<f64>() / 3.0;
        let trained = item.mean().into_scalar::<f64>();
        assert!(training_loss > trained + 0.1, "z-loss alone is 0.1 ln² 7 = 0.38 at first: {training_loss}, {trained}");
        let evaluated = InferenceStep::step(&task.valid(), batch(&device.inner())).losses.mean().into_scalar::<f64>();
        assert!((trained - evaluated).abs() < 1e-6, "{trained} and {evaluated}");
    }

    /// Loss and gradients, by path, of a training step.
    fn trained(task: &LmTask, batch: LmBatch) -> (f64, Vec<(String, Option<TensorData>)>) {
        let mut losses = AuxiliaryLosses::default();
        let mut pass = Pass::default().with_losses(&mut losses);
        let loss = compute_loss(&task.model, batch, LossConfig::default(), &mut pass).mean();
        let mut gradients = Gradients { of: loss.clone().backward(), path: Vec::new(), found: Vec::new() };
        task.visit(&mut gradients);
        (loss.into_scalar::<f64>(), gradients.found)
    }

    struct Gradients {
        of: burn::tensor::Gradients,
        path: Vec<String>,
        found: Vec<(String, Option<TensorData>)>,
    }

    impl ModuleVisitor for Gradients {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_string());
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.found.push((self.path.join("."), param.val().grad(&self.of).map(Tensor::into_data)));
        }
    }

    #[test]
    fn packed_documents_train_as_each_in_a_row_of_its_own() {
        let device = Device::default().autodiff();
        let window = |ids: &[u32]| Window { inputs: ids[..ids.len() - 1].to_vec(), targets: ids[1..].to_vec() };
        let documents = [&[1, 2, 3, 4, 5][..], &[6, 5, 4], &[3, 3], &[0, 6, 1, 5, 2, 4, 3]].map(window);
        let [a, b, c, d] = documents.clone();
        let rows = [vec![d], vec![a, b, c]].map(|windows| PackedRow { windows });
        for (position, pattern) in [
            (PositionConfig::Learned, AttentionPattern::Causal),
            (PositionConfig::rotary(), AttentionPattern::SlidingWindow { left: 2, right: 0 }),
            (PositionConfig::Alibi, AttentionPattern::Causal),
        ] {
            let config = LanguageModelConfig::new(7, 8, 2, 2)
                .with_max_seq_len(8)
                .with_transformer(|stack| stack.with_position(position.clone()).with_patterns(vec![pattern]));
            let task = LmTask::new(config.init_with(&ParamBuilder::new(&device, 0)), LossConfig::default());
            let packed: LmBatch = LmBatcher.batch(rows.to_vec(), &device);
            assert_eq!((packed.inputs.dims(), packed.padding.is_some()), ([2, 7], true));
            let (expected, gradients) = trained(&task, LmBatcher.batch(documents.to_vec(), &device));
            let (found, packed_gradients) = trained(&task, packed.clone());
            assert_close(&[found], &[expected], 1e-5);
            let paths = |all: &[(String, _)]| all.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
            assert_eq!(paths(&gradients), paths(&packed_gradients));
            assert!(gradients.len() > 20, "of every parameter of two blocks: {}", gradients.len());
            for ((path, expected), (_, found)) in gradients.iter().zip(&packed_gradients) {
                let difference = Difference::between(found, expected);
                // The gradient of a key's bias is nothing but rounding: softmax does not see it.
                assert!(difference.relative(1e-3) < 1e-3, "{position:?}: the gradient of {path}: {difference:?}");
            }
            // Documents that see each other change the loss.
            let (mixed, _) = trained(&task, LmBatch { documents: None, ..packed });
            assert!((mixed - expected).abs() > 1e-4, "{position:?}: {mixed} and {expected}");
        }
    }
}

#[cfg(test)]
mod precision_and_memory {
    use super::*;
    use crate::model::LanguageModelConfig;
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::tensor::{Device, Tensor, TensorData};
    use firelight_core::{ParamBuilder, Trace};
    use firelight_kernels::{MatmulPrecision, assert_close, assert_same_bits};
    use firelight_tasks::train_pass;
    use firelight_training::{OptimizerConfig, Precision, Recompute, ScheduleConfig, Trainer};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Values(Vec<TensorData>);

    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.val().into_data());
        }
    }

    fn device(recompute: Recompute) -> Device {
        match recompute {
            Recompute::Burn => Device::flex().autodiff().gradient_checkpointing(),
            _ => Device::flex().autodiff(),
        }
    }

    /// Tests are built with the kernels of the CPU, so that all of them are there.
    const EVERY: [Recompute; 3] = [Recompute::None, Recompute::Blocks, Recompute::Burn];

    fn trainer(tied: bool, precision: Precision, recompute: Recompute) -> Trainer<LmTask> {
        let config = LanguageModelConfig::new(7, 8, 2, 3).with_max_seq_len(8).with_tied(tied);
        let task = LmTask::new(config.init_with(&ParamBuilder::new(&device(recompute), 0)), LossConfig::default());
        let task = task.with_precision(precision).with_recompute(recompute);
        let (optimizer, scale) = (OptimizerConfig { learning_rate: 1e-2, ..Default::default() }, task.loss_scale());
        let schedule = ScheduleConfig { warmup_steps: 2, ..ScheduleConfig::default() };
        Trainer::new(task, optimizer, schedule, 1).with_loss_scale(scale)
    }

    fn batch(recompute: Recompute) -> LmBatch {
        let tokens = |tokens: [[i32; 5]; 2]| Tensor::from_ints(tokens, &device(recompute));
        let (inputs, targets) = (tokens([[1, 2, 3, 4, 5], [0; 5]]), tokens([[2, 3, 4, 5, 6], [1; 5]]));
        LmBatch { inputs, targets, padding: None, documents: None }
    }

    /// The weights after three steps.
    fn trained(tied: bool, recompute: Recompute) -> Vec<TensorData> {
        let mut trainer = trainer(tied, Precision::F32, recompute);
        for _ in 0..3 {
            trainer.step(batch(recompute)).expect("a step");
        }
        let mut values = Values(Vec::new());
        trainer.model().visit(&mut values);
        values.0
    }

    #[test]
    fn a_model_whose_activations_are_recomputed_learns_the_same_to_the_bit_tied_or_not() {
        for tied in [true, false] {
            let plain = trained(tied, Recompute::None);
            assert!(plain.len() > 30, "all parameters of three blocks: {}", plain.len());
            for recompute in EVERY {
                let found = trained(tied, recompute);
                assert_eq!(found.len(), plain.len(), "{recompute}");
                found.iter().zip(&plain).for_each(|(found, expected)| assert_same_bits(found, expected));
            }
        }
    }

    #[test]
    fn a_step_recomputes_the_blocks_where_it_is_to() {
        let device = Device::flex().autodiff();
        let model = LanguageModelConfig::new(7, 8, 2, 1).with_max_seq_len(8).init_with(&ParamBuilder::new(&device, 0));
        // A pass that recomputes its blocks refuses a trace, on every device; one that does not fills it.
        let traced = |recompute_blocks: bool| {
            let mut trace = Trace::default();
            let mut pass = train_pass(Switches { recompute_blocks, dtype: None }).with_trace(&mut trace);
            let tokens = Tensor::from_ints([[1, 2, 3]], &device);
            catch_unwind(AssertUnwindSafe(|| model.hidden(tokens, &SequenceInput::default(), &mut pass)))
                .map(|_| trace.layers.len())
        };
        assert_eq!(traced(false).expect("a plain pass is traced"), 1);
        let panic = traced(true).expect_err("the blocks were recomputed");
        let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(text.starts_with("a pass that recomputes its blocks"), "{text}");
    }

    #[test]
    fn a_model_learns_in_half_precision_what_it_learns_in_single_precision() {
        let losses = |precision: Precision, recompute: Recompute| {
            let mut trainer = trainer(true, precision, recompute);
            let losses = (0..30).map(|_| trainer.step(batch(recompute)).expect("a step").loss).collect::<Vec<_>>();
            let mut values = Values(Vec::new());
            trainer.model().visit(&mut values);
            assert!(values.0.iter().all(|weight| weight.dtype() == burn::tensor::DType::F32));
            losses
        };
        let single = losses(Precision::F32, Recompute::None);
        assert!(single[29] < 0.5 * single[0], "{single:?}");
        for precision in [Precision::Bf16, Precision::F16] {
            for recompute in EVERY {
                assert_close(&losses(precision, recompute), &single, 0.03);
            }
        }
    }

    #[test]
    fn a_model_learns_by_three_products_what_it_learns_by_those_of_single_precision() {
        let losses = |precision: Precision, recompute: Recompute| {
            let mut trainer = trainer(false, precision, recompute);
            (0..30).map(|_| trainer.step(batch(recompute)).expect("a step").loss).collect::<Vec<_>>()
        };
        let (single, three) = (losses(Precision::F32, Recompute::None), losses(Precision::Bf16x3, Recompute::None));
        let are_formed = MatmulPrecision::Bf16x3.run_on(&device(Recompute::None));
        println!("three products: {are_formed}");
        assert_eq!(three != single, are_formed, "{three:?} {single:?}");
        assert_close(&three, &single, 0.01);
        // The blocks are computed again by the products of the first time.
        assert_same_bits(&losses(Precision::Bf16x3, Recompute::Blocks), &three);
    }

    #[test]
    fn a_step_whose_gradients_overflow_is_passed_over_and_the_next_one_taken() {
        let mut trainer = trainer(true, Precision::F16, Recompute::None);
        let batch = || batch(Recompute::None);
        let weights = |trainer: &Trainer<LmTask>| {
            let mut values = Values(Vec::new());
            trainer.model().visit(&mut values);
            values.0
        };
        let before = weights(&trainer);
        let scale = trainer.model().loss_scale().expect("f16 has a scale");
        // The gradient of a logit is at most the scale over ten tokens: 2^40 is far above what f16 holds.
        let factor = scale.scaled(Tensor::ones([1], &Device::flex())).into_scalar::<f32>();
        assert_eq!(factor, 65_536.0);
        scale.begin_at(2f64.powi(40));
        let report = trainer.step(batch()).expect("passed over");
        assert!(report.step == 1 && report.loss.is_finite() && !report.gradient_norm.is_finite());
        assert_eq!(weights(&trainer), before);
        let taken = (0..30).position(|_| trainer.step(batch()).expect("a step").gradient_norm.is_finite());
        assert!(taken.is_some_and(|steps| steps > 3), "{taken:?}");
        assert_ne!(weights(&trainer), before);
    }

    #[test]
    #[allow(deprecated)] // Burn's older CPU backend has no half precision.
    fn a_device_without_the_precision_is_refused_before_anything_is_written() {
        let home = tempfile::tempdir().expect("a folder");
        let out = home.path().join("run");
        for precision in ["bf16", "f16"] {
            let request = crate::RunRequest::new(&Device::ndarray()).with_out(&out);
            let request = request.with_override("training.precision", precision);
            let error = crate::Run::prepare(&request).expect_err("no such type").to_string();
            assert!(error.contains(&format!("cannot compute in {precision}")), "{error}");
            assert!(!out.exists());
        }
    }
}
