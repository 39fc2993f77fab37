"""Training steps of GPT-2 124M in PyTorch on one CPU thread, for bench/cpu_pytorch.sh.

Reads lines "KIND SEQUENCES LENGTH" and answers each with the seconds of CPU time of a
step, the median of three after one that does not count. A step is forward, backward, norm, update; AdamW is fused (foreach
takes longer). As in
`dynmo bench step`, steps go on from the first weights, on one batch of random tokens: the
loss must be near ln(vocabulary) at first, and fall. A kind is f32 or bf16 (autocast),
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
import torch._inductor.cpu_vec_isa
from gpu_pytorch import GPT
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

VOCABULARY, WARMUP, STEPS = 50257, 1, 3


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


class Trainer:
    """Steps of one model, which all kinds share."""

    def __init__(self):
        torch.manual_seed(1)
        self.model = GPT(blocks=12, hidden=768, heads=12, sequence=1024, vocabulary=VOCABULARY)
        self.model.head.weight = self.model.token.weight
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
        stream = torch.randint(VOCABULARY, (sequences * length + 1,))
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
        if abs(losses[0] - math.log(VOCABULARY)) > 0.5 or losses[-1] >= losses[0]:
            sys.exit(f"cpu_pytorch: {kind}: losses {losses} are not those of a model that trains")
        return statistics.median(spent[WARMUP:])


def summary(path):
    """Prints a table of the lines "ROUND LENGTH NAME SECONDS" of a file: the median of the
    ratios of rounds, with quartiles."""
    seconds = {}
    for line in open(path, encoding="ascii"):
        turn, length, name, spent = line.split()
        seconds.setdefault((int(length), name), {})[turn] = float(spent)
    print(f"{'tokens':<8} {'PyTorch':<14} {'dynmo':<6} {'PyTorch / dynmo':>15} {'quartiles':>16} {'rounds':>6}")
    for (length, name), theirs in sorted(seconds.items()):
        if name.startswith("dynmo"):
            continue
        for ours in "f32", "bf16":
            if (length, "dynmo_" + ours) not in seconds:
                continue
            ratios = [theirs[turn] / spent for turn, spent in seconds[length, "dynmo_" + ours].items()]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            print(f"4 x {length:<4} {name:<14} {ours:<6} {middle:15.2f} {f'{low:.2f} to {high:.2f}':>16} {len(ratios):6}")


def main():
    if len(sys.argv) == 2:
        return summary(sys.argv[1])
    torch.set_num_threads(1)
    trainer = Trainer()
    for line in sys.stdin:
        if line.strip() == "versions":
            print(versions(), flush=True)
            continue
        kind, sequences, length = line.split()
        print(trainer.seconds(kind, int(sequences), int(length)), flush=True)


if __name__ == "__main__":
    main()
