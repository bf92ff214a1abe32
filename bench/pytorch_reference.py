#!/usr/bin/env python3
"""The PyTorch side of the benchmarks that `cargo xtask bench` runs.

    pip install torch numpy
    python3 pytorch_reference.py train --config baby        # nanoGPT's CPU recipe: 4L/4H/128, context 64, batch 12
    python3 pytorch_reference.py train --config char6       # 6L/6H/384, context 256, batch 8
    python3 pytorch_reference.py train --config seq2seq     # 3+3L/8H/256, d_ff 512, 16 -> 16 tokens, batch 128, vocabulary 8000
    python3 pytorch_reference.py train --config vit         # 6L/4H/128, 28x28 images, patch 4, batch 128
    python3 pytorch_reference.py train --config bert        # 4L/4H/256, d_ff 1024, length 64, batch 32, 2 classes, vocabulary 8000
    python3 pytorch_reference.py decode --config gpt2       # GPT-2 124M shape: 128-token prompt, 64 greedy tokens with a KV cache
    python3 pytorch_reference.py prefill --config gpt2      # 512-token prompt, one forward pass
    python3 pytorch_reference.py decode --config llama110m  # LLaMA's parts: 12L/12H/768, d_ff 2,048, vocabulary 32,000, tied head
    python3 pytorch_reference.py decode --config llama1b    # 22L/32H/2,048 with 4 key/value heads, d_ff 5,632
    python3 pytorch_reference.py attention --length 4096    # one causal attention layer, forward and backward: time and peak memory

Each run prints one JSON line: name, median seconds, tokens per second, threads, peak resident memory in MiB.
Random weights and ids; nothing is downloaded. Compare only figures taken in the same run on the same machine,
the two programs in turn. The device is the GPU with --device cuda. --dtype bf16 uses autocast to train, and weights in bf16
for decode and prefill.
"""
import argparse, json, resource, sys, time

try:
    import torch, torch.nn as nn, torch.nn.functional as F
except ImportError as error:
    sys.exit(f"the Python package torch is missing ({error}): pip install torch numpy")

# Vocabulary, context, layers, heads, width, rows of a batch.
GPTS = {
    "baby": (65, 64, 4, 4, 128, 12),
    "char6": (65, 256, 6, 6, 384, 8),
    "char12": (65, 256, 12, 6, 384, 8),
    "gpt2": (50257, 1024, 12, 12, 768, 8),
}
# The same, with heads of keys and values behind the heads, and the inner width behind the width.
LLAMAS = {"llama110m": (32000, 1024, 12, 12, 12, 768, 2048, 8), "llama1b": (32000, 2048, 22, 32, 4, 2048, 5632, 1)}
OTHERS = ["seq2seq", "bert", "vit"]
PREFILL, DECODE = 512, (128, 64)


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.q, self.kv, self.out = h, nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.h, -1).transpose(1, 2)

    def forward(self, x, memory=None, causal=False, cache=None):
        memory = x if memory is None else memory
        q, (k, v) = self.split(self.q(x)), (self.split(t) for t in self.kv(memory).chunk(2, -1))
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal and q.shape[2] == k.shape[2])
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """Pre-norm block with tanh-GELU; with `cross`, a decoder block."""

    def __init__(self, d, h, ff, cross=False):
        super().__init__()
        self.n1, self.attn = nn.LayerNorm(d), Attention(d, h)
        self.n3, self.cross = (nn.LayerNorm(d), Attention(d, h)) if cross else (None, None)
        self.n2, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, ff), nn.Linear(ff, d)

    def forward(self, x, causal=False, memory=None, cache=None):
        x = x + self.attn(self.n1(x), causal=causal, cache=cache)
        if self.cross is not None:
            x = x + self.cross(self.n3(x), memory)
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self, v, t, l, h, d):
        super().__init__()
        self.tok, self.pos = nn.Embedding(v, d), nn.Embedding(t, d)
        self.blocks, self.norm = nn.ModuleList(Block(d, h, 4 * d) for _ in range(l)), nn.LayerNorm(d)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, caches=None, start=0, last_only=False):
        x = self.tok(ids) + self.pos(torch.arange(start, start + ids.shape[1], device=ids.device))
        for i, b in enumerate(self.blocks):
            x = b(x, causal=True, cache=None if caches is None else caches[i])
        x = self.norm(x[:, -1:] if last_only else x)
        return x @ self.tok.weight.T


