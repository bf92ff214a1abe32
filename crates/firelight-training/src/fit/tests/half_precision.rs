//! Trainings in half precision: the scale of the loss, and what is refused.

use super::*;
use crate::TrainingModule;
use crate::toy::Noted;

/// A training in `f16` from `start` on, without its scale.
fn half_input(steps: usize, start: StartPoint, folder: &ModelFolder) -> FitInput<TrainingModule<Line>> {
    let train_loader = Arc::new(PointLoader::of_steps(start.step(), steps));
    let training = TrainingConfig { steps, precision: Precision::F16, ..TrainingConfig::default() };
    let folder = Some(folder.clone());
    FitInput { training, folder, start, ..FitInput::new(train_loader, Arc::new(PointLoader::of_steps(0, 3))) }
}

#[test]
fn the_scale_of_the_loss_goes_on_where_it_stood() {
    let _alone = alone();
    let [(_a, whole), (_b, parts)] = [run_folder(), run_folder()];
    let train = |steps, start, folder, factor: Option<f64>| {
        let model = Line::new(0.0, 0.0, &Device::flex().autodiff()).with_dropout(0.3);
        let task = TrainingModule::new(model, Noted::default()).with_precision(Precision::F16);
        let scale = task.loss_scale().unwrap();
        factor.into_iter().for_each(|factor| scale.begin_at(factor));
        fit(task, FitInput { loss_scale: Some(scale.clone()), ..half_input(steps, start, folder) }).unwrap();
        scale.state()
    };
    // No power of two, so that a run with another scale rounds other gradients.
    let expected = train(5, StartPoint::default(), &whole, Some(1000.0));
    train(2, StartPoint::default(), &parts, Some(1000.0));
    let found = train(5, resume_point(&parts).unwrap().unwrap(), &parts, None);
    assert_eq!(found, expected);
    assert!(bytes(&whole, Checkpoint::Last) == bytes(&parts, Checkpoint::Last));
    assert_ne!(expected, Precision::F16.loss_scale().unwrap().state());
}

#[test]
fn half_precision_without_a_scale_is_refused() {
    let _alone = alone();
    let (_home, folder) = run_folder();
    let task = TrainingModule::new(Line::new(0.0, 0.0, &Device::flex().autodiff()), Noted::default());
    let error = fit(task, half_input(2, StartPoint::default(), &folder)).unwrap_err();
    assert!(error.to_string().contains("needs a scale for the loss") && error.is_user_error(), "{error}");
}

#[test]
#[allow(deprecated)] // Burn's older CPU backend has no half precision.
fn a_device_without_the_precision_is_refused() {
    let (_home, folder) = run_folder();
    let model = Line::new(0.0, 0.0, &Device::ndarray().autodiff());
    let task = TrainingModule::new(model, Noted::default()).with_precision(Precision::F16);
    let loss_scale = task.loss_scale();
    let error = fit(task, FitInput { loss_scale, ..half_input(2, StartPoint::default(), &folder) }).unwrap_err();
    assert!(error.to_string().contains("cannot compute in f16, which `training.precision`"), "{error}");
}
