use super::*;
use burn::module::Param;
use burn::tensor::Device;
use firelight_core::{EmbeddingProjectionConfig, Init, ParamBuilder, Trace, Weight, WeightInit};
use firelight_kernels::{Difference, assert_close};

#[test]
fn published_models_are_counted_exactly() {
    // Table 3 says 65 and 213 million, with vocabularies of about 37,000.
    let count = |config: Seq2SeqConfig| config.init(&Device::default()).num_params();
    assert_eq!(count(Seq2SeqConfig::base(37_000)), 44_138_496 + 37_000 * 512);
    assert_eq!(count(Seq2SeqConfig::big(37_000)), 176_357_376 + 37_000 * 1024);
}

#[test]
fn the_parts_of_the_costs_are_all_parameters_however_they_are_tied() {
    let pairs = [Tying::Target, Tying::Source, Tying::Embeddings].map(|tying| (tying, 2));
    for (tying, matrices) in pairs.into_iter().chain([(Tying::None, 3), (Tying::All, 1)]) {
        let config = Seq2SeqConfig::new(11, 8, 2, 1).with_max_seq_len(6).with_tying(tying);
        let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
        assert_eq!(model.num_params() - model.stacks.num_params(), matrices * 11 * 8);
        let tied = (model.source_embedding.is_none(), model.head.weight.is_none());
        assert_eq!(tied, (tying.ties_source(), tying.ties_head()));
        let narrow = Some(EmbeddingProjectionConfig::new(4));
        let narrow = config
            .with_both(|stack| stack.with_embedding_projection(narrow))
            .init_with(&ParamBuilder::new(&Device::default(), 0));
        for model in [model, narrow] {
            assert_eq!(model.cost([6; 2]).parameters, model.num_params());
        }
    }
}

const TIES: [Tying; 4] = [Tying::Target, Tying::Source, Tying::Embeddings, Tying::All];

/// The logits of two sources and targets.
fn logits(model: &Seq2SeqModel) -> Tensor<3> {
    let tokens = |ids: [[i32; 3]; 2]| Tensor::<2, Int>::from_ints(ids, &model.embedding.weight.device());
    model.forward(tokens([[1, 2, 3], [7, 5, 9]]), None, tokens([[0, 4, 8], [0, 10, 6]]))
}

/// A model whose matrices matter. Parameters of one path are equal, however they are tied.
fn wide(tying: Tying, device: &Device) -> Seq2SeqModel {
    let init = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
    let config = Seq2SeqConfig::new(11, 8, 2, 1).with_max_seq_len(6).with_both(|stack| stack.with_init(init));
    config.with_tying(tying).init_with(&ParamBuilder::new(device, 0))
}

#[test]
fn tied_matrices_are_those_of_an_untied_model_that_was_given_them() {
    for tying in TIES {
        let [tied, mut untied] = [tying, Tying::None].map(|tying| wide(tying, &Device::default()));
        let apart = Difference::between(&logits(&tied), &logits(&untied)).absolute;
        assert!(apart > 0.1, "{tying:?}: {apart}");
        let matrix = tied.head_embedding().weight.val();
        if tying.ties_source() {
            untied.source_embedding = Some(tied.embedding.clone());
        }
        if tying.ties_head() {
            untied.head.weight = Some(Param::from_tensor(matrix.transpose()).into());
        }
        assert_close(&logits(&tied), &logits(&untied), 1e-5);
    }
}

/// The gradients of the embeddings of source and target and of the head, where they have matrices of their own.
fn gradients(model: &Seq2SeqModel) -> [Option<Tensor<2>>; 3] {
    let gradients = logits(model).square().mean().backward();
    let source = model.source_embedding.as_ref().map(|embedding| &embedding.weight);
    let weights = [source, Some(&model.embedding.weight), model.head.weight.as_ref()];
    weights.map(|weight| weight.map(|weight| weight.val().grad(&gradients).expect("a gradient")))
}