class GatedBlock(nn.Module):
    """Pre-norm block of LLaMA: RMSNorm, rotary positions, fewer heads of keys and values, SwiGLU, no biases."""

    def __init__(self, d, h, kv, ff):
        super().__init__()
        self.heads, linear = (h, kv), lambda i, o: nn.Linear(i, o, bias=False)
        self.n1, self.q, self.k, self.v = nn.RMSNorm(d, eps=1e-6), linear(d, d), linear(d, d // h * kv), linear(d, d // h * kv)
        self.out, self.n2 = linear(d, d), nn.RMSNorm(d, eps=1e-6)
        self.gate, self.up, self.down = linear(d, ff), linear(d, ff), linear(ff, d)

    def attend(self, x, turn, cache):
        split = lambda t, n: t.view(x.shape[0], x.shape[1], n, -1).transpose(1, 2)
        h, kv = self.heads
        q, k, v = turn(split(self.q(x), h)), turn(split(self.k(x), kv)), split(self.v(x), kv)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] == k.shape[2], enable_gqa=h != kv)
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def forward(self, x, turn, cache=None):
        x = x + self.attend(self.n1(x), turn, cache)
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, v, t, l, h, kv, d, ff):
        super().__init__()
        self.tok, self.norm = nn.Embedding(v, d), nn.RMSNorm(d, eps=1e-6)
        self.blocks = nn.ModuleList(GatedBlock(d, h, kv, ff) for _ in range(l))
        half = d // h // 2
        angle = torch.arange(t)[:, None] * 10000.0 ** (-torch.arange(half) / half)  # [T, E / 2]
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, caches=None, start=0, last_only=False):
        cos, sin = (table[start : start + ids.shape[1]] for table in (self.cos, self.sin))

        def turn(x):  # Su et al. 2021, equation 34, halves layout
            first, second = x.chunk(2, -1)
            return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)

        x = self.tok(ids)
        for i, b in enumerate(self.blocks):
            x = b(x, turn, None if caches is None else caches[i])
        x = self.norm(x[:, -1:] if last_only else x)
        return x @ self.tok.weight.T


def language(config):
    """A model over tokens, their number, the context and the rows of a batch."""
    if config in LLAMAS:
        *shape, b = LLAMAS[config]
        return Llama(*shape), shape[0], shape[1], b
    *shape, b = GPTS[config]
    return Decoder(*shape), shape[0], shape[1], b


class Seq2Seq(nn.Module):
    def __init__(self, v, t, l, h, d, ff):
        super().__init__()
        self.src, self.tgt, self.pos = nn.Embedding(v, d), nn.Embedding(v, d), nn.Embedding(t, d)
        self.enc = nn.ModuleList(Block(d, h, ff) for _ in range(l))
        self.dec = nn.ModuleList(Block(d, h, ff, cross=True) for _ in range(l))
        self.n1, self.n2, self.head = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, v)

    def forward(self, src, tgt):
        m = self.src(src) + self.pos.weight[: src.shape[1]]
        for b in self.enc:
            m = b(m)
        m, x = self.n1(m), self.tgt(tgt) + self.pos.weight[: tgt.shape[1]]
        for b in self.dec:
            x = b(x, causal=True, memory=m)
        return self.head(self.n2(x))


class Encoder(nn.Module):
    """Token or image encoder with a class token and a classification head."""

    def __init__(self, l, h, d, ff, classes, t, v=None, patch=None, channels=1):
        super().__init__()
        self.embed = nn.Embedding(v, d) if v else nn.Conv2d(channels, d, patch, patch)
        self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.randn(1, t + 1, d) * 0.02)
        self.blocks, self.norm = nn.ModuleList(Block(d, h, ff) for _ in range(l)), nn.LayerNorm(d)
        self.head = nn.Linear(d, classes)

    def forward(self, x):
        x = self.embed(x)
        x = x.flatten(2).transpose(1, 2) if x.dim() == 4 else x
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x[:, 0]))


