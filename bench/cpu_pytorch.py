"""Training steps in PyTorch on one CPU thread, for bench/cpu_pytorch.sh: of GPT-2 124M, and of
the LLaMA and the mixture of experts of `dynmo bench step --model`.

Reads lines "MODEL KIND SEQUENCES LENGTH" and answers each with the seconds of CPU time of a
step, the median of three after one that does not count. A step is forward, backward, norm,
update; AdamW is fused (foreach takes longer). As in `dynmo bench step`, steps go on from the
first weights, on one batch of random tokens: the loss must be near ln(vocabulary) at first,
and fall. A kind is f32 or bf16 (autocast),
then _eager or _compiled (torch.compile). The answer to "versions" names all that computes.

Attention is scaled_dot_product_attention. In bf16 it takes the backend MATH: in a PyTorch
without MKL the fused backend has slow products in bf16 (a step of 4 x 256 tokens took 3.1 times as long).
"""

import ctypes
import math
import statistics
import sys
import time

import torch
import torch._dynamo
import torch._inductor.cpu_vec_isa
import torch.nn.functional as F
from gpu_pytorch import GPT
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

WARMUP, STEPS = 1, 3


def versions():
    """Names PyTorch, its oneDNN and vector instructions, and the BLAS with its core."""
    onednn = [line for line in torch.__config__.show().splitlines() if "MKL-DNN" in line]
    found = [torch.__version__, torch.backends.cpu.get_cpu_capability(), *(s.strip(" -") for s in onednn),
             f"torch.compile for {torch._inductor.cpu_vec_isa.pick_vec_isa()}"]
    try:
        config = ctypes.CDLL("libopenblas.so.0").openblas_get_config
        config.restype = ctypes.c_char_p
        found.append(config().decode())
    except OSError:
        found.append("no libopenblas.so.0: another BLAS")
    return ", ".join(found)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate, self.up = nn.Linear(hidden, intermediate, bias=False), nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """The top experts of a token, weighted by their softmax: expert by expert, as it is usually written."""

    def __init__(self, hidden, intermediate, count, top):
        super().__init__()
        self.top, self.router = top, nn.Linear(hidden, count, bias=False)
        self.experts = nn.ModuleList(MLP(hidden, intermediate) for _ in range(count))

    def forward(self, x):
        flat = x.view(-1, x.shape[-1])
        weights, chosen = F.softmax(self.router(flat).float(), dim=-1).topk(self.top)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, place = torch.where(chosen == i)
            out.index_add_(0, token, (expert(flat[token]) * weights[token, place, None]).to(out.dtype))
        return out.view_as(x)


class LlamaBlock(nn.Module):
    """Attention with rotary positions and shared keys and values, then an MLP or experts."""

    def __init__(self, hidden, heads, shared, mlp):
        super().__init__()
        self.width, self.shared = hidden // heads, shared
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.query, self.key, self.value = [nn.Linear(hidden, n * self.width, bias=False) for n in (heads, shared, shared)]
        self.proj, self.mlp = nn.Linear(hidden, hidden, bias=False), mlp

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        n = self.norm1(x)
        q, k, v = [y.view(b, t, -1, self.width).transpose(1, 2) for y in (self.query(n), self.key(n), self.value(n))]
        q, k = [y * cos + torch.cat((-y[..., self.width // 2:], y[..., : self.width // 2]), -1) * sin for y in (q, k)]
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    """12 blocks of LLaMA; with experts those of Mixtral."""

    def __init__(self, vocabulary, mlp, blocks=12, hidden=768, heads=12, shared=4, sequence=1024):
        super().__init__()
        self.token = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(LlamaBlock(hidden, heads, shared, mlp()) for _ in range(blocks))
        self.norm, self.head = nn.RMSNorm(hidden, eps=1e-5), nn.Linear(hidden, vocabulary, bias=False)
        width = hidden // heads
        angle = torch.outer(torch.arange(sequence), 10000 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x, self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def gpt2():
    model = GPT(blocks=12, hidden=768, heads=12, sequence=1024, vocabulary=50257)
    model.head.weight = model.token.weight
    return model


MODELS = {"gpt2": gpt2, "llama": lambda: Llama(32000, lambda: MLP(768, 2048)),
          "mixtral": lambda: Llama(32000, lambda: Experts(768, 512, 8, 2))}


class Trainer:
    """Steps of one model, which all kinds share."""

    def __init__(self, name):
        torch.manual_seed(1)
        torch._dynamo.reset()
        self.model = MODELS[name]()
        self.vocabulary = self.model.token.weight.shape[0]
        self.compiled = torch.compile(self.model, dynamic=False)
        self.parameters = list(self.model.parameters())
        self.first = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)

    def seconds(self, kind, sequences, length):
        """The CPU time of a step."""
        precision, how = kind.split("_")
        model = {"eager": self.model, "compiled": self.compiled}[how]
        rounded = {"f32": False, "bf16": True}[precision]
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.first)
        self.optimizer.state.clear()
        stream = torch.randint(self.vocabulary, (sequences * length + 1,))
        tokens, targets = stream[:-1].view(sequences, length), stream[1:].view(sequences, length)
        losses, spent = [], []
        for _ in range(WARMUP + STEPS):
            begin = time.process_time()
            self.optimizer.zero_grad(set_to_none=True)
            with sdpa_kernel(SDPBackend.MATH if rounded else SDPBackend.FLASH_ATTENTION), torch.autocast("cpu", torch.bfloat16, enabled=rounded):
                loss = model(tokens, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
            losses.append(loss.item())
            spent.append(time.process_time() - begin)
        if abs(losses[0] - math.log(self.vocabulary)) > 0.5 or losses[-1] >= losses[0]:
            sys.exit(f"cpu_pytorch: {kind}: losses {losses} are not those of a model that trains")
        return statistics.median(spent[WARMUP:])


def summary(path):
    """Prints a table of the lines "ROUND MODEL LENGTH NAME SECONDS" of a file: the median of the
    ratios of rounds, with quartiles."""
    seconds = {}
    for line in open(path, encoding="ascii"):
        turn, model, length, name, spent = line.split()
        seconds.setdefault((model, int(length), name), {})[turn] = float(spent)
    print(f"{'model':<8} {'tokens':<8} {'PyTorch':<14} {'dynmo':<6} {'PyTorch / dynmo':>15} {'quartiles':>16} {'rounds':>6}")
    for (model, length, name), theirs in sorted(seconds.items()):
        if name.startswith("dynmo"):
            continue
        for ours in "f32", "bf16":
            if (model, length, "dynmo_" + ours) not in seconds:
                continue
            ratios = [theirs[turn] / spent for turn, spent in seconds[model, length, "dynmo_" + ours].items()]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            print(f"{model:<8} 4 x {length:<4} {name:<14} {ours:<6} {middle:15.2f} {f'{low:.2f} to {high:.2f}':>16} {len(ratios):6}")


def main():
    if len(sys.argv) == 2:
        return summary(sys.argv[1])
    torch.set_num_threads(1)
    name, trainer = None, None
    for line in sys.stdin:
        if line.strip() == "versions":
            print(versions(), flush=True)
            continue
        wanted, kind, sequences, length = line.split()
        if wanted != name:
            name, trainer = wanted, None  # one model at a time is in memory
            trainer = Trainer(name)
        print(trainer.seconds(kind, int(sequences), int(length)), flush=True)


if __name__ == "__main__":
    main()
