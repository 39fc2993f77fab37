"""What bench/gpu.sh prints at its end: one page of text from what its parts found.

    gpu_summary.py page WORK OUT        the step and operations beside PyTorch's, parts, clocks
    gpu_summary.py kernels NCU.csv      a table of kernels by time, from Nsight Compute's CSV
    gpu_summary.py steps RUN_DIR NAME   a line of a run's median step
"""

import collections
import csv
import json
import os
import re
import statistics
import sys


def figures(path):
    """The figures of a file by name, without the name of the benchmark."""
    if not os.path.exists(path):
        return {}
    lines = [json.loads(line) for line in open(path) if line.startswith("{")]
    return {f["name"].removeprefix("emulated/").split("/", 1)[1]: f for f in lines}


def value(f):
    return "INVALID" if f["wrong"] else f'{f["value"]:.4g}'


def invalid(ours):
    """How many figures are wrong, and which miss what they should reach."""
    short = [f'{n} {value(f)} (reach {f["reach"]:g})' for n, f in ours.items() if not f["ok"] and not f["wrong"]]
    wrong = [n for n, f in ours.items() if f["wrong"]]
    print(f"\n{len(ours)} figures, {len(wrong)} invalid: {', '.join(wrong) or 'none'}")
    print(f"short of what they should reach: {', '.join(short) or 'none'}")


def products(ours, theirs):
    """Times of the passes of linear layers: ours, PyTorch's over ours, the share of the roofline."""
    shapes = [n[len("product_forward_"):-len("_time")] for n in ours if n.startswith("product_forward_") and n.endswith("_time")]
    if shapes:
        print(f"\n{'product, tokens x in x out':28}" + "".join(f"{h:>12}{'ratio':>7}{'of roof':>9}" for h in ("forward us", "input us", "weight us")))
    for shape in shapes:
        row = f"{shape:28}"
        for way in "forward", "backward_input", "backward_weight":
            name = f"product_{way}_{shape}"
            mine, other, share = ours.get(name + "_time"), theirs.get(name + "_time"), ours.get(name + "_to_gemm")
            row += f"{value(mine) if mine else '-':>12}" + (f"{other['value'] / mine['value']:>7.2f}" if other and mine and mine["value"] else f"{'-':>7}")
            row += f"{share['value']:>9.3f}" if share else f"{'-':>9}"
        print(row)


def operations(ours, theirs):
    """Times of operations beside PyTorch's, and the share of the roofline that ours reach: of
    the bandwidth of a copy, or of the rate of the large product. PyTorch's backward of norms
    is both of ours together."""
    names = [n.removesuffix("_time") for n in ours if n.endswith("_time") and not n.startswith("product_")]
    for norm in "layernorm", "rmsnorm":
        halves = [ours.get(f"{norm}_backward_{half}_time") for half in ("input", "weight")]
        if all(halves):
            total = dict(halves[0], value=sum(h["value"] for h in halves), wrong=sum(h["wrong"] for h in halves))
            ours = dict(ours, **{f"{norm}_backward_time": total})
            names = [n for n in names if not n.startswith(f"{norm}_backward")] + [f"{norm}_backward"]
    if not names:
        return
    print(f"\n{'operation':44}{'ours us':>10}{'PyTorch us':>12}{'ratio':>8}{'of roofline':>13}")
    for name in names:
        mine, other = ours[name + "_time"], theirs.get(name + "_time")
        share = ours.get(name + "_to_gemm") or ours.get(name + "_to_copy")
        row = f"{name:44}{value(mine):>10}{value(other) if other else '-':>12}"
        row += f"{other['value'] / mine['value']:>8.2f}" if other and mine["value"] else f"{'-':>8}"
        row += f"{value(share) if share else '-':>13}"
        print(row + (f"  {other['unit'].removeprefix('us, ')}" if other and "," in other["unit"] else ""))
    print("ratio: PyTorch's time over ours; of roofline: of a copy's bandwidth or of a bf16 product of 8192")
    for name in ours:
        if re.fullmatch(r"sparse_attention_hs\d+_to_dense", name):
            print(f"{name:44}{value(ours[name]):>10}  dense time over sparse, forward and backward, a quarter of the pairs")


def revisions(ours, before, revision):
    """Times of operations beside those of another revision's kernels."""
    names = [n for n in ours if n.endswith("_time") and n in before]
    if names:
        print(f"\n{'operation':44}{'ours us':>10}{'before us':>12}{'ratio':>8}  before: kernels of {revision}")
    for name in names:
        mine, other = ours[name], before[name]
        ratio = f"{other['value'] / mine['value']:>8.2f}" if mine["value"] else f"{'-':>8}"
        print(f"{name.removesuffix('_time'):44}{value(mine):>10}{value(other):>12}{ratio}")


def sparse(ours):
    """Sparse products beside cuSPARSE in its best form and the dense products."""
    for kind in "f32", "bf16":
        percents = [n.rsplit("_", 1)[1] for n in ours if n.startswith(f"spmm_forward_{kind}_")]
        if not percents:
            continue
        print(f"\n{kind + ', ms':12}{'ours':>9}{'cuSPARSE':>10}{'its form':>20}{'prepare':>9}{'dense':>9}{'TF32':>9}"
              f"{'to cuSPARSE':>13}{'sddmm':>9}{'cuSPARSE':>10}")
        for p in percents:
            def of(name):
                f = ours.get(f"{name}_{kind}_{p}")
                return value(f) if f else "-"
            form = ours.get(f"spmm_cusparse_{kind}_{p}", {}).get("unit", "-").removeprefix("ms, ")
            print(f"{p + ' % zeros':12}{of('spmm_forward'):>9}{of('spmm_cusparse'):>10}{form:>20}"
                  f"{of('spmm_cusparse_prepare'):>9}{of('spmm_dense'):>9}{of('spmm_dense_tf32'):>9}"
                  f"{of('spmm_to_cusparse'):>13}{of('sddmm'):>9}{of('sddmm_cusparse'):>10}")
        crossing = ours.get(f"spmm_crossing_{kind}")
        if crossing:
            print(f"ours are faster than the dense product from {value(crossing)} % zeros on (100: never)")


