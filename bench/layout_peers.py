"""Judge the cases of TestPeers (src/lab/layouts) with the trainers' own code.

Functions and classes are taken out of the trainers' files and run with stand-ins for torch and for
process groups. Usage: layout_peers.py CASES TRAINER=CHECKOUT ...
"""

import ast
import collections
import contextlib
import enum
import json
import sys
import types
import typing


def take(checkout, path, names, stand_ins):
    """Run the named definitions of a file, with stand-ins for what they import."""
    with open(f"{checkout}/{path}") as f:
        tree = ast.parse(f.read())
    found = [x for x in tree.body if getattr(x, "name", None) in names]
    if {x.name for x in found} != set(names):
        sys.exit(f"{checkout}/{path}: has no {', '.join(names)}: another version than the one this was written for?")
    space = dict(stand_ins)
    exec(compile(ast.Module(body=found, type_ignores=[]), path, "exec"), space)
    return space


class Counter(collections.Counter):
    def note(self, what, right, case):
        self[what, right] += 1
        if not right:
            print("DIFFERS", what, json.dumps(case))


def judge_megatron(checkout, cases, counts):
    core = "megatron/core/transformer"
    kinds = take(checkout, f"{core}/enums.py", ["LayerType"], {"enum": enum})["LayerType"]
    stand_ins = {"LayerType": kinds, "Optional": typing.Optional, "copy": __import__("copy"), "re": __import__("re"), "lru_cache": lambda: lambda f: f}
    layout = take(checkout, f"{core}/pipeline_parallel_layer_layout.py", ["PipelineParallelLayerLayout"], stand_ins)["PipelineParallelLayerLayout"]
    letters = {kinds.embedding: "E", kinds.decoder: "t", kinds.mtp: "m", kinds.loss: "L"}

    def parse(text):
        try:
            return ["".join(letters[x] for x in stage) for stage in layout.parse_str_to_list(text)]
        except Exception:
            return None

    def valid(text, stages, blocks, mtps):
        try:
            layout(text, stages).validate_layer_layout(blocks, mtps)
            return True
        except Exception:
            return False

    for c in cases:
        if c["case"] == "text":
            theirs = parse(c["text"])
            ours = c["virtual"] if c["parsed"] else None
            counts.note("megatron parser: both " + ("refuse" if ours is None else "accept"), theirs == ours, c)
            if c["parsed"]:
                counts.note("megatron validator: both " + ("accept" if c["valid"] else "refuse"), valid(c["text"], c["stages"], c["blocks"], c["mtps"]) == c["valid"], c)
        elif c["case"] == "layout" and c["for"] == "megatron":
            text = json.loads(c["text"].split("\n")[0].split(" ", 1)[1])
            stages = parse(text)
            # The chain is the embedding, blocks, layers of prediction and head: cuts follow from symbols.
            ends, cuts = 0, [0]
            for stage in stages or []:
                ends += len(stage)
                cuts.append(ends)
            counts.note("megatron layouts", valid(text, c["stages"], c["blocks"], c["mtps"]) and cuts == c["cuts"], c)


def judge_deepspeed(checkout, cases, counts):
    space = take(checkout, "deepspeed/runtime/utils.py", ["partition_uniform", "partition_balanced"], {})

    class Module:
        """A stand-in for the engine's module on one rank."""

        def __init__(self, rank):
            self.global_rank = rank
            self._layer_specs = specs
            self._topo = types.SimpleNamespace(get_coord=lambda rank: types.SimpleNamespace(pipe=rank))
            self._partition_layers()

        def _set_bounds(self, start, stop):
            self.bounds = [start, stop]

    for c in cases:
        if c["case"] == "deepspeed":
            n, stages = len(c["weights"]), c["stages"]
            counts.note("deepspeed uniform", [int(x) for x in space["partition_uniform"](n, stages)] == c["uniform"], c)
            counts.note("deepspeed balanced", [int(x) for x in space["partition_balanced"](c["weights"], stages)] == c["balanced"], c)
        elif c["case"] == "layout" and c["for"] == "deepspeed":
            specs = [None] * c["cuts"][-1]
            made = {"deepspeed": types.SimpleNamespace(pipe=types.SimpleNamespace(PipelineModule=Module))}
            exec(c["text"], made)
            bounds = [made["Module"](rank).bounds for rank in range(c["stages"])]
            counts.note("deepspeed layouts", bounds == [c["cuts"][s : s + 2] for s in range(c["stages"])], c)