def training(config, device):
    ids = lambda *s, v: torch.randint(0, v, s, device=device)
    if config not in OTHERS:
        m, v, t, b = language(config)
        m, x, y = m.to(device), ids(b, t, v=v), ids(b * t, v=v)
        return m, (lambda: F.cross_entropy(m(x).view(-1, v), y)), b * t
    if config == "seq2seq":
        v, b, t = 8000, 128, 16
        m, s, x, y = Seq2Seq(v, 128, 3, 8, 256, 512).to(device), ids(b, t, v=v), ids(b, t, v=v), ids(b * t, v=v)
        return m, (lambda: F.cross_entropy(m(s, x).view(-1, v), y, label_smoothing=0.1)), 2 * b * t
    if config == "vit":
        b = 128
        m, x, y = Encoder(6, 4, 128, 512, 10, 49, patch=4).to(device), torch.rand(b, 1, 28, 28, device=device), ids(b, v=10)
        return m, (lambda: F.cross_entropy(m(x), y)), b * 50
    b, t = 32, 64
    m, x, y = Encoder(4, 4, 256, 1024, 2, t, v=8000).to(device), ids(b, t, v=8000), ids(b, v=2)
    return m, (lambda: F.cross_entropy(m(x), y)), b * (t + 1)


def timed(f, runs, device):
    times = []
    for i in range(runs + 1):
        start = time.perf_counter()
        f()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[runs // 2]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["train", "decode", "prefill", "attention"])
    p.add_argument("--config", choices=[*GPTS, *LLAMAS, *OTHERS])
    p.add_argument("--length", type=int, default=2048)
    p.add_argument("--runs", type=int, default=10)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    a.config = a.config or ("baby" if a.what == "train" else "gpt2")
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    amp = torch.autocast(a.device, torch.bfloat16, enabled=a.dtype == "bf16")
    if a.what == "train":
        model, loss, tokens = training(a.config, a.device)
        fn = torch.compile(loss) if a.compile else loss
        opt = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)

        def step():
            opt.zero_grad(set_to_none=True)
            with amp:
                value = fn()
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            return value.item()

    elif a.what == "attention":
        q, k, v = (torch.randn(1, 8, a.length, 64, device=a.device, requires_grad=True) for _ in range(3))
        tokens = a.length

        def step():
            with amp:
                F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()

    else:
        if a.config in OTHERS:
            sys.exit(f"the shape {a.config} is one of train")
        model, v, longest, _ = language(a.config)
        if a.what == "decode" and sum(DECODE) > longest:
            sys.exit(f"decode takes {sum(DECODE)} tokens, and the context of {a.config} is {longest}")
        model, tokens = model.eval().to(a.device), DECODE[1] if a.what == "decode" else min(PREFILL, longest)
        prompt = torch.randint(0, v, (1, DECODE[0] if a.what == "decode" else tokens), device=a.device)
        if a.dtype == "bf16":  # weights in bf16: what a user does for inference; autocast would convert them at every step
            model, amp = model.bfloat16(), torch.autocast(a.device, torch.bfloat16, enabled=False)

        @torch.inference_mode()
        def step():
            with amp:
                caches = [[] for _ in model.blocks]
                ids = model(prompt, caches, last_only=True).argmax(-1)
                if a.what == "decode":
                    for i in range(tokens - 1):
                        ids = model(ids, caches, prompt.shape[1] + i).argmax(-1)

    seconds = timed(step, a.runs, a.device)
    peak = torch.cuda.max_memory_allocated() / 2**20 if a.device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    name = f"{a.what}-{a.length if a.what == 'attention' else a.config}"
    print(json.dumps({"name": name, "framework": f"pytorch {torch.__version__}", "device": a.device, "dtype": a.dtype, "compile": a.compile,
                      "threads": torch.get_num_threads(), "seconds": round(seconds, 6), "tokens_per_second": round(tokens / seconds, 1), "peak_mib": round(peak)}))


if __name__ == "__main__":
    main()
