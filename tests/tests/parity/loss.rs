//! The loss of token predictions against PyTorch.

use firelight::nn::LossConfig;

use crate::support::device;
use crate::support::golden::Golden;

#[test]
fn token_losses_agree() {
    let mut cases = 0;
    for golden in Golden::load("token_loss").cases() {
        let logits = golden.input::<3>("logits", &device());
        let tracked = logits.device();
        let config =
            LossConfig::default().with_label_smoothing(golden.number("smoothing")).with_z_loss(golden.number("z_loss"));
        let ignored = Some(golden.flags("ignored", &tracked));
        let loss = config.init().forward(logits.clone(), golden.ints("targets", &tracked), ignored);
        golden.check("loss", loss.mean());
        golden.check("cross_entropy", loss.mean_cross_entropy());
        golden.check_gradient("logits", &logits, &loss.mean().backward());
        cases += 1;
    }
    assert_eq!(cases, 4);
}
