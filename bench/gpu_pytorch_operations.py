"""The operations of `dynmo bench gpu` in PyTorch, to compare with.

Reads the figures of `dynmo bench gpu --json` and measures those that PyTorch has, at the
shapes that their names say or that the table below has: one JSON object per line, in the
same form and under the same name with "pytorch/" for "gpu/", in microseconds. Attention is
scaled_dot_product_attention by FlashAttention and by cuDNN, the faster of which counts and
is named by the unit; norms, cross-entropy and GELU are as autograd has them; the update is
the fused AdamW on float32 weights, without the copy in bf16 that dynmo writes too.

    python3 bench/gpu_pytorch_operations.py FIGURES.json [--seconds 60] [--device cuda]
"""

import argparse
import json
import re
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    sys.exit(f"gpu_pytorch_operations: {missing}")

WARMUP, ROUNDS = 5, 20
TOKENS, CHANNELS = 1 << 16, 1024  # of the norms
SEQUENCES, LENGTH = 8, 2048  # of attention, whose heads have CHANNELS together
LOGITS = 4096, 50257
WEIGHTS = 10**8
ELEMENTS = 1 << 28  # of GELU

device = torch.device("cuda")
shrink = 1  # of shapes, to try the script out without a GPU


def seconds(call):
    """The median seconds of a call."""
    for _ in range(WARMUP):
        call()
    if device.type != "cuda":
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin
    events = [torch.cuda.Event(enable_timing=True) for _ in range(ROUNDS + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / 1e3


def tell(name, value, unit="us"):
    """Prints the seconds of an operation."""
    figure = {"name": f"pytorch/{name}_time", "value": value * 1e6, "unit": unit, "ok": True, "clock": "wall", "wrong": 0}
    print(json.dumps(figure), flush=True)


def normal(*shape, dtype=torch.bfloat16, gradient=False):
    shape = [max(8, n // shrink) for n in shape]
    return torch.randn(*shape, device=device, dtype=dtype, requires_grad=gradient)


def product(which, n, c, o):
    """A pass of a linear layer; its gradients are in bf16, where dynmo adds to float32."""
    x, w, dy = normal(n, c), normal(o, c), normal(n, o)
    head = o > 50000  # which has no bias
    if which == "forward":
        bias = None if head else normal(o)
        tell(f"product_forward_{n}x{c}x{o}", seconds(lambda: F.linear(x, w, bias)))
    elif which == "backward_input":
        tell(f"product_backward_input_{n}x{c}x{o}", seconds(lambda: dy @ w))
    else:
        def gradients():
            return dy.T @ x, head or dy.sum(0)
        tell(f"product_backward_weight_{n}x{c}x{o}", seconds(gradients))


def attention(size):
    """Causal attention, forward and backward, by the faster of two libraries."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backends = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION"} if device.type == "cuda" else {"math": "MATH"}
    heads, best = CHANNELS // size, {}
    q, k, v = (normal(SEQUENCES, heads, LENGTH, size, gradient=True) for _ in range(3))
    for name, value in backends.items():
        if not hasattr(SDPBackend, value):
            continue
        with sdpa_kernel(getattr(SDPBackend, value)):
            try:
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                dy = torch.randn_like(out)
                forward = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
                backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), dy, retain_graph=True))
            except RuntimeError as failed:
                print(f"gpu_pytorch_operations: attention by {name}: {str(failed).splitlines()[0]}", file=sys.stderr)
                continue
            for which, value in ("forward", forward), ("backward", backward):
                best[which] = min(best.get(which, (value, name)), (value, name))
    for which, (value, name) in best.items():
        tell(f"attention_{which}_hs{size}", value, f"us, {name}")


def norm(name, call, *parameters):
    """A norm, forward and both halves of backward together."""
    x = normal(TOKENS, CHANNELS, gradient=True)
    out = call(x)
    dy = torch.randn_like(out)
    tell(f"{name}_forward", seconds(lambda: call(x)))
    tell(f"{name}_backward", seconds(lambda: torch.autograd.grad(out, (x, *parameters), dy, retain_graph=True)))


def layernorm():
    w, b = normal(CHANNELS, gradient=True), normal(CHANNELS, gradient=True)
    norm("layernorm", lambda x: F.layer_norm(x, w.shape, w, b), w, b)


def rmsnorm():
    w = normal(CHANNELS, gradient=True)
    if hasattr(F, "rms_norm"):
        norm("rmsnorm", lambda x: F.rms_norm(x, w.shape, w), w)


def cross_entropy():
    logits = normal(*LOGITS, gradient=True)
    targets = torch.randint(logits.shape[1], (logits.shape[0],), device=device)
    tell("cross_entropy", seconds(lambda: torch.autograd.grad(F.cross_entropy(logits, targets), logits)))


def adamw():
    w = normal(WEIGHTS, dtype=torch.float32, gradient=True)
    w.grad = torch.randn_like(w)
    step = torch.optim.AdamW([w], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=device.type == "cuda").step
    tell("adamw", seconds(step))


def gelu():
    x = normal(ELEMENTS, gradient=True)
    out = F.gelu(x, approximate="tanh")
    dy = torch.randn_like(out)
    tell("gelu_forward", seconds(lambda: F.gelu(x, approximate="tanh")))
    tell("gelu_backward", seconds(lambda: torch.autograd.grad(out, x, dy, retain_graph=True)))


def wanted(names):
    """The measurements of the figures of these names, each once, the products last."""
    for size in (int(m[1]) for m in (re.fullmatch(r"attention_forward_hs(\d+)_time", n) for n in names) if m):
        yield f"attention hs{size}", lambda size=size: attention(size)
    for name, call in ("layernorm_forward", layernorm), ("rmsnorm_forward", rmsnorm), ("cross_entropy", cross_entropy), \
            ("adamw", adamw), ("gelu_forward", gelu):
        if name + "_time" in names:
            yield name, call
    for name in names:
        if m := re.fullmatch(r"product_(forward|backward_input|backward_weight)_(\d+)x(\d+)x(\d+)_time", name):
            yield name, lambda m=m: product(m[1], *map(int, m.groups()[1:]))


def main():
    global device, shrink
    arguments = argparse.ArgumentParser()
    arguments.add_argument("figures")
    arguments.add_argument("--seconds", type=int, default=60, help="time limit")
    arguments.add_argument("--device", default="cuda", help="cpu: small shapes, whether all runs")
    a = arguments.parse_args()
    begin, device = time.monotonic(), torch.device(a.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("gpu_pytorch_operations: PyTorch sees no GPU", file=sys.stderr)
        return 2
    if device.type != "cuda":
        shrink = 64
    names = [json.loads(line)["name"].split("/", 1)[1] for line in open(a.figures) if line.startswith("{")]
    failed = 0
    for name, measure in wanted(names):
        if time.monotonic() - begin > a.seconds:
            print(f"gpu_pytorch_operations: no time left for {name}", file=sys.stderr)
            break
        try:
            measure()
        except Exception as error:  # the others may still run
            failed = 1
            print(f"gpu_pytorch_operations: {name}: {error}", file=sys.stderr, flush=True)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
