//! Adapters beside an encoder in blocks of few bits (QLoRA): what must hold of every task on a text encoder, for the tests of each of them.

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use firelight_core::{BlockFormat, weights_of};
use firelight_storage::{Checkpoint, Existing, TaskError};
use firelight_training::{Run, RunRequest, Task, merge};
use tempfile::TempDir;

/// Four steps of a training of adapters beside an encoder in blocks of eight bits.
const BESIDE_BLOCKS: [(&str, &str); 6] = [
    ("training.epochs", "0"),
    ("training.steps", "4"),
    ("schedule.steps", "4"),
    ("schedule.warmup_steps", "1"),
    ("model.adapters", "{ rank = 2 }"),
    ("init.quantize", "q8_0"),
];

/// Trains adapters on `data` beside the encoder of the run in the folder `run` of `base`, on the device that multiplies blocks. The encoder alone
/// lies in blocks, the estimate is the cost, a training that is stopped goes on to the bit without the run that it began from, and merged adapters
/// say the same: `loss` measures a run. Returns a folder with the trained run in `whole`.
pub(crate) fn adapters_learn_beside_blocks<T: Task<Error = TaskError>>(
    base: TempDir,
    (data, settings): (&Path, &[(&str, &str)]),
    loss: impl Fn(&Path) -> f64,
) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let from = base.path().join("run").display().to_string();
    let changes = [settings, &BESIDE_BLOCKS, &[("init.from", from.as_str())]].concat();
    let request = |out: &str| {
        let request = RunRequest::new(&Device::flex()).with_data(data).with_out(home.path().join(out));
        changes.iter().fold(request, |request, (key, value)| request.with_override(key, value))
    };
    let begun = Run::<T>::prepare(&request("whole")).unwrap();
    assert_encoder_in_blocks(&begun);
    assert_eq!(begun.cost(), Run::<T>::estimate(&request("other")).unwrap());
    begun.fit().unwrap();

    let half = request("half");
    Run::<T>::prepare(&half.clone().with_override("training.steps", 2)).unwrap().fit().unwrap();
    drop(base);
    let resumed = Run::<T>::prepare(&half.with_existing(Existing::Resume)).unwrap();
    assert_eq!(resumed.done(), 2);
    resumed.fit().unwrap();
    let bytes = |out: &str| fs::read(home.path().join(out).join("model.safetensors")).unwrap();
    assert!(bytes("half") == bytes("whole"));

    let [whole, merged] = ["whole", "merged"].map(|name| home.path().join(name));
    merge::<T>(&whole, &Checkpoint::Last, &merged, &Device::flex()).unwrap();
    assert!(!merged.join("quantization.json").exists());
    // Products with blocks round what they multiply.
    assert!((loss(&whole) - loss(&merged)).abs() < 0.1, "{} {}", loss(&whole), loss(&merged));
    home
}

fn assert_encoder_in_blocks<T: Task>(run: &Run<T>) {
    for entry in weights_of(run.model()) {
        let expected = entry.path.starts_with("encoder.").then_some(BlockFormat::Q8_0);
        assert_eq!(entry.format, expected, "{}", entry.path);
    }
}
