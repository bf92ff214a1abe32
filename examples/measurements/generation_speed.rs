//! What decoding costs beside the model: the share of the loop, of all processors and of a constraint; several rows, beams, the length of
//! the text, and guesses by look-up.
//!
//! Command: cargo run --release -p firelight-examples --example generation_speed -- gpt2/ [PROMPT-FILE]
//! Time: about three minutes for a model of 124 million parameters on two cores, after it is built.
//! Expect: one line for each measurement, medians of five rounds in turn; with a prompt, two lines on look-up behind it.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::{Device, Int, Tensor};
use firelight::generation::processors::{Dry, Xtc};
use firelight::generation::{
    Autoregressive, BeamOptions, Constraint, GenerationError, GenerationOptions, Processing, PromptLookup, TokenStream,
    beam_search, generate,
};
use firelight::language::{LanguageModel, TextGenerator};
use firelight::pretrained::{import_cache, run_folder};
use firelight::storage::{Checkpoint, TaskError};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tokens of a prompt, and tokens that are written behind it.
const PROMPT: usize = 128;
const TOKENS: usize = 32;
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, prompt) = match &arguments[..] {
        [model] => (model, None),
        [model, prompt] => (model, Some(Path::new(prompt))),
        _ => {
            eprintln!("usage: generation_speed MODEL [PROMPT-FILE]");
            return ExitCode::from(2);
        }
    };
    match measure(Path::new(model), prompt) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            firelight::problems(&error).iter().for_each(|problem| eprintln!("error: {problem}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(model: &Path, prompt: Option<&Path>) -> Result<(), TaskError> {
    let run = run_folder(model, &import_cache(), |told| eprintln!("{told}"))?;
    let generator = TextGenerator::load_from(run, &Checkpoint::Last, &Device::default())?;
    print_all(loop_costs(&generator, TOKENS)?);
    print_all(rows_and_beams(generator.model(), TOKENS)?);
    print_all(positions(generator.model(), TOKENS)?);
    if let Some(prompt) = prompt {
        let prompt = generator.tokenizer().encode(&firelight::data::read_text(prompt)?)?;
        print_all(look_up(generator.model(), &prompt, 2 * TOKENS)?);
    }
    Ok(())
}

fn print_all(lines: Vec<String>) {
    lines.iter().for_each(|line| println!("{line}"));
}

/// What lies outside of the model in each of several ways to choose a token.
fn loop_costs(generator: &TextGenerator, tokens: usize) -> Result<Vec<String>, GenerationError> {
    let (model, tokenizer) = (generator.model(), generator.tokenizer());
    let greedy = GenerationOptions::new(tokens).greedy();
    let constraint = Constraint::regex("[a-z]+", tokenizer)?;
    let constrained = Processing { constraint: Some(constraint), ..Processing::default() };
    let ways = [
        ("greedy", greedy.clone()),
        ("temperature 0.8", GenerationOptions::new(tokens)),
        ("top-k 40, top-p 0.9", GenerationOptions::new(tokens).with_top_k(40).with_top_p(0.9)),
        ("all processors", every_processor(tokens)),
        ("a regular expression, greedy", greedy.with_processing(constrained)),
    ];
    let mut found = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for ((_, options), found) in ways.iter().zip(&mut found) {
            found.push(decoded(model, vec![prompt(model, PROMPT)], options)?);
        }
    }
    let line = |((name, _), found): (&(&str, GenerationOptions), Vec<Decoded>)| {
        let share = median(found.iter().map(|decoded| decoded.outside / decoded.seconds));
        let token = median(found.iter().map(|decoded| decoded.seconds / decoded.steps as f64));
        format!("{name}: {:.2} ms a token, {:.2} % of it outside of the model", 1e3 * token, 100.0 * share)
    };
    Ok(ways.iter().zip(found).map(line).collect())
}

/// Every penalty, ban and sampler that can be combined.
fn every_processor(tokens: usize) -> GenerationOptions {
    let processing = Processing {
        repetition_penalty: 1.2,
        frequency_penalty: 0.1,
        presence_penalty: 0.1,
        no_repeat_ngram_size: 3,
        dry: Some(Dry::default()),
        banned: vec![vec![1, 2]],
        min_new_tokens: tokens,
        ..Processing::default()
    };
    let mut options = GenerationOptions::new(tokens).with_processing(processing).with_random(|random| {
        random.top_k = Some(1000);
        random.top_p = Some(0.95);
        random.min_p = Some(0.01);
        random.typical_p = Some(0.95);
        random.top_n_sigma = Some(3.0);
        random.xtc = Some(Xtc::default());
    });
    options.stop_tokens = vec![0];
    options
}

/// Sixteen rows against one, and five beams against greedy choice.
fn rows_and_beams(model: &LanguageModel, tokens: usize) -> Result<Vec<String>, GenerationError> {
    let greedy = GenerationOptions::new(tokens).greedy();
    let beams = BeamOptions::new(tokens).with_beams(5);
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let [one, sixteen] = [1, 16].map(|rows| decoded(model, vec![prompt(model, PROMPT); rows], &greedy));
        rates.push(one?.seconds * 16.0 / sixteen?.seconds);
        let [alone, five] = [
            seconds(|| generate(model, vec![prompt(model, PROMPT)], &greedy, |_| ControlFlow::Continue(())).map(drop)),
            seconds(|| beam_search(model, vec![prompt(model, PROMPT)], &beams).map(drop)),
        ];
        times.push(five? / alone?);
    }
    Ok(vec![
        format!("16 prompts: {:.2} times the tokens a second of one", median(rates)),
        format!("5 beams: {:.2} times the time of greedy choice, prompt included", median(times)),
    ])
}

