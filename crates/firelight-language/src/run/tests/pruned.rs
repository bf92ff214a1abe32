//! Trainings that begin from a run whose stack is not the one that its recipe describes, because heads were taken out.

use firelight_core::inspect::prune_heads;
use firelight_storage::save_weights;

use super::*;
use crate::model::LanguageModelConfig;

const TWO_LAYERS: [(&str, &str); 4] =
    [("model.d_model", "8"), ("model.n_heads", "2"), ("model.n_layers", "2"), ("model.max_seq_len", "16")];

/// The heads of each layer.
fn heads(config: &LanguageModelConfig) -> Vec<usize> {
    config.transformer.layers.iter().map(|layer| layer.block.attention.n_heads).collect()
}

impl Home {
    /// A run without head 1 of its first layer, beside the recipe of the run that had it; and its name in a recipe.
    fn pruned(&self) -> String {
        Run::prepare(&self.request("base", &TWO_LAYERS)).unwrap().fit().unwrap();
        let base = ModelFolder::open(self.path("base")).unwrap();
        let mut config: LanguageModelConfig = base.read_config(crate::TASK).unwrap();
        let generator = TextGenerator::load_from(base.path(), &Checkpoint::Last, &Device::default()).unwrap();
        let mut model = generator.model().clone();
        let pruned = prune_heads(model.transformer, &config.transformer, &[vec![1], vec![]]).unwrap();
        (model.transformer, config.transformer) = pruned;
        ModelFolder::create_whole(self.path("pruned"), |folder| {
            base.hand_on(folder)?;
            save_weights(&model, folder.weights_path(&Checkpoint::Last))?;
            folder.write_config(crate::TASK, &config)
        })
        .unwrap();
        format!("{:?}", self.path("pruned").display().to_string())
    }

    fn trained(&self, request: &RunRequest) -> LanguageModelConfig {
        Run::prepare(request).unwrap().fit().unwrap();
        ModelFolder::open(request.out.as_ref().unwrap()).unwrap().read_config(crate::TASK).unwrap()
    }
}

#[test]
fn a_training_keeps_the_heads_of_each_layer_and_goes_on_to_the_byte() {
    let home = Home::new();
    let from = home.pruned();
    let changes = [("init.from", from.as_str()), ("schedule.steps", "3"), ("schedule.warmup_steps", "1")];
    let begun = Run::prepare(&home.request("whole", &changes)).unwrap();
    assert_eq!(heads(begun.config()), [1, 2]);
    let report = begun.init_report().unwrap();
    assert!(report.new.is_empty() && report.unused.is_empty(), "{report}");
    let tokens = Tensor::<2, Int>::from_ints([[1, 2, 3]], &Device::default());
    assert_eq!(numbers(begun.model().forward(tokens).into_data()), logits(&home.path("pruned")));
    begun.fit().unwrap();
    assert_ne!(logits(&home.path("whole")), logits(&home.path("pruned")));

    let parts = home.request("parts", &changes);
    assert_eq!(heads(&home.trained(&parts.clone().with_override("training.steps", 2))), [1, 2]);
    fs::remove_dir_all(home.path("pruned")).unwrap();
    assert_eq!(heads(&home.trained(&parts.with_existing(Existing::Resume))), [1, 2]);
    assert!(home.bytes("parts/model.safetensors") == home.bytes("whole/model.safetensors"));
}

#[test]
fn a_recipe_that_names_the_stack_of_before_is_refused_with_the_keys_that_differ() {
    let home = Home::new();
    let from = home.pruned();
    let changes = [&TWO_LAYERS[..], &[("init.from", from.as_str())]].concat();
    let error = Run::prepare(&home.request("run", &changes)).unwrap_err();
    assert!(error.is_user_error() && !home.path("run").exists(), "{error}");
    let text = error.to_string();
    assert!(text.contains("model.n_heads = 2, but 1 in the run"), "{text}");
    assert!(!text.contains("model.d_model") && !text.contains("model.n_layers"), "{text}");

    // Its layers differ, so that it has them one by one.
    let patterns = [("init.from", from.as_str()), ("model.patterns", "[\"full\"]")];
    let text = Run::prepare(&home.request("run", &patterns)).unwrap_err().to_string();
    assert!(text.contains("model.patterns says what layers attend to, as model.layers of the run `"), "{text}");
    assert!(text.contains("pruned"), "{text}");

    // The folder itself is no training that could go on.
    let resumed = RunRequest::new(&Device::default()).with_out(home.path("pruned")).with_existing(Existing::Resume);
    let error = Run::prepare(&resumed).unwrap_err().to_string();
    assert!(error.contains("`model` is not what the run began with"), "{error}");
}
