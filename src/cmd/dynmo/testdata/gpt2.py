"""Reads a Hugging Face GPT-2 directory and computes the loss of a text: the standard
library alone, float64, one number after the other. Nothing here is dynmo's.

usage: gpt2.py DIR TEXT
"""
import json
import math
import struct
import sys

directory, text = sys.argv[1:]


def load(name):
    with open(f"{directory}/{name}", encoding="utf-8") as f:
        return json.load(f)


config, generation, vocab = load("config.json"), load("generation_config.json"), load("vocab.json")
layers, width, heads = config["n_layer"], config["n_embd"], config["n_head"]
assert config["model_type"] == "gpt2" and config["architectures"] == ["GPT2LMHeadModel"] and config["tie_word_embeddings"]
assert generation["eos_token_id"] == config["eos_token_id"]
assert load("tokenizer_config.json")["tokenizer_class"] == "GPT2Tokenizer"
with open(f"{directory}/merges.txt", encoding="utf-8") as f:
    assert f.read() == "#version: 0.2\n"

# safetensors: u64 length, JSON, data.
with open(f"{directory}/model.safetensors", "rb") as f:
    raw = f.read()
length = struct.unpack("<Q", raw[:8])[0]
header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
assert header.pop("__metadata__") == {"format": "pt"}

# The keys and shapes of GPT2LMHeadModel.state_dict(), whose lm_head.weight is tied.
shapes = {"wte.weight": [config["vocab_size"], width], "wpe.weight": [config["n_positions"], width],
          "ln_f.weight": [width], "ln_f.bias": [width]}
for i in range(layers):
    for part in ("ln_1", "ln_2"):
        shapes[f"h.{i}.{part}.weight"] = shapes[f"h.{i}.{part}.bias"] = [width]
    for part, (n, m) in {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}.items():
        shapes[f"h.{i}.{part}.weight"], shapes[f"h.{i}.{part}.bias"] = [n * width, m * width], [m * width]
assert {name: t["shape"] for name, t in header.items()} == {"transformer." + k: v for k, v in shapes.items()}

tensors, end = {}, 0
for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, stop = t["data_offsets"]
    assert begin == end and t["dtype"] == "F32" and stop - begin == 4 * math.prod(t["shape"])
    tensors[name.removeprefix("transformer.")] = struct.unpack(f"<{(stop - begin) // 4}f", data[begin:stop])
    end = stop
assert end == len(data)


def spelt():
    """GPT-2's letters for bytes."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


letters = spelt()
tokens = [vocab[letters[b]] for b in text.encode()]


def row(name, i):
    return tensors[name][i * width : (i + 1) * width]


def norm(name, x):
    mean = math.fsum(x) / width
    variance = math.fsum((v - mean) ** 2 for v in x) / width
    return [(v - mean) / math.sqrt(variance + 1e-5) * w + b for v, w, b in zip(x, tensors[name + ".weight"], tensors[name + ".bias"])]


def conv1d(name, x):
    weight, y = tensors[name + ".weight"], list(tensors[name + ".bias"])
    for i, v in enumerate(x):
        for o in range(len(y)):
            y[o] += v * weight[i * len(y) + o]
    return y


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    return [v / math.fsum(e) for v in e]


def dot(x, y):
    return math.fsum(a * b for a, b in zip(x, y))


def gelu(v):
    return v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


xs = [[a + b for a, b in zip(row("wte.weight", token), row("wpe.weight", t))] for t, token in enumerate(tokens)]
size = width // heads
for i in range(layers):
    qkv = [conv1d(f"h.{i}.attn.c_attn", norm(f"h.{i}.ln_1", x)) for x in xs]
    for t, x in enumerate(xs):
        out = []
        for lo in range(0, width, size):
            cut = lambda r, part: r[part * width + lo :][:size]
            p = softmax([dot(cut(qkv[t], 0), cut(qkv[s], 1)) / math.sqrt(size) for s in range(t + 1)])
            out += [dot(p, [cut(qkv[s], 2)[j] for s in range(t + 1)]) for j in range(size)]
        x = [a + b for a, b in zip(x, conv1d(f"h.{i}.attn.c_proj", out))]
        inner = [gelu(v) for v in conv1d(f"h.{i}.mlp.c_fc", norm(f"h.{i}.ln_2", x))]
        xs[t] = [a + b for a, b in zip(x, conv1d(f"h.{i}.mlp.c_proj", inner))]

losses, greedy = [], []
for t, x in enumerate(xs):
    last = norm("ln_f", x)
    p = softmax([dot(last, row("wte.weight", v)) for v in range(config["vocab_size"])])
    greedy.append(p.index(max(p)))
    if t + 1 < len(tokens):
        losses.append(-math.log(p[tokens[t + 1]]))
matrices = [v for name, values in tensors.items() if ".attn.c_" in name or ".mlp.c_" in name if name.endswith("weight") for v in values]
print(json.dumps({"tokens": tokens, "loss": math.fsum(losses), "next": greedy[-1], "zeros": matrices.count(0) / len(matrices)}))