/// A token near the end of the context against one near its start.
fn positions(model: &LanguageModel, tokens: usize) -> Result<Vec<String>, GenerationError> {
    let options = GenerationOptions::new(tokens).greedy();
    let ends = [model.max_seq_len() / 10, model.max_seq_len().min(1000)];
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let times = ends.map(|end| decoded(model, vec![prompt(model, end.saturating_sub(tokens).max(1))], &options));
        let [early, late] = times;
        ratios.push(late?.seconds / early?.seconds);
    }
    Ok(vec![format!("a token at position {}: {:.2} times one at {}", ends[1], median(ratios), ends[0])])
}

/// Guesses from the text itself against none, on a prompt that the model repeats.
fn look_up(model: &LanguageModel, prompt: &[u32], tokens: usize) -> Result<Vec<String>, GenerationError> {
    let options = GenerationOptions::new(tokens).greedy();
    let mut ratios = Vec::new();
    let mut written = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let plain = seconds(|| {
            written[0] = ids(TokenStream::new(model, vec![prompt.to_vec()], &options)?)?;
            Ok(())
        });
        let guessed = seconds(|| {
            let stream = TokenStream::new(model, vec![prompt.to_vec()], &options)?;
            written[1] = ids(stream.with_drafter(PromptLookup::default()))?;
            Ok(())
        });
        ratios.push(plain? / guessed?);
    }
    let same = if written[0] == written[1] { "the same tokens" } else { "OTHER TOKENS" };
    let known = written[0].windows(4).filter(|new| prompt.windows(4).any(|old| old == *new)).count();
    Ok(vec![
        format!("look-up: {:.2} times as fast, prompt included, {same}", median(ratios)),
        format!("of {} sequences of 4 new tokens {known} stood in the prompt", written[0].len().saturating_sub(3)),
    ])
}

/// The new tokens of a stream of one row.
fn ids<M: Autoregressive>(stream: TokenStream<'_, M>) -> Result<Vec<u32>, GenerationError> {
    let steps: Result<Vec<Vec<Option<u32>>>, GenerationError> = stream.collect();
    Ok(steps?.into_iter().flatten().flatten().collect())
}

/// Ids that are not all alike.
fn prompt(model: &LanguageModel, length: usize) -> Vec<u32> {
    (0..length).map(|place| (place * 7919 % model.vocab_size()) as u32).collect()
}

/// What a decoding took behind its prompt.
#[derive(Clone)]
struct Decoded {
    seconds: f64,
    /// Of these, what passed outside of the model.
    outside: f64,
    steps: usize,
}

fn decoded(
    model: &LanguageModel,
    prompt: Vec<Vec<u32>>,
    options: &GenerationOptions,
) -> Result<Decoded, GenerationError> {
    let timed = Timed::new(model);
    let mut stream = TokenStream::new(&timed, prompt, options)?;
    // The first token comes with the prompt.
    stream.next().transpose()?;
    timed.nanoseconds.store(0, Ordering::Relaxed);
    let start = Instant::now();
    let steps = stream.try_fold(0, |steps, step| step.map(|_| steps + 1))?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Decoded { seconds, outside: seconds - timed.inside().as_secs_f64(), steps })
}

/// Seconds that something takes.
fn seconds(work: impl FnOnce() -> Result<(), GenerationError>) -> Result<f64, GenerationError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn median(found: impl IntoIterator<Item = f64>) -> f64 {
    let mut found: Vec<f64> = found.into_iter().collect();
    found.sort_by(f64::total_cmp);
    found[found.len() / 2]
}

/// A model that knows how long it has computed. On a CPU nothing is left to be computed when a step returns.
struct Timed<'m> {
    model: &'m LanguageModel,
    nanoseconds: AtomicU64,
}

impl<'m> Timed<'m> {
    fn new(model: &'m LanguageModel) -> Self {
        Self { model, nanoseconds: AtomicU64::new(0) }
    }

    fn inside(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }
}

type State = <LanguageModel as Autoregressive>::State;

impl Autoregressive for Timed<'_> {
    type Prompt = Vec<Vec<u32>>;
    type State = State;

    fn device(&self) -> Device {
        self.model.device()
    }

    fn history(&self, prompt: &Self::Prompt) -> Vec<Vec<u32>> {
        self.model.history(prompt)
    }

    fn prefill(&self, prompt: Self::Prompt) -> Result<(Tensor<2>, State), GenerationError> {
        self.time(|| self.model.prefill(prompt))
    }

    fn step(&self, token: Tensor<1, Int>, state: &mut State) -> Tensor<2> {
        self.time(|| self.model.step(token, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelight::data::{Tokenizer, TokenizerConfig};
    use firelight::language::LanguageModelConfig;

    #[test]
    fn every_measurement_prints_its_lines() {
        let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefghijklmnopqrstuvwxyz .").unwrap();
        let config = LanguageModelConfig::new(tokenizer.vocab_size(), 16, 2, 1).with_max_seq_len(256);
        let generator = TextGenerator::new(config.init(&Device::flex()), tokenizer);
        let lines = [
            loop_costs(&generator, 8).unwrap(),
            rows_and_beams(generator.model(), 4).unwrap(),
            positions(generator.model(), 4).unwrap(),
            look_up(generator.model(), &[3, 4, 5, 3, 4, 5], 8).unwrap(),
        ];
        assert_eq!(lines.each_ref().map(Vec::len), [5, 2, 1, 2]);
        assert!(lines[3][0].ends_with("the same tokens"), "{:?}", lines[3]);
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
    }
}
