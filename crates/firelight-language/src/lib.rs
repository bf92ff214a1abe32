//! GPT-style language models: model, batches, training through Burn's Learner, and text generation.