def judge_torchtitan(checkout, cases, counts):
    v = [type(name, (), {}) for name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")]
    by_name = {"ZBVZeroBubble": v[0], "DualPipeV": v[1]}
    place = take(checkout, "torchtitan/distributed/pipeline_parallel.py", ["_get_pp_rank_to_stage_indices_mapping"],
                 {"ScheduleZBVZeroBubble": v[0], "ScheduleDualPipeV": v[1], "get_schedule_class": lambda name: by_name.get(name)})["_get_pp_rank_to_stage_indices_mapping"]
    for c in cases:
        if c["case"] != "layout" or c["for"] != "torchtitan":
            continue
        config = eval(c["text"], {"ParallelismConfig": types.SimpleNamespace})
        parts = config.module_fqns_per_model_part
        whole = ["tok_embeddings"] + [f"layers.{b}" for b in range(c["blocks"])] + ["norm", "lm_head"]
        # The chain has one head for norm and lm_head.
        cuts = [0]
        for part in parts:
            cuts.append(cuts[-1] + len([x for x in part if x != "norm"]))
        ranks = [sorted(place(rank, config.pipeline_parallel_degree, config.pipeline_parallel_schedule, len(parts))) for rank in range(c["stages"])]
        counts.note("torchtitan layouts", sum(parts, []) == whole and cuts == c["cuts"] and ranks == c["ranks"], c)


def judge_nanotron(checkout, cases, counts):
    import numpy

    class Block:
        def __init__(self, builder):
            self.module_builder = builder

        def build_and_set_rank(self, rank):
            self.rank = rank

    @contextlib.contextmanager
    def nowhere(**_):
        yield

    stand_ins = {"Callable": typing.Callable, "List": typing.List, "Optional": typing.Optional, "NanotronModel": object, "ParallelContext": object,
                 "torch": types.SimpleNamespace(dtype=None, device=lambda name: name), "np": numpy, "PipelineBlock": Block,
                 "log_rank": lambda *_, **__: None, "logger": None, "logging": types.SimpleNamespace(INFO=0), "init_on_device_and_dtype": nowhere}
    build = take(checkout, "src/nanotron/models/base.py", ["build_model"], stand_ins)["build_model"]
    for c in cases:
        if c["case"] != "layout" or c["for"] != "nanotron":
            continue
        kinds = {"Embedding": "Embedding", "LlamaDecoderLayer": "LlamaDecoderLayer", "TensorParallelColumnLinear": "TensorParallelColumnLinear"}
        made = dict(kinds)
        exec(c["text"], made)
        # nanotron's Llama: embedding, decoder layers, final norm, head, a cast to float32 and the loss.
        blocks = [Block("Embedding")] + [Block("LlamaDecoderLayer") for _ in range(c["blocks"])] + [Block("norm"), Block("TensorParallelColumnLinear"), Block("cast"), Block("loss")]
        model = types.SimpleNamespace(named_modules=lambda: [("", b) for b in blocks], get_block_compute_costs=lambda: made["get_block_compute_costs"](None), log_modules=lambda **_: None)
        group = types.SimpleNamespace(size=lambda: c["stages"])
        build(lambda: model, types.SimpleNamespace(pp_pg=group, world_pg=group), None)
        ranks = [b.rank for b in blocks]
        # The chain has one head for the last four blocks.
        cuts = [0] + [next((i for i, r in enumerate(ranks) if r >= s), len(ranks)) for s in range(1, c["stages"])] + [c["blocks"] + 2]
        together = len(set(ranks[-4:])) == 1
        counts.note("nanotron layouts", together and cuts == c["cuts"], c)


JUDGES = {"megatron": judge_megatron, "deepspeed": judge_deepspeed, "torchtitan": judge_torchtitan, "nanotron": judge_nanotron}


def main(path, *checkouts):
    with open(path) as f:
        cases = [json.loads(line) for line in f]
    counts = Counter()
    for pair in checkouts:
        name, checkout = pair.split("=", 1)
        JUDGES[name](checkout, cases, counts)
    for what in sorted({what for what, _ in counts}):
        print(f"{what}: {counts[what, True]} agree, {counts[what, False]} differ")
    if not counts or any(not right for _, right in counts):
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