def step(ours, theirs):
    """Training steps beside PyTorch's, and the rates that they are compared with."""
    rows = [("dynmo, float32 master weights", ours.get("step_tokens_per_second"), ours.get("step_memory"))]
    rows += [("PyTorch " + n[5:].replace("_", ", by "), theirs.get(n), theirs.get(n + "_memory"))
             for n in theirs if n + "_memory" in theirs]
    rows = [(name, speed, memory) for name, speed, memory in rows if speed]
    if rows:
        print(f"\n{'training step of 24 blocks, bf16':44}{'tokens/s':>10}{'GiB':>11}{'to dynmo':>10}")
    for name, speed, memory in rows:
        to = f"{speed['value'] / rows[0][1]['value']:>10.3f}" if rows[0][0].startswith("dynmo") and rows[0][1]["value"] else ""
        print(f"{name:44}{speed['value']:>10.0f}{value(memory) if memory else '-':>11}{to}{'  INVALID' * bool(speed['wrong'])}")
    print("PyTorch compiles each block, or the model; autocast keeps float32 weights, bf16 has weights in bf16 alone\n")
    for side, list_of in ("", ours), ("PyTorch ", theirs):
        for name in ("copy", "gemm_f32_8192", "gemm_bf16_8192", "step_rate", "step_utilisation", "step_memory_of_process",
                     "products_fallen_back"):
            if name in list_of:
                print(f"{side + name:44}{value(list_of[name]):>10} {list_of[name]['unit']}")


def parts(path, clocks):
    """What became of each part, and the clocks meanwhile, as NVML tells them twice a second."""
    rows = []
    for row in csv.reader(open(clocks)) if os.path.exists(clocks) else ():
        try:
            rows.append([float(x) for x in row[:5]])
        except (ValueError, IndexError):
            continue
    print(f"\n{'part':16}{'verdict':20}{'seconds':>8}{'MHz least':>11}{'median':>8}{'most':>7}{'memory':>8}{'W':>6}{'C':>5}")
    for line in open(path):
        name, verdict, begin, end = line.rstrip("\n").split("\t")
        text = f"{name:16}{verdict:20}{int(end) - int(begin):>8}"
        seen = [r for r in rows if int(begin) <= r[0] <= int(end)]
        if seen:
            mhz = [r[1] for r in seen]
            text += (f"{min(mhz):>11.0f}{statistics.median(mhz):>8.0f}{max(mhz):>7.0f}"
                     f"{statistics.median(r[2] for r in seen):>8.0f}{max(r[3] for r in seen):>6.0f}{max(r[4] for r in seen):>5.0f}")
        print(text)


def page(work, out):
    theirs = dict(figures(f"{out}/pytorch.json"), **figures(f"{out}/pytorch-operations.json"))
    ours = figures(f"{out}/figures.json")
    step(ours, theirs)
    print(open(f"{work}/said.txt").read(), end="")
    products(ours, theirs)
    operations(ours, theirs)
    if os.path.exists(f"{work}/before/revision"):
        revisions(ours, figures(f"{out}/figures-before.json"), open(f"{work}/before/revision").read().strip())
    sparse(ours)
    invalid(ours)
    parts(f"{work}/parts.tsv", f"{out}/clocks.csv")
    print("\nOne GPU proves that NCCL opens and that a communicator of one rank begins, sends to itself, is aborted and"
          "\nclosed. That ranks move memory takes two GPUs.")


def kernels(path):
    """Time by kernel: how often, together, and its share."""
    text = open(path).read()
    table = text[text.index('"ID"'):] if '"ID"' in text else ""
    spent = collections.defaultdict(list)
    for row in csv.DictReader(table.splitlines()):
        if row.get("Metric Name") == "gpu__time_duration.sum":
            scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}[row["Metric Unit"]]
            spent[row["Kernel Name"]].append(float(row["Metric Value"].replace(",", "")) * scale)
    total = sum(map(sum, spent.values()))
    if not total:
        print("no kernel in the profile, which begins:", text[:2000], sep="\n")
        return 1
    print(f"{'kernel':78}{'times':>7}{'us each':>10}{'share':>8}")
    for name, list_of in sorted(spent.items(), key=lambda item: -sum(item[1])):
        print(f"{name[:76]:78}{len(list_of):>7}{statistics.mean(list_of):>10.2f}{sum(list_of) / total:>8.3f}")
    print(f"{sum(map(len, spent.values()))} kernels, {total / 1e3:.2f} ms")
    return 0


def steps(run, name):
    lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    seconds = [line["step_seconds"] for line in lines[len(lines) // 3:]]
    print(f"SUMMARY {name:44}{statistics.median(seconds) * 1e3:>10.2f} ms, median of {len(seconds)}")


if __name__ == "__main__":
    what = {"page": page, "kernels": kernels, "steps": steps}[sys.argv[1]]
    sys.exit(what(*sys.argv[2:]))
