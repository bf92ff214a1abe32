//! Adapters go out as PEFT reads them: the weight of the published model and the product of the files is the merged weight.

use std::fs;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Distribution, Tensor};
use firelight_core::{AdapterConfig, merge_adapters};
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_kernels::assert_close;
use firelight_pretrained::{PublishedModel, Structure, View, Weights, export};
use firelight_storage::{Checkpoint, Existing, ModelFolder, load_base, load_weights, save_base, save_weights};

/// Gives every parameter of an adapter other numbers.
struct Drawn {
    path: Vec<String>,
}

impl ModuleMapper for Drawn {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !self.path.iter().any(|part| part == "adapter") {
            return param;
        }
        param.map(|tensor| tensor.random_like(Distribution::Uniform(0.3, 1.0)))
    }
}

fn run_of(name: &str, home: &Path) -> ModelFolder {
    let published = home.join("published");
    fs::create_dir(&published).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/pretrained").join(name);
    for entry in fs::read_dir(fixture).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, published.join(path.file_name().unwrap())).unwrap();
    }
    Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap().save(published.join("tokenizer.json")).unwrap();
    PublishedModel::open(&published).unwrap().import(home.join("run")).unwrap()
}

/// A run with adapters of random numbers, and one with the same merged.
fn adapted(name: &str, home: &Path, adapters: &AdapterConfig) -> [PathBuf; 2] {
    let (run, device) = (run_of(name, home), Device::default());
    let Structure::Language(mut config) = Structure::of_run(&run).unwrap() else { panic!("no language model") };
    config.adapters = Some(adapters.clone());
    let mut model = config.init(&device);
    load_base(&mut model, run.weights_path(&Checkpoint::Last)).unwrap();
    let model = model.map(&mut Drawn { path: Vec::new() });
    let folder = |name: &str, config: &firelight_language::LanguageModelConfig| {
        let folder = ModelFolder::create(home.join(name), Existing::Refuse).unwrap();
        fs::copy(run.tokenizer(), folder.tokenizer()).unwrap();
        folder.write_config(firelight_language::TASK, config).unwrap();
        folder
    };
    let with = folder("adapted", &config);
    save_weights(&model, with.weights_path(&Checkpoint::Last)).unwrap();
    // What was written is what is merged.
    let mut model = config.init(&device);
    load_weights(&mut model, with.weights_path(&Checkpoint::Last)).unwrap();
    config.adapters = None;
    let merged = folder("merged", &config);
    save_base(&merge_adapters(model, adapters), merged.weights_path(&Checkpoint::Last)).unwrap();
    [with.path().into(), merged.path().into()]
}

fn read<const D: usize>(weights: &Weights, name: &str) -> Tensor<D> {
    let info = weights.info(name).unwrap_or_else(|| panic!("{name} among {:?}", weights.names().collect::<Vec<_>>()));
    let numbers = weights.read(name, &View::whole(&info.shape), 0.0).unwrap();
    Tensor::from_data(burn::tensor::TensorData::new(numbers, info.shape.clone()), &Device::default())
}

#[test]
fn the_products_in_the_files_change_the_weights_as_the_adapters_do() {
    for decomposed in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let adapters = AdapterConfig { decomposed, ..AdapterConfig::new(2).with_alpha(3.0) };
        let [with, merged] = adapted("llama-biases", home.path(), &adapters);
        let [out, whole] = ["out", "whole"].map(|name| home.path().join(name));
        export(with, &Checkpoint::Last, &out).unwrap();
        export(merged, &Checkpoint::Last, &whole).unwrap();
        let keys: serde_json::Value =
            serde_json::from_slice(&fs::read(out.join("adapter_config.json")).unwrap()).unwrap();
        assert_eq!(
            (&keys["r"], &keys["task_type"], &keys["use_dora"]),
            (&2.into(), &"CAUSAL_LM".into(), &decomposed.into())
        );
        let modules: Vec<&str> =
            keys["target_modules"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
        assert_eq!(modules.len(), 4, "queries and values of two layers: {modules:?}");
        let [products, whole, base] = [
            out.join("adapter_model.safetensors"),
            whole.join("model.safetensors"),
            home.path().join("published/model.safetensors"),
        ]
        .map(|path| Weights::of_file(path).unwrap());
        for module in modules {
            let part = |name: &str| read::<2>(&products, &format!("base_model.model.{module}.{name}.weight"));
            // PEFT, `LoraLayer`: W + alpha / r * B A, all [out, in].
            let changed = read::<2>(&base, &format!("{module}.weight")) + part("lora_B").matmul(part("lora_A")) * 1.5;
            let expected = match decomposed {
                false => changed,
                true => {
                    // `DoraLinearLayer`: each row of it with the length that was learnt.
                    let lengths: Tensor<1> =
                        read(&products, &format!("base_model.model.{module}.lora_magnitude_vector.weight"));
                    let now = changed.clone().square().sum_dim(1).sqrt();
                    changed / now * lengths.unsqueeze_dim(1)
                }
            };
            assert_close(&read::<2>(&whole, &format!("{module}.weight")), &expected.into_data(), 1e-5);
        }
    }
}

#[test]
fn adapters_of_a_part_of_a_matrix_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let [with, _] = adapted("phi3-plain", home.path(), &AdapterConfig::new(2).with_targets(["feed_forward.gate"]));
    let error = export(with, &Checkpoint::Last, home.path().join("out")).unwrap_err();
    let text = error.to_string();
    assert!(error.is_user_error() && text.contains("feed_forward.gate") && text.contains("firelight merge"), "{text}");
    assert!(!home.path().join("out").exists());
}
