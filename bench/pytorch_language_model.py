#!/usr/bin/env python3
"""Trains the model of recipes/shakespeare-char-cpu.toml in PyTorch, for comparison of the losses.

    pip install torch numpy safetensors
    python3 bench/pytorch_language_model.py --data input.txt --seed 1
    python3 bench/pytorch_language_model.py --data input.txt --modern --learning-rate 3e-3 --min-learning-rate 0
    firelight train recipes/shakespeare-char-cpu.toml --data input.txt --steps 0 --out RUN --seed 1
    python3 bench/pytorch_language_model.py --data input.txt --seed 1 --begin RUN/model.safetensors

4 layers, 4 heads, width 128, context 64, batch 12, 2,000 steps of AdamW; `--modern` has rotary positions, RMSNorm, RMSNorm of
queries and keys and no biases, the row of docs/results.md with 796,160 parameters. The last tenth of the text is validated on
in windows that do not overlap, each character counted once. Prints one JSON line: nats per character.

With `--begin` it is Firelight's run again: its initial weights, and its order of batches as docs/reproduce.md defines it.
"""
import argparse, json, math, time
import torch, torch.nn as nn, torch.nn.functional as F

LAYERS, HEADS, WIDTH, LENGTH, BATCH, STEPS, WARMUP = 4, 4, 128, 64, 12, 2000, 100


def rotate(x):
    """Rotary positions, halves layout, base 10,000 (Su et al. 2021, equation 34). x: [B, H, T, E]"""
    length, half = x.shape[2], x.shape[3] // 2
    frequency = 10000.0 ** (-torch.arange(half) / half)
    angle = torch.arange(length)[:, None] * frequency  # [T, E / 2]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


class Block(nn.Module):
    def __init__(self, modern):
        super().__init__()
        norm = (lambda: nn.RMSNorm(WIDTH, eps=1e-5)) if modern else (lambda: nn.LayerNorm(WIDTH))
        self.norm_1, self.norm_2 = norm(), norm()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=not modern)
        self.out = nn.Linear(WIDTH, WIDTH, bias=not modern)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=not modern)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=not modern)
        head = WIDTH // HEADS
        self.head_norms = nn.ModuleList(nn.RMSNorm(head, eps=1e-5) for _ in range(2)) if modern else None

    def attend(self, x):
        q, k, v = (t.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if self.head_norms is not None:
            q, k = (rotate(norm(t)) for norm, t in zip(self.head_norms, (q, k)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        x = x + self.attend(self.norm_1(x))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Model(nn.Module):
    def __init__(self, vocabulary, modern):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = None if modern else nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(modern) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5) if modern else nn.LayerNorm(WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:  # GPT-2: what is added to the residual stream is scaled down by its depth
                depth = 2 * LAYERS if name.endswith(("out.weight", "down.weight")) else 1
                nn.init.normal_(parameter, std=0.02 / math.sqrt(depth))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


def begin(model, path):
    """Takes the initial weights that Firelight wrote; its matrices are [in, out], PyTorch's [out, in]."""
    from safetensors.torch import load_file

    found = load_file(path)
    take = lambda name, turn=False: found.pop(name).T if turn else found.pop(name)
    both = lambda layer, name: (layer.weight.copy_(take(f"{name}.weight", True)), layer.bias.copy_(take(f"{name}.bias")))
    with torch.no_grad():
        model.tokens.weight.copy_(take("embedding.weight"))
        model.positions.weight.copy_(take(next(name for name in found if "position" in name)))
        for i, block in enumerate(model.blocks):
            part = f"transformer.blocks.{i}"
            query, key, value = (f"{part}.attention.projection.{name}" for name in ("query", "key", "value"))
            block.qkv.weight.copy_(torch.cat([take(f"{name}.weight", True) for name in (query, key, value)]))
            block.qkv.bias.copy_(torch.cat([take(f"{name}.bias") for name in (query, key, value)]))
            both(block.out, f"{part}.attention.output")
            both(block.up, f"{part}.feed_forward.up")
            both(block.down, f"{part}.feed_forward.down")
    others = [name for name in found if "norm" not in name]  # norms begin at 1 and 0 in both
    assert not others, f"not taken: {others}"


def mix(x):
    """The output function of SplitMix64."""
    whole = (1 << 64) - 1
    z = (x + 0x9E3779B97F4A7C15) & whole
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & whole
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & whole
    return z ^ (z >> 31)


def item(seed, position, count):
    """Firelight's order: a Feistel network for each epoch, walked until it lands below `count`."""
    epoch, place = divmod(position, count)
    key, half = mix(seed ^ mix(epoch)), ((count - 1).bit_length() + 1) // 2
    while True:
        left, right = place >> half, place & ((1 << half) - 1)
        for turn in range(6):
            left, right = right, left ^ (mix((key + turn) % (1 << 64) ^ mix(right)) & ((1 << half) - 1))
        place = left << half | right
        if place < count:
            return place


def learning_rate(step, peak, least):
    if step < WARMUP:
        return peak * (step + 1) / WARMUP
    return least + (peak - least) * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


@torch.no_grad()
def evaluate(model, ids):
    total, count = 0.0, 0
    for start in range(0, len(ids) - 1, LENGTH):
        x = ids[start : start + LENGTH + 1]
        loss = F.cross_entropy(model(x[None, :-1])[0], x[1:], reduction="sum")
        total, count = total + loss.item(), count + len(x) - 1
    return total / count


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--seed", type=int, default=1337)
    p.add_argument("--modern", action="store_true")
    p.add_argument("--learning-rate", type=float, default=1e-3)
    p.add_argument("--min-learning-rate", type=float, default=1e-4)
    p.add_argument("--beta-2", type=float, default=0.99)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--begin", metavar="FILE", help="begin with the weights of this file, and take batches in Firelight's order")
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    text = open(a.data, encoding="utf-8").read()
    index = {character: place for place, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([index[character] for character in text])
    cut = int(0.9 * len(ids))
    train, validation = ids[:cut], ids[cut:]
    model = Model(len(index), a.modern)
    if a.begin:
        begin(model, a.begin)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, a.learning_rate, betas=(0.9, a.beta_2))
    start = time.perf_counter()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, a.learning_rate, a.min_learning_rate)
        count = len(train) - LENGTH
        ordered = lambda: torch.tensor([[item(a.seed, BATCH * step + row, count)] for row in range(BATCH)])
        starts = ordered() if a.begin else torch.randint(count, (BATCH, 1))
        batch = train[starts + torch.arange(LENGTH + 1)]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"framework": f"pytorch {torch.__version__}", "seed": a.seed, "modern": a.modern, "parameters": parameters,
                      "validation_loss": round(evaluate(model, validation), 4), "seconds": round(time.perf_counter() - start)}))


if __name__ == "__main__":
    main()
