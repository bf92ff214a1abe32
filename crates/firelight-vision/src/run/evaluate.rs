//! How well a trained model names the images of a split.

use std::path::Path;

use firelight_core::LossConfig;
use firelight_data::{ImageFiles, ImageSet, ReadOptions};
use firelight_storage::TaskError;
use firelight_training::{AskedData, DataModule, MeasuredTask, Measurement, OpenedRun, Shared, TaskEvaluation};

use super::corpus::loader_of;
use super::score::ClassScores;
use super::{ImageData, ImageRecipe, Vision};
use crate::inference::ImageClassifier;
use crate::training::VisionTask;

impl MeasuredTask for Vision {
    type Options = ();
    type Report = TaskEvaluation;

    /// One split of a folder of images, or, without its name, the part that a training would validate on; without a folder the images
    /// that the run itself validates on, which its own folder keeps. Classes are known by their names, and images are brought to the
    /// shape that the model is made for.
    ///
    /// # Errors
    /// If the folder is no run of this task, keeps no images where no data is given, there is no such split, an image cannot be read, or
    /// one is of a class that the model was not trained on.
    fn measured(run: &OpenedRun<'_, Self>, asked: AskedData<'_>, (): &()) -> Result<Measurement<Self>, TaskError> {
        let classifier = ImageClassifier::load_from(run.folder.path(), run.checkpoint, run.device)?;
        let set = match asked {
            Some((data, split)) => {
                images(&run.recipe.data, &classifier, data, split)?.with_classes(classifier.classes())?
            }
            None => ImageData::open(&run.recipe, &run.folder)?.validation().clone(),
        };
        let normalization = classifier.config().normalization.clone();
        Ok(Measurement {
            task: VisionTask::new(classifier.model().clone(), LossConfig::default()),
            loader: loader_of(set.clone(), normalization, run.device),
            evaluator: Box::new(Shared(ClassScores::of(classifier.classes()))),
            loss_unit: "nats per image".into(),
            count: set.len(),
            examples: Box::new(move |digest| {
                digest.extend(set.pixels().chunks(set.shape().volume()).zip(set.labels()));
            }),
        })
    }
}

fn images(
    recipe: &ImageRecipe,
    classifier: &ImageClassifier,
    data: &Path,
    split: Option<&str>,
) -> Result<ImageSet, TaskError> {
    let shape = classifier.shape();
    let resizing = classifier.config().resizing;
    let options =
        ReadOptions { size: Some(shape.size()), channels: Some(shape.channels), resizing, ..recipe.options() };
    if let Some(split) = split {
        return Ok(ImageFiles::split(data, split)?.read(&options)?.set);
    }
    let [_, validation] = ImageFiles::read_parts(data, &options, &recipe.split)?;
    Ok(validation.set)
}

#[cfg(test)]
mod tests {
    use super::super::Run;
    use super::super::corpus::tests::folder;
    use super::*;
    use crate::data::{ImageBatch, ImageBatcher};
    use burn::data::dataloader::DataLoader;
    use burn::tensor::Device;
    use firelight_data::{ImageDataset, StepLoader};
    use firelight_kernels::assert_close;
    use firelight_storage::Checkpoint;
    use firelight_training::{RunRequest, Threads, ThreadsOptions, assert_shared, evaluate_run, evaluate_run_on};
    use std::sync::Arc;
    use std::thread;

    const SMALL: [(&str, &str); 8] = [
        ("model.patch_size", "4"),
        ("model.d_model", "16"),
        ("model.n_heads", "2"),
        ("model.n_layers", "1"),
        ("model.d_ff", "32"),
        ("training.epochs", "0"),
        ("training.steps", "3"),
        ("schedule.warmup_steps", "1"),
    ];

    const LEARNED: [(&str, &str); 2] = [("model.pooling", "class_token"), ("model.patch_position", "learned")];

    #[test]
    fn a_model_begins_from_one_of_smaller_images_and_its_positions_are_interpolated() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        folder(&data, 4);
        let device = Device::default();
        let request = |out: &str, changes: &[(&str, &str)]| {
            let request = RunRequest::new(&device).with_data(&data).with_out(home.path().join(out));
            let all = SMALL.iter().chain(&LEARNED).chain(changes);
            all.fold(request, |request, (key, value)| request.with_override(key, value))
        };
        let base = Run::prepare(&request("base", &[])).unwrap().fit().unwrap();
        let from = format!("{:?}", home.path().join("base").display().to_string());
        let larger = [("init.from", from.as_str()), ("data.image_size", "[16, 16]"), ("training.steps", "1")];
        let error = Run::prepare(&request("begun", &larger)).unwrap_err().to_string();
        assert!(
            error.contains("`vit.position` is [5, 16] and must be [17, 16]") && error.contains("init.resize"),
            "{error}"
        );
        let run = Run::prepare(&request("begun", &[&larger[..], &[("init.resize", "true")]].concat())).unwrap();
        let place = |model: &crate::VisionModel| -> Vec<f32> {
            model.vit.position.as_ref().unwrap().val().into_data().iter::<f32>().collect()
        };
        let (found, learnt) = (place(run.model()), place(&base.model));
        let resized = crate::VisionModel { vit: base.model.vit.clone().resized([16, 16]) };
        assert_eq!(found, place(&resized), "as a model that is resized by itself");
        assert_eq!(found[..16], learnt[..16], "the class token keeps its place");
        assert_eq!(run.init_report().unwrap().resized, ["vit.position"]);
        run.fit().unwrap();

