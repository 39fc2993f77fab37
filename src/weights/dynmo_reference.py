"""The logits of this model, in plain PyTorch: python3 dynmo_reference.py DIR TOKEN...

A LLaMA-MoE (Zhu et al. 2024), or a GPT-2, LLaMA, Mixtral or LLaMA-MoE whose tokens leave at exits (dynamic.kind exit: Schuster et al. 2022, with
propagated states), whose blocks take some tokens only (mod: Raposo et al. 2024), or whose queries see the
keys of their own bucket only (attention: Pagliardini et al. 2023). config.json and model.safetensors are
Hugging Face's; dynmo.json and dynmo.safetensors have the rest (DYNMO.md).
It prints, for each token, a line of JSON: the blocks before the token left, and the logits of the next.
"""
import glob
import json
import math
import struct
import sys

import torch


def read(directory):
    tensors, types = {}, {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    for path in glob.glob(directory + "/*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = bytearray(file.read())
        for name, t in header.items():
            if name != "__metadata__":
                lo, hi = t["data_offsets"]
                tensors[name] = torch.frombuffer(data[lo:hi], dtype=types[t["dtype"]]).reshape(t["shape"]).float()
    return tensors


class Model:
    def __init__(self, directory):
        self.w = read(directory)
        self.config, kinds = (json.load(open(directory + name)) for name in ("/config.json", "/dynmo.json"))
        self.exits, self.thresholds, self.depths = kinds.get("exit"), kinds.get("thresholds"), kinds.get("mod")
        self.projections = [torch.tensor(p) for p in kinds.get("projections") or []]  # of each block (heads, buckets/2, size)
        self.type = self.config["model_type"]
        if self.type not in ("gpt2", "llama", "mistral", "mixtral", "llama_moe"):
            raise SystemExit("a model_type of gpt2, llama, mistral, mixtral or llama_moe is wanted")
        self.gpt2 = self.type == "gpt2"
        self.blocks = self.config["n_layer" if self.gpt2 else "num_hidden_layers"]
        self.heads = self.config["n_head" if self.gpt2 else "num_attention_heads"]

    def norm(self, name, x):
        if not self.gpt2:
            return x / torch.sqrt((x * x).mean(-1)[:, None] + self.config["rms_norm_eps"]) * self.w[name + ".weight"]
        x = x - x.mean(-1)[:, None]
        return x / torch.sqrt((x * x).mean(-1)[:, None] + 1e-5) * self.w[name + ".weight"] + self.w[name + ".bias"]

    def linear(self, name, x):  # GPT-2's are (in, out), all others (out, in)
        w = self.w[name + ".weight" if name + ".weight" in self.w else name]  # LLaMA-MoE's experts are named without it
        y = x @ w if name.startswith("transformer.") else x @ w.T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def turned(self, x, positions):  # (heads, T, size)
        half = x.shape[-1] // 2
        frequency = self.config.get("rope_theta", 10000.0) ** (-torch.arange(half) / half)
        scaling, kept = self.config.get("rope_scaling"), 0
        if scaling:
            if scaling.get("rope_type") == "llama3":
                turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
                low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
                kept = ((turns - low) / (high - low)).clip(0, 1)
            frequency = (kept + (1 - kept) / scaling["factor"]) * frequency
        angle = positions[:, None] * frequency[None, :]
        cos, sin, a, b = torch.cos(angle), torch.sin(angle), x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def bucket(self, i, x):  # of a query or key (heads, T, size)
        products = x @ self.projections[i].swapaxes(1, 2)
        return torch.cat([products, -products], -1).argmax(-1)

    def attend(self, i, at, x, keys):  # keys: which tokens have keys and values
        positions, split = torch.arange(len(x)), lambda y: y.reshape(len(x), -1, width // self.heads).swapaxes(0, 1)
        width = x.shape[-1]
        if self.gpt2:
            qkv = self.linear(at + "attn.c_attn", self.norm(at + "ln_1", x))
            q, k, v = (split(qkv[:, i * width:(i + 1) * width]) for i in range(3))
        else:
            y = self.norm(at + "input_layernorm", x)
            q, k, v = (split(self.linear(at + f"self_attn.{name}_proj", y)) for name in "qkv")
            q, k = self.turned(q, positions), self.turned(k, positions)
            group = [head * len(k) // self.heads for head in range(self.heads)]
            k, v = k[group], v[group]
        seen = keys[None, :] & (positions[:, None] >= positions[None, :]) | (positions[:, None] == positions[None, :])
        if self.projections:
            seen = seen & (self.bucket(i, q)[:, :, None] == self.bucket(i, k)[:, None, :])
        scores = torch.where(seen, q @ k.swapaxes(1, 2) / math.sqrt(width // self.heads), -1e30)
        y = ((torch.softmax(scores, -1) * seen) @ v).swapaxes(0, 1).reshape(len(x), width)
        return self.linear(at + ("attn.c_proj" if self.gpt2 else "self_attn.o_proj"), y)

    def block(self, i, x, keys):
        at = f"transformer.h.{i}." if self.gpt2 else f"model.layers.{i}."
        x = x + self.attend(i, at, x, keys)
        if self.gpt2:
            y = self.linear(at + "mlp.c_fc", self.norm(at + "ln_2", x))
            y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y)))
            return x + self.linear(at + "mlp.c_proj", y)
        y = self.norm(at + "post_attention_layernorm", x)
        if self.type in ("llama", "mistral"):
            return x + self.gated(at + "mlp.", y, "gate_proj", "up_proj", "down_proj")
        if self.type == "mixtral":
            at, names, top, scale = at + "block_sparse_moe.", "experts.{e}.w1 experts.{e}.w3 experts.{e}.w2", self.config["num_experts_per_tok"], 1.0
            scores = self.linear(at + "gate", y)
        else:
            names, top, scale = "weight_gate.{e} weight_up.{e} weight_down.{e}", self.config["num_selects"], self.config.get("score_scale_factor", 1.0)
            scale, gate = scale[i] if isinstance(scale, list) else scale, at + "mlp.gate.gate_network"
            deep = gate + ".0.weight" in self.w
            scores = self.linear(gate + ".2", torch.tanh(self.linear(gate + ".0", y))) if deep else self.linear(gate, y)
            at += "mlp.calculator.experts."
        p = torch.softmax(scores, -1)
        likelier = (p[:, None, :] > p[:, :, None]).sum(-1)  # the number of experts that are likelier
        p = torch.where(likelier < top, p, 0.0)
        for e, weight in enumerate((scale * p / p.sum(-1)[:, None]).T):
            x = x + weight[:, None] * self.gated(at, y, *names.format(e=e).split())
        return x

    def gated(self, at, y, gate, up, down):
        gate = self.linear(at + gate, y)
        return self.linear(at + down, gate * torch.sigmoid(gate) * self.linear(at + up, y))

    def taken(self, i, x):  # the tokens that a routed block takes, and their gates
        gate = torch.sigmoid(self.linear(f"block.{i}/depths.router", x)[:, 0])
        takes = gate > 0.5
        if self.depths["Predictor"]:
            y = self.linear(f"block.{i}/depths.predictor.up", x)
            y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y)))
            takes = torch.sigmoid(self.linear(f"block.{i}/depths.predictor.down", y)[:, 0]) > self.depths["Threshold"]
        return takes, torch.ones(len(x)) if self.depths["One"] else gate

    def confidence(self, k, front, x, logits):
        if self.exits["Confidence"] == "classifier":
            return torch.softmax(self.linear(f"exit.{k}/classifier", x), -1)[:, 1]
        if self.exits["Confidence"] == "softmax":
            return torch.softmax(logits, -1).amax(-1)
        return (front * x).sum(-1) / torch.sqrt((front * front).sum(-1) * (x * x).sum(-1))

    def logits(self, tokens):
        """The logits (T, V) behind each token, and the blocks before each left."""
        token = self.w["transformer.wte.weight" if self.gpt2 else "model.embed_tokens.weight"]
        head = self.w.get("lm_head.weight", token)
        x = token[tokens]
        if self.gpt2:
            x = x + self.w["transformer.wpe.weight"][:len(tokens)]
        there, out = torch.ones(len(tokens)) > 0, torch.zeros((len(tokens), len(token)))
        left = [self.blocks] * len(tokens)
        after = [int(n) for n in self.exits["After"].split(",")] if self.exits else []
        for i in range(self.blocks):
            front, keys, gate = x, torch.ones(len(x)) > 0, torch.ones(len(x))
            if self.depths and i % 2 == 1:
                keys, gate = self.taken(i, x)
            y = (1 - gate)[:, None] * x + gate[:, None] * self.block(i, x, keys)
            x = torch.where((there & keys)[:, None], y, x)  # states of tokens that left stay, and have keys and values
            if i + 1 in after:
                k = after.index(i + 1)
                logits = self.norm(f"exit.{k}/norm", x) @ self.w.get(f"exit.{k}/head.weight", token).T
                leaves = there & (self.confidence(k, front, x, logits) > self.thresholds[k])
                out, there = torch.where(leaves[:, None], logits, out), there & ~leaves
                left = [i + 1 if gone else n for gone, n in zip(leaves.tolist(), left)]
        last = self.norm("transformer.ln_f" if self.gpt2 else "model.norm", x) @ head.T
        return torch.where(there[:, None], last, out), left


if __name__ == "__main__":
    logits, left = Model(sys.argv[1]).logits([int(token) for token in sys.argv[2:]])
    for blocks, row in zip(left, logits.tolist()):
        print(json.dumps({"blocks": blocks, "logits": row}))
