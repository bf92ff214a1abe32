//! Which experts read a token, chosen on the host, and how evenly the tokens are spread.

use burn::tensor::{Tensor, TensorData};

/// The indices of the `k` largest numbers; of equal ones the first.
pub(super) fn largest(row: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    order.truncate(k);
    order
}

/// Which tokens each expert reads.
pub(super) struct Routes {
    /// For each expert its tokens, in order.
    pub(super) tokens: Vec<Vec<i32>>,
    /// For each expert how many tokens chose it, those without a place among them.
    pub(super) demand: Vec<usize>,
    /// For each token its experts; none for padding.
    pub(super) experts: Vec<Vec<usize>>,
}

impl Routes {
    pub(super) fn new(n_experts: usize) -> Self {
        Self { tokens: vec![Vec::new(); n_experts], demand: vec![0; n_experts], experts: Vec::new() }
    }

    pub(super) fn push(&mut self, experts: Vec<usize>) {
        for &expert in &experts {
            self.tokens[expert].push(self.experts.len() as i32);
            self.demand[expert] += 1;
        }
        self.experts.push(experts);
    }

    /// Fedus et al. 2022, eq. 3: the first tokens of the batch have the places.
    pub(super) fn truncate(&mut self, capacity: f64) {
        let share = self.demand.iter().sum::<usize>() as f64 / self.tokens.len() as f64;
        let places = (capacity * share).ceil() as usize;
        self.tokens.iter_mut().for_each(|tokens| tokens.truncate(places));
    }

    /// 1 where a token chose an expert: `[N, X]`.
    pub(super) fn chosen(&self) -> TensorData {
        let n_experts = self.tokens.len();
        let mut chosen = vec![0f32; self.experts.len() * n_experts];
        for (token, experts) in self.experts.iter().enumerate() {
            experts.iter().for_each(|expert| chosen[token * n_experts + expert] = 1.0);
        }
        TensorData::new(chosen, [self.experts.len(), n_experts])
    }

    /// `X Σ_e f_e P_e`, `[1]`, with the share `f` of the tokens that chose an expert and its mean probability `P`: `top_k`
    /// when all are chosen alike, `X` at most. Fedus et al. 2022, eq. 4 to 6, their `α` left to the task; with several
    /// experts a token as Mixtral's code, where the shares sum to `top_k`.
    pub(super) fn load_balance(&self, probabilities: &Tensor<2>) -> Tensor<1> {
        let counted: Vec<f32> = self.experts.iter().map(|experts| f32::from(u8::from(!experts.is_empty()))).collect();
        let n_tokens = counted.iter().sum::<f32>().max(1.0);
        let demand: Vec<f32> = self.demand.iter().map(|demand| *demand as f32 / n_tokens).collect();
        let options = (&probabilities.device(), probabilities.dtype());
        let shares = Tensor::<1>::from_data(demand.as_slice(), options).unsqueeze::<2>(); // [1, X]
        let rows = counted.len();
        let counted = Tensor::<2>::from_data(TensorData::new(counted, [rows, 1]), options); // [N, 1]
        let means = (probabilities.clone() * counted).sum_dim(0) / n_tokens; // [1, X]
        (means * shares).sum() * self.tokens.len() as f32
    }
}
