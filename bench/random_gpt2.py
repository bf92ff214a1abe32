#!/usr/bin/env python3
"""Writes a folder as Hugging Face does, of the shape of GPT-2 124M, with random weights and a tokenizer of 50,257 tokens: what
`examples/measurements/generation_speed.rs` measures where the published weights are not at hand.

    pip install transformers torch
    python3 bench/random_gpt2.py DIR TEXT...          # some 10 MB of texts, whatever they are
"""

import sys

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, texts = sys.argv[1], sys.argv[2:]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train(texts, vocab_size=50_257, min_frequency=1, special_tokens=["<|endoftext|>"])
    found = tokenizer.get_vocab_size()
    if found != 50_257:
        sys.exit(f"the texts give {found} tokens, 50257 are needed: name more text")
    torch.manual_seed(0)
    config = GPT2Config(bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(folder)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="<|endoftext|>")
    wrapped.save_pretrained(folder)


if __name__ == "__main__":
    main()
