"""What bench/gpu.sh prints at its end: one page of text from what its parts found.

    gpu_summary.py page GPU PARTS.tsv OUT   parts, figures, operations beside PyTorch's, clocks
    gpu_summary.py kernels NCU.csv          a table of kernels by time, from Nsight Compute's CSV
    gpu_summary.py steps RUN_DIR NAME       a line of a run's median step
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


def parts(path):
    print(f"{'part':18}{'verdict':24}{'seconds':>8}")
    for line in open(path):
        name, verdict, begin, end = line.rstrip("\n").split("\t")
        print(f"{name:18}{verdict:24}{int(end) - int(begin):>8}")


def invalid(ours):
    """How many figures are wrong, and which miss what they should reach."""
    short = [f'{n} {value(f)} (reach {f["reach"]:g})' for n, f in ours.items() if not f["ok"] and not f["wrong"]]
    wrong = [n for n, f in ours.items() if f["wrong"]]
    print(f"\n{len(ours)} figures, {len(wrong)} invalid: {', '.join(wrong) or 'none'}")
    print(f"short of what they should reach: {', '.join(short) or 'none'}")


def operations(ours, theirs):
    """Times of operations beside PyTorch's, and the share of the roofline that ours reach: of
    the bandwidth of a copy, or of the rate of the large product. PyTorch's backward of norms
    is both of ours together."""
    names = [n.removesuffix("_time") for n in ours if n.endswith("_time")]
    for norm in "layernorm", "rmsnorm":
        halves = [ours.get(f"{norm}_backward_{half}_time") for half in ("input", "weight")]
        if all(halves):
            total = dict(halves[0], value=sum(h["value"] for h in halves), wrong=sum(h["wrong"] for h in halves))
            ours = dict(ours, **{f"{norm}_backward_time": total})
            names.append(f"{norm}_backward")
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
    names = [n for n in ours if re.match(r"(copy|gemm|step|products_fallen)", n) and not n.endswith("_time")]
    if names:
        print()
    for name in names:
        print(f"{name:44}{value(ours[name]):>10} {ours[name]['unit']}")
    for name, f in theirs.items():
        if not name.endswith("_time"):
            print(f"{'pytorch ' + name:44}{value(f):>10} {f['unit']}")
    mine, other = ours.get("step_tokens_per_second"), theirs.get("step_tokens_per_second")
    if mine and other and other["value"]:
        print(f"step, tokens/s over PyTorch's best: {mine['value'] / other['value']:.3f} (reach 1)")


def clocks(path, parts_path):
    """The clocks before, and during each part, as NVML tells them twice a second."""
    rows = []
    for row in csv.reader(open(path)) if os.path.exists(path) else ():
        try:
            rows.append([float(x) for x in row[:5]])
        except (ValueError, IndexError):
            continue
    if not rows:
        print("\nclocks: not known, no NVML here that tells them")
        return
    print(f"\n{'clocks, MHz':18}{'SM least':>9}{'median':>8}{'most':>8}{'memory':>8}{'W':>7}{'C':>5}")
    spans = [("before", 0, min(float(line.split("\t")[2]) for line in open(parts_path)))]
    spans += [(n, float(b), float(e)) for n, _, b, e in (line.rstrip("\n").split("\t") for line in open(parts_path))]
    for name, begin, end in spans:
        seen = [r for r in rows if begin <= r[0] <= end]
        if seen:
            sm = [r[1] for r in seen]
            print(f"{name:18}{min(sm):>9.0f}{statistics.median(sm):>8.0f}{max(sm):>8.0f}"
                  f"{statistics.median(r[2] for r in seen):>8.0f}{max(r[3] for r in seen):>7.0f}{max(r[4] for r in seen):>5.0f}")


def page(gpu, parts_path, out):
    print(gpu + (": NO GPU, no figure below is one" if "emulated" in gpu else ""))
    parts(parts_path)
    theirs = dict(figures(f"{out}/pytorch.json"), **figures(f"{out}/pytorch-operations.json"))
    ours = dict(figures(f"{out}/figures.json"), **figures(f"{out}/operations.json"))
    invalid(ours)
    step(ours, theirs)
    operations(ours, theirs)
    sparse(ours)
    clocks(f"{out}/clocks.csv", parts_path)
    print("\nOf the transport between GPUs one GPU proves that the library opens, that a communicator of one rank"
          "\nbegins, sends to itself, is aborted and closed; that two ranks move memory takes two GPUs.")


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
        print("no kernel in the profile")
        return 1
    print(f"{'kernel':78}{'times':>7}{'us each':>10}{'share':>8}")
    for name, list_of in sorted(spent.items(), key=lambda item: -sum(item[1])):
        print(f"{name[:76]:78}{len(list_of):>7}{statistics.mean(list_of):>10.2f}{sum(list_of) / total:>8.3f}")
    print(f"{sum(map(len, spent.values()))} kernels, {total / 1e3:.2f} ms")
    return 0


def steps(run, name):
    lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    seconds = [line["step_seconds"] for line in lines[len(lines) // 3:]]
    print(f"SUMMARY {name}: {statistics.median(seconds) * 1e3:.2f} ms a step, median of {len(seconds)}")


if __name__ == "__main__":
    what = {"page": page, "kernels": kernels, "steps": steps}[sys.argv[1]]
    sys.exit(what(*sys.argv[2:]))
