"""The training step of `dynmo bench gpu` in PyTorch, to compare with.

One JSON object per line, in the form of dynmo bench --json, as soon as it is
known: the rate of a product of two bf16 matrices of 8192 x 8192, then tokens per
second of training steps in bf16 with scaled_dot_product_attention, torch.compile,
gradient clipping and the fused AdamW, in these variants:

    bf16_model      parameters, gradients and moments in bf16: less to move than
                    what dynmo keeps in float32, and less exact; the whole model
                    compiled at once
    autocast_model  float32 parameters, arithmetic in bf16 by autocast
    *_block         every block compiled, which is quick

A variant that would begin after the time limit, or that fails, is named on
standard error and left out.

    python3 bench/gpu_pytorch.py [--seconds 140] [--quick]
"""

import argparse
import json
import math
import signal
import statistics
import sys
import time

try:
    import torch
    import torch._dynamo
    import torch.nn.functional as F
    from torch import nn
except ImportError as missing:
    sys.exit(f"gpu_pytorch: {missing}")

BLOCKS, HIDDEN, HEADS, SEQUENCE, VOCABULARY = 24, 1024, 16, 2048, 50304
MICROBATCHES, SEQUENCES = 4, 2
WARMUP, ROUNDS = 4, 10


class Block(nn.Module):
    """Pre-norm attention and MLP with residuals (GPT-2), biases everywhere."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = [y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(self.norm1(x)).split(c, dim=2)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Embedding, blocks, and a head of its own (not tied), as dynmo measures it."""

    def __init__(self, blocks, hidden, heads, sequence, vocabulary):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, hidden), nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                narrow = math.sqrt(2 * blocks) if "proj" in name or "down" in name else 1
                nn.init.normal_(parameter, std=0.02 / narrow)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def tell(name, value, unit, wrong):
    """Prints one figure."""
    figure = {"name": "pytorch/" + name, "value": 0 if wrong else value, "unit": unit,
              "ok": not wrong, "clock": "wall", "wrong": int(wrong)}
    print(json.dumps(figure), flush=True)


def intervals(call, rounds, warmup=WARMUP):
    """The median seconds of a call, between events, with no wait in between."""
    for _ in range(warmup):
        call()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / 1e3


def gemm(n):
    """Tells the rate of out = x·wᵀ, with sampled elements compared with float64."""
    x, w = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    seconds = intervals(lambda: x @ w.T, 20, warmup=100)  # an idle GPU has to raise its clocks
    rows = torch.arange(0, n, max(1, n // 16), device="cuda")
    got, want = (x @ w.T)[rows].double(), x[rows].double() @ w.double().T
    wrong = ((got - want).abs() > want.abs() / 128 + n * 1e-5).sum().item()
    tell(f"gemm_bf16_{n}", 2 * n**3 / seconds / 1e12, "TFLOP/s", wrong)


class Trainer:
    """Steps on one batch, in a variant."""

    def __init__(self, shape, kind, compiled):
        torch.manual_seed(1)
        torch._dynamo.reset()
        vocabulary, sequence = shape["vocabulary"], shape["sequence"]
        with torch.device("cuda"):
            model = GPT(**shape)
        self.autocast = kind == "autocast"
        if not self.autocast:
            model = model.to(torch.bfloat16)
        if compiled == "block":
            for block in model.blocks:
                block.compile(dynamic=False)
            model.forward = uncompiled_but_loss(model)
        else:
            model.compile(dynamic=False)
        self.model, self.parameters = model, list(model.parameters())
        decayed = [p for p in self.parameters if p.dim() == 2]
        plain = [p for p in self.parameters if p.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
        stream = torch.randint(vocabulary, (MICROBATCHES * SEQUENCES * sequence + 1,), device="cuda")
        size = (MICROBATCHES, SEQUENCES, sequence)
        self.tokens, self.targets = stream[:-1].view(size), stream[1:].view(size)
        self.losses = []

    def step(self):
        """All microbatches forward and backward, norm, update."""
        total = 0
        for tokens, targets in zip(self.tokens, self.targets):
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.autocast):
                loss = self.model(tokens, targets) / MICROBATCHES
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(total)

    def wrong(self, vocabulary):
        """Whether the losses are not those of a model that trains."""
        first, last = self.losses[0].item(), self.losses[-1].item()
        return not (abs(first - math.log(vocabulary)) < 0.5 and last < first)


def uncompiled_but_loss(model):
    """The model's forward around compiled blocks, with the end compiled too: norm,
    head and loss without a float32 copy of the logits."""
    def end(x, targets):
        logits = model.head(model.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    end = torch.compile(end, dynamic=False)

    def forward(tokens, targets):
        x = model.token(tokens) + model.position.weight[: tokens.shape[1]]
        for block in model.blocks:
            x = block(x)
        return end(x, targets)

    return forward


class TimeIsUp(Exception):
    """The time limit came in the middle of a variant."""


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=int, default=140, help="time limit")
    arguments.add_argument("--quick", action="store_true", help="small shapes: whether all runs")
    a = arguments.parse_args()
    begin = time.monotonic()
    if not torch.cuda.is_available():
        print("gpu_pytorch: PyTorch sees no GPU", file=sys.stderr)
        return 2
    shape = dict(blocks=BLOCKS, hidden=HIDDEN, heads=HEADS, sequence=SEQUENCE, vocabulary=VOCABULARY)
    if a.quick:
        shape = dict(blocks=2, hidden=64, heads=2, sequence=64, vocabulary=503)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", file=sys.stderr, flush=True)

    def up(*_):
        raise TimeIsUp

    signal.signal(signal.SIGALRM, up)
    for limit in "recompile_limit", "cache_size_limit":  # one block's code serves all, but for its parameters
        if hasattr(torch._dynamo.config, limit):
            setattr(torch._dynamo.config, limit, 4 * BLOCKS)
    gemm(256 if a.quick else 8192)
    best = 0.0
    for kind, compiled in ("bf16", "model"), ("autocast", "model"), ("bf16", "block"), ("autocast", "block"):
        name, left = f"{kind}_{compiled}", int(a.seconds - (time.monotonic() - begin))
        trainer = None
        try:
            if left < 10:
                raise TimeIsUp
            signal.alarm(left)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            trainer = Trainer(shape, kind, compiled)
            seconds = intervals(trainer.step, ROUNDS)
            wrong, speed = trainer.wrong(shape["vocabulary"]), trainer.tokens.numel() / seconds
            tell(f"step_{name}", speed, "tokens/s", wrong)
            tell(f"step_{name}_memory", torch.cuda.max_memory_allocated() / 2**30, "GiB", wrong)
            best = best if wrong else max(best, speed)
        except TimeIsUp:
            print(f"gpu_pytorch: no time left for {name}", file=sys.stderr, flush=True)
        except Exception as failed:  # the other variants may still run
            print(f"gpu_pytorch: {name}: {failed}", file=sys.stderr, flush=True)
        finally:
            signal.alarm(0)
            del trainer
    tell("step_tokens_per_second", best, "tokens/s", best == 0)
    return 0 if best else 1


if __name__ == "__main__":
    sys.exit(main())
