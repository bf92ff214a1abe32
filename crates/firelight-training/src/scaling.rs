//! What more ranks bring: how long a step of a training on several ranks takes, predicted from the model, the machines and the network. The page
//! `docs/scaling.md` derives the formulas and has tables of them; `examples/measurements/exchange_cost.rs` measures what they take for granted.

pub use crate::ranks::BUCKET;

/// The numbers that ranks of MPI add up at a time, in two rounds of messages.
pub const SEGMENT: usize = 1 << 18;

/// Rounds in which a segment is summed: each rank adds up its part, and hands it to all.
const ROUNDS: f64 = 2.0;

/// Rounds of a step beside its gradients: whether to go on, and how many batches there are.
const OTHER_ROUNDS: f64 = 2.0;

/// Bytes of a number on its way.
const NUMBER: f64 = 4.0;

/// Seconds that one rank computes in a step of a Transformer: 6 floating point operations for each of its `parameters` and `tokens`, of which it
/// does `rate` in a second (Kaplan et al. 2020, Scaling laws for neural language models, section 2.1).
///
/// ```
/// use firelight_training::scaling::compute_seconds;
///
/// assert_eq!(compute_seconds(1_000_000, 1_000, 6e9), 1.0);
/// ```
pub fn compute_seconds(parameters: usize, tokens: usize, rate: f64) -> f64 {
    6.0 * parameters as f64 * tokens as f64 / rate
}

/// Machines, each with one rank, and the network between them.
///
/// ```
/// use firelight_training::scaling::Network;
///
/// let network = Network { bandwidth: 1e9, latency: 50e-6, message: 2e-6, host: 5e-9 };
/// let [few, many] = [2, 1024].map(|ranks| network.exchange(ranks).seconds(10_000_000));
/// assert!(few < many && network.exchange(1).seconds(10_000_000) == 0.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Bytes that a rank sends in a second, while it receives as many.
    pub bandwidth: f64,
    /// Seconds from one rank to another.
    pub latency: f64,
    /// Seconds that a rank spends on a message, however short.
    pub message: f64,
    /// Seconds that a rank spends on a parameter in memory: copies, conversions, sums.
    pub host: f64,
}

impl Network {
    /// What exchanges between so many ranks cost; nothing where there is one.
    pub fn exchange(&self, ranks: usize) -> ExchangeCost {
        if ranks <= 1 {
            return ExchangeCost { round: 0.0, byte: 0.0 };
        }
        let others = (ranks - 1) as f64;
        let wire = 2.0 * others / ranks as f64 / self.bandwidth; // each byte goes out twice, but for a rank's own part
        ExchangeCost { round: self.latency + others * self.message, byte: wire + self.host / NUMBER }
    }
}

/// What exchanges between the ranks of a training cost.
///
/// ```
/// use firelight_training::scaling::ExchangeCost;
///
/// // A sum takes 0.1 ms, and 1 ns for each of its bytes.
/// let cost = ExchangeCost::of_line(1e-4, 1e-9);
/// let exchange = cost.seconds(124_000_000);
/// assert!((exchange - 0.499).abs() < 1e-3);
/// assert!((ExchangeCost::efficiency(exchange, exchange) - 0.5).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExchangeCost {
    /// Seconds of a round of messages, however short they are.
    pub round: f64,
    /// Seconds that each byte of the gradients takes in all rounds.
    pub byte: f64,
}

impl ExchangeCost {
    /// The cost where a sum over all ranks takes `fixed` seconds and `per_byte` for each of its bytes, measured from the smallest one up to
    /// [`BUCKET`] numbers, the most that a training sums at once.
    ///
    /// A bucket has several segments: `fixed` has the waits of one, and `per_byte` those of the others, which are taken out again.
    pub fn of_line(fixed: f64, per_byte: f64) -> Self {
        let [segment, bucket] = [SEGMENT, BUCKET].map(|numbers| numbers as f64 * NUMBER);
        Self { round: fixed / ROUNDS, byte: (per_byte - fixed * (1.0 / segment - 1.0 / bucket)).max(0.0) }
    }

    /// Seconds of the exchange of a step that trains so many parameters.
    pub fn seconds(&self, parameters: usize) -> f64 {
        OTHER_ROUNDS * self.round + self.sum_seconds(parameters)
    }

    /// Seconds of one sum of so many numbers over all ranks.
    pub fn sum_seconds(&self, numbers: usize) -> f64 {
        let segments = numbers.div_ceil(SEGMENT).max(1) as f64;
        ROUNDS * segments * self.round + NUMBER * numbers as f64 * self.byte
    }

    /// The share of the speed of all ranks that is reached where each computes for `compute` seconds in a step, and then exchanges for
    /// `exchange`: from 0 to 1.
    pub fn efficiency(compute: f64, exchange: f64) -> f64 {
        compute / (compute + exchange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ETHERNET: Network = Network { bandwidth: 1.25e9, latency: 50e-6, message: 2e-6, host: 5e-9 };

    #[test]
    fn an_exchange_is_the_sum_of_wire_waits_and_host() {
        // One segment: 2 + 2 rounds of 52 µs; a half of 8 bytes for each number over the wire, and 5 ns on the host.
        let found = ETHERNET.exchange(2).seconds(SEGMENT);
        let expected = 4.0 * 262_144.0 / 1.25e9 + 4.0 * 52e-6 + 5e-9 * 262_144.0;
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        // One number more is a segment more, with two rounds.
        let more = ETHERNET.exchange(2).seconds(SEGMENT + 1) - found;
        assert!((more - 2.0 * 52e-6 - 4.0 / 1.25e9 - 5e-9).abs() < 1e-12, "{more}");
        // Four ranks: three quarters of the bytes cross the wire twice, and each rank sends three messages in a round.
        let four = ETHERNET.exchange(4);
        assert!((four.round - 56e-6).abs() < 1e-12 && (four.byte - 1.5 / 1.25e9 - 1.25e-9).abs() < 1e-18, "{four:?}");
    }

    #[test]
    fn sums_that_cost_less_than_their_waits_have_no_negative_bytes() {
        assert_eq!(ExchangeCost::of_line(1.0, 1e-12), ExchangeCost { round: 0.5, byte: 0.0 });
    }

    proptest! {
        #[test]
        fn the_line_through_two_sums_is_the_cost_again(round in 1e-6_f64..1e-3, byte in 1e-10_f64..1e-8) {
            let cost = ExchangeCost { round, byte };
            let [small, large] = [1, BUCKET].map(|numbers| cost.sum_seconds(numbers));
            let per_byte = (large - small) / (4.0 * (BUCKET - 1) as f64);
            let found = ExchangeCost::of_line(small - 4.0 * per_byte, per_byte);
            let [expected, found] = [cost, found].map(|cost| cost.seconds(124_000_000));
            prop_assert!((found / expected - 1.0).abs() < 1e-4, "{} {}", found, expected);
        }
    }
}
