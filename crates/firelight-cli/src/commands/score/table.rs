//! The tokens of a text, one below the other.

use firelight::generation::{ScoredToken, TextScore, TokenScore};

use super::scorer::Scorer;

/// A line for each token: what it is, its log-probability in nats and its probability; with ranks, those and the most probable tokens.
pub(super) fn of(scorer: &Scorer, found: &TextScore) -> String {
    let labels: Vec<String> = found.tokens.iter().map(|token| scorer.label(token.id, &token.text)).collect();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0).max("token".len());
    let is_ranked = found.scores().any(|score| score.rank.is_some());
    let more = if is_ranked { "    rank  most probable" } else { "" };
    let heading = format!("{:width$}  {:>9}  {:>8}{more}\n", "token", "log p", "p");
    let line = |(label, token): (&String, &ScoredToken)| {
        let columns =
            token.score.as_ref().map_or_else(|| format!("{:>9}  {:>8}", "-", "-"), |score| numbers(scorer, score));
        format!("{label:width$}  {columns}\n")
    };
    heading + &labels.iter().zip(&found.tokens).map(line).collect::<String>()
}

fn numbers(scorer: &Scorer, score: &TokenScore) -> String {
    let plain = format!("{:9.4}  {:>8}", score.log_probability, share(score.log_probability));
    let Some(rank) = score.rank else { return plain };
    let likely = |&(id, log_probability): &(u32, f64)| format!("{} {}", scorer.label_of(id), share(log_probability));
    let top: Vec<String> = score.top.iter().map(likely).collect();
    format!("{plain}  {rank:6}  {}", top.join(", "))
}

/// A probability in percent.
fn share(log_probability: f64) -> String {
    format!("{:.2} %", 100.0 * log_probability.exp())
}
