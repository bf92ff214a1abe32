//! A whole encoder-decoder against `torch.nn.Transformer`: logits, loss, and the gradient of every parameter; sources of unequal
//! length, norms first and last.

use burn::tensor::{Bool, Int, Tensor};
use firelight::nn::{Activation, LossConfig, NormPlacement, PositionConfig};
use firelight::seq2seq::{Seq2SeqConfig, Seq2SeqModel};

use crate::support::device;
use crate::support::golden::Golden;

fn config(placement: NormPlacement) -> Seq2SeqConfig {
    let config = Seq2SeqConfig::new(11, 16, 4, 2).with_max_seq_len(8).with_both(|stack| {
        let stack = stack.with_d_ff(32).with_activation(Activation::Relu).with_position(PositionConfig::None);
        stack.with_norm_placement(placement)
    });
    Seq2SeqConfig { scale_embedding: (placement == NormPlacement::Post).into(), ..config }
}

#[test]
fn encoder_decoders_agree_with_norms_first_and_last() {
    let golden = Golden::load("seq2seq_tiny");
    let tracked = device().autodiff();
    assert_eq!(golden.cases().count(), 2);
    for (golden, placement) in golden.cases().zip([NormPlacement::Pre, NormPlacement::Post]) {
        let model: Seq2SeqModel = golden.fill(config(placement).init(&tracked));
        let source: Tensor<2, Int> = golden.ints("source", &tracked);
        let padding: Tensor<2, Bool> = golden.flags("padding", &tracked);
        let logits = model.forward(source, Some(padding), golden.ints("tokens", &tracked));
        golden.check("logits", logits.clone());
        let loss = LossConfig::default().init().forward(logits, golden.ints("targets", &tracked), None).mean();
        golden.check("loss", loss.clone());
        golden.check_gradients(&model, &loss.backward());
    }
}