        std::fs::remove_dir_all(data.join(std::fs::read_dir(&data).unwrap().next().unwrap().unwrap().file_name()))
            .unwrap();
        let other = [("init.from", from.as_str()), ("training.steps", "1")];
        let error = Run::prepare(&request("other", &other)).unwrap_err().to_string();
        assert!(error.contains("is for 3 classes") && error.contains("init.exclude = [\"vit.head\"]"), "{error}");
        let head = ("init.exclude", "[\"vit.head\"]");
        let adapters = ("model.adapters", "{ rank = 2 }");
        Run::prepare(&request("other", &[&other[..], &[head, adapters]].concat())).unwrap().fit().unwrap();
        let merged = home.path().join("merged");
        firelight_training::merge::<Vision>(home.path().join("other"), &Checkpoint::Last, &merged, &device).unwrap();
        assert!(evaluate_run::<Vision>(&merged, &Checkpoint::Last, None, &(), &device).unwrap().examples > 0);
    }

    #[test]
    fn adapters_beside_blocks_are_merged() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        folder(&data, 4);
        let device = Device::flex(); // The device that multiplies blocks.
        let request = |out: &str, changes: &[(&str, &str)]| {
            let request = RunRequest::new(&device).with_data(&data).with_out(home.path().join(out));
            let all = SMALL.iter().chain(&[("model.d_model", "32")]).chain(changes);
            all.fold(request, |request, (key, value)| request.with_override(key, value))
        };
        Run::prepare(&request("base", &[])).unwrap().fit().unwrap();
        let from = format!("{:?}", home.path().join("base").display().to_string());
        let changes = [("init.from", from.as_str()), ("model.adapters", "{ rank = 2 }"), ("init.quantize", "q8_0")];
        let trained = Run::prepare(&request("run", &changes)).unwrap().fit().unwrap();
        let entries = firelight_core::weights_of(&trained.model);
        assert!(entries.iter().any(|entry| entry.path.contains(".blocks.")));
        assert!(entries.iter().filter(|entry| entry.path.contains(".blocks.")).all(|entry| entry.format.is_some()));
        let merged = home.path().join("merged");
        firelight_training::merge::<Vision>(home.path().join("run"), &Checkpoint::Last, &merged, &device).unwrap();
        let found = |folder: &Path| evaluate_run::<Vision>(folder, &Checkpoint::Last, None, &(), &device);
        let loss = |folder: &Path| found(folder).unwrap().loss;
        assert_close(&[loss(&home.path().join("run"))], &[loss(&merged)], 0.05);
    }

    #[test]
    fn ranks_share_the_scores() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        folder(&data.join("train"), 2);
        folder(&data.join("val"), 3);
        let request = RunRequest::new(&Device::default()).with_data(&data).with_out(home.path().join("run"));
        let request = SMALL.iter().fold(request, |request, (key, value)| request.with_override(key, value));
        let run = Run::prepare(&request).unwrap();
        let (_, scores) = assert_shared::<VisionTask>(|| {
            let (set, normalization) = (run.corpus.validation().clone(), run.corpus.normalization().clone());
            let batcher = ImageBatcher::new(set.shape());
            let images = ImageDataset::for_evaluation(set, normalization);
            let loader: Arc<dyn DataLoader<ImageBatch>> =
                Arc::new(StepLoader::new(images, batcher, 2, &Device::default()));
            let task = VisionTask::new(run.model().clone(), LossConfig::default());
            (task, loader, Box::new(Shared(ClassScores::of(run.corpus.classes()))))
        });
        assert!(scores.len() == 2 && scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
    }

    #[test]
    fn a_run_is_measured_on_its_own_images_on_a_folder_and_on_a_split() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        folder(&data.join("train"), 4);
        folder(&data.join("val"), 2);
        let request = RunRequest::new(&Device::default().autodiff()).with_data(&data).with_out(home.path().join("run"));
        let request = SMALL.iter().fold(request, |request, (key, value)| request.with_override(key, value));
        let trained = Run::prepare(&request).unwrap().fit().unwrap();

        let (run, device) = (home.path().join("run"), Device::default());
        let measured = |data: AskedData<'_>| evaluate_run::<Vision>(&run, &Checkpoint::Last, data, &(), &device);
        let own = measured(None).unwrap();
        assert_close(&[own.loss], &[trained.evaluation.unwrap().loss], 1e-5);
        assert_eq!(own.examples, 6);
        let [accuracy, macro_f1] = ["accuracy", "macro_f1"].map(|name| own.score(name).unwrap());
        assert_close(&[accuracy * 6.0], &[(accuracy * 6.0).round()], 1e-9);
        assert!((0.0..=1.0).contains(&macro_f1), "{own:?}");
        // The folder has a split of its own to validate on, which the run kept.
        let of_folder = measured(Some((&data, None))).unwrap();
        assert_eq!((of_folder.loss, of_folder.scores, of_folder.examples), (own.loss, own.scores, 6));
        assert_eq!(measured(Some((&data, Some("train")))).unwrap().examples, 12);
        let error = measured(Some((&data, Some("test")))).unwrap_err();
        assert!(error.is_user_error() && error.to_string().contains("test"), "{error}");

        // Ranks that see as many images, but one that is another, are told.
        let other = home.path().join("other");
        folder(&other.join("train"), 4);
        folder(&other.join("val"), 2);
        std::fs::copy(data.join("val/upright/000.png"), other.join("val/across/000.png")).unwrap();
        thread::scope(|scope| {
            for (rank, data) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip([&data, &other]) {
                let run = &run;
                scope.spawn(move || {
                    let (asked, device) = (Some((data.as_path(), Some("val"))), Device::default());
                    let (last, rank) = (Checkpoint::Last, Arc::new(rank));
                    let error = evaluate_run_on::<Vision>(run, &last, asked, &(), &device, rank).unwrap_err();
                    let told = "its validation data is `6 examples with the checksum ";
                    assert!(error.is_user_error() && error.to_string().contains(told), "{error}");
                });
            }
        });
    }
}