#[test]
fn a_tied_matrix_gets_the_sum_of_the_gradients() {
    let device = Device::default().autodiff();
    let copy = |matrix: Tensor<2>| Param::from_tensor(Tensor::<2>::from_data(matrix.into_data(), &device));
    for tying in TIES {
        let [tied, mut untied] = [tying, Tying::None].map(|tying| wide(tying, &device));
        if tying.ties_source() {
            let source = untied.source_embedding.as_mut().expect("a matrix of its own");
            source.weight = Weight::of_table(copy(tied.embedding.weight.val()));
        }
        if tying.ties_head() {
            let matrix = tied.head_embedding().weight.val().transpose();
            untied.head.weight = Some(Weight::of_map(copy(matrix)));
        }
        let [source, target, head] = gradients(&untied).map(|gradient| gradient.expect("nothing is tied"));
        let of_rows = head.clone().transpose();
        let expected = match tying {
            Tying::None => [Some(source), Some(target), Some(head)],
            Tying::Target => [Some(source), Some(target + of_rows), None],
            Tying::Source => [Some(source + of_rows), Some(target), None],
            Tying::Embeddings => [None, Some(source + target), Some(head)],
            Tying::All => [None, Some(source + target + of_rows), None],
        };
        for pair in gradients(&tied).into_iter().zip(expected) {
            match pair {
                (Some(found), Some(expected)) => assert_close(&found, &expected, 1e-5),
                (found, expected) => assert!(found.is_none() && expected.is_none(), "{tying:?}"),
            }
        }
    }
}

#[test]
fn a_head_reads_the_embedding_of_the_source_in_its_width() {
    let mut config = Seq2SeqConfig::new(11, 8, 2, 1).with_max_seq_len(6).with_tying(Tying::Source);
    config.stacks.encoder.embedding_projection = Some(EmbeddingProjectionConfig::new(4));
    let model = config.init_with(&ParamBuilder::new(&Device::default(), 0));
    assert_eq!(logits(&model).dims(), [2, 3, 11]);
    assert_eq!(model.head.projection.as_ref().expect("from 8 to 4").weight.dims(), [8, 4]);
    config.source_vocab_size = 9;
    let error = config.validate().expect_err("two vocabularies").to_string();
    assert!(error.contains("tying = \"source\" needs one vocabulary") && error.contains("to \"target\""), "{error}");
}

#[test]
fn embeddings_of_two_widths_cannot_be_tied() {
    let mut config = Seq2SeqConfig::new(11, 8, 2, 1).with_tying(Tying::Embeddings);
    config.stacks.encoder.embedding_projection = Some(EmbeddingProjectionConfig::new(4));
    config.source_vocab_size = 9;
    let error = config.validate().expect_err("two sizes");
    assert_eq!(
        error.problems(),
        [
            "tying = \"embeddings\" needs one vocabulary, but source_vocab_size = 9 and target_vocab_size = 11; set it to \
             \"none\"",
            "tying = \"embeddings\" needs one width of embeddings, but that of stacks.encoder is 4 and that of \
             stacks.decoder 8; set it to \"none\"",
        ]
    );
    config.with_tying(Tying::Target).validate().unwrap();
}

#[test]
fn all_weights_of_attention_are_there_on_request() {
    let model = Seq2SeqConfig::new(9, 8, 2, 3).with_max_seq_len(6).init_with(&ParamBuilder::new(&Device::default(), 0));
    let tokens = |length| Tensor::<2, Int>::ones([2, length], &Device::default());
    let [mut encoder, mut decoder] = [Trace::default(), Trace::default()];
    let encoder_output = model.encode(tokens(5), None, &mut Pass::default().with_trace(&mut encoder));
    model.decode(tokens(4), encoder_output, &SequenceInput::default(), &mut Pass::default().with_trace(&mut decoder));
    let shape = |weights: &Option<Tensor<4>>| weights.as_ref().map(Tensor::dims);
    for (encoder, decoder) in encoder.layers.iter().zip(&decoder.layers) {
        assert_eq!((shape(&encoder.attention), shape(&encoder.cross_attention)), (Some([2, 2, 5, 5]), None));
        assert_eq!(shape(&decoder.attention), Some([2, 2, 4, 4]));
        assert_eq!(shape(&decoder.cross_attention), Some([2, 2, 4, 5]));
    }
    assert_eq!((encoder.layers.len(), decoder.layers.len()), (3, 3));
}

#[test]
fn all_problems_are_listed() {
    let config = Seq2SeqConfig { source_vocab_size: 5, start_token: 9, ..Seq2SeqConfig::new(9, 10, 3, 1) };
    let error = config.validate().expect_err("problems");
    let text = error.to_string();
    assert!(text.contains("tying = \"all\" needs one vocabulary") && text.contains("start_token = 9"), "{text}");
    assert_eq!(error.problems().len(), 3, "{text}");
}
