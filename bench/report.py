"""Figures, tables, CSV and plot of the samples that compare.py took."""
import csv
import json
import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from statistics import median

CEILINGS = ("core/fma_peak", "core/adam_pass", "core/copy", "core/memcpy")
STEP = "model/step/gpt2/adam/threads=2"
SMALL = "model/small/width"
AXES = {"time": "sequence length", "layers": "layers", "width": "width", "batch": "sequences"}
OURS = "ours"
RATES = ("FLOP/s", "B/s")
PAIR = ("ratio", "first", "second")  # two of ours, measured in turn in one process
COUNTERS = (*RATES, "tokens/s", "workspace MB", *PAIR)
NOT_RUN = "not run"


class Results:
    def __init__(self, samples):
        self.samples = samples
        self.by_case = {}  # {name: {runner: {round: sample}}}
        for s in samples:
            self.by_case.setdefault(s["name"], {}).setdefault(s["runner"], {})[s["round"]] = s

    def values(self, name, runner=OURS, key="seconds"):
        return [s[key] for s in self.by_case.get(name, {}).get(runner, {}).values() if key in s]

    def median(self, name, runner=OURS, key="seconds"):
        values = self.values(name, runner, key)
        return median(values) if values else None

    def runners(self, name, prefix=""):
        return [r for r in self.by_case.get(name, {}) if r.startswith(prefix)]

    def ratio(self, name, runner, to_name, to_runner):
        """How often `name` fits into `to_name`: the median of the rounds' ratios."""
        a = self.by_case.get(name, {}).get(runner, {})
        b = self.by_case.get(to_name, {}).get(to_runner, {})
        ratios = [b[r]["seconds"] / a[r]["seconds"] for r in a if r in b]
        return median(ratios) if ratios else None

    def fastest(self, name, prefix):
        """The runner of that prefix with the smallest median."""
        return min(self.runners(name, prefix), key=lambda r: self.median(name, r), default=None)

    def share(self, name, runner=OURS):
        """(share of the ceiling, the ceiling's name), or None."""
        threads = name.rsplit("/", 1)[1]
        if (rate := self.median(name, runner, "FLOP/s")) is not None:
            ceiling, key, label = "core/fma_peak", "FLOP/s", "FMA peak"
        elif (rate := self.median(name, runner, "B/s")) is not None:
            key, label = "B/s", "bandwidth"
            of_step = "mlp" if "gelu" in name else "logits" if "cross_entropy" in name else "width"
            size = of_step if "/step/" in name else "large"
            ceiling = "core/adam_pass" if name.startswith("optim") else f"core/copy/{size}"
        else:
            return None
        peak = self.median(f"{ceiling}/{threads}", key=key)
        return peak and (rate / peak, label)


def seconds_text(seconds):
    if seconds is None:
        return NOT_RUN
    for unit, scale in (("s", 1), ("ms", 1e3)):
        if seconds * scale >= 1:
            break
    else:
        unit, scale = "µs", 1e6
    return f"{seconds * scale:.3g} {unit}"


def spread(values, text=seconds_text):
    if not values:
        return NOT_RUN
    if len(values) == 1:
        return text(values[0])
    return f"{text(median(values))} ({text(min(values))} – {text(max(values))})"


def percent(share):
    return NOT_RUN if share is None else f"{100 * share:.3g} %"


def rate_text(value, unit):
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def lines(results, bars):
    """`name: ours, peer, ratio, share of peak`, a line a peer; then the figures that have a bar."""
    for name, runners in results.by_case.items():
        load = f"load {median(s['load'] for r in runners.values() for s in r.values()):.2f}"
        if OURS not in runners:
            yield f"{name}: {NOT_RUN}"
            continue
        if results.values(name, key="ratio"):
            first, second = (spread(results.values(name, key=k)) for k in ("first", "second"))
            ratio = spread(results.values(name, key="ratio"), "{:.3f}".format)
            yield f"{name}: {first}, {second}, ratio {ratio}, {load}"
            continue
        rates = [rate_text(results.median(name, key=k), k) for k in RATES if results.median(name, key=k)]
        ours = ", ".join([spread(results.values(name)), *rates])
        share = results.share(name)
        tail = (f", {percent(share[0])} of {share[1]}" if share and not name.startswith(CEILINGS) else "") + f", {load}"
        peers = [r for r in runners if r != OURS]
        for peer in peers:
            ratio = results.ratio(name, OURS, name, peer)
            yield f"{name}: {ours}, {peer} {spread(results.values(name, peer))}, ratio {ratio:.2f}{tail}"
        if not peers:
            yield f"{name}: {ours}, no peer{tail}"
    yield ""
    for figure in bars:
        yield "{}: {}, {}, {}, {} (bar {}, goal {})".format(*figure)


def figures(results, machine):
    """(what, ours, peer, ratio, share of peak, bar, goal) of everything that has a bar."""
    rows = []
    bars = machine.bars()

    def tokens(runner):
        if (seconds := results.median(STEP, runner)) is None:
            return NOT_RUN
        return f"{results.median(STEP, key='tokens/s') * results.median(STEP) / seconds:,.0f} tokens/s"

    def share_text(name, runner=OURS):
        share = results.share(name, runner)
        return f"{percent(share[0])} of {share[1]}" if share else NOT_RUN

    def ratio_text(*pair, digits=2):
        ratio = results.ratio(*pair)
        return NOT_RUN if ratio is None else f"{ratio:.{digits}f}"

    for ours in [OURS, *results.runners(STEP, "ours,")]:
        what = "Training step" + ours[len(OURS) :]
        for version, bar, goal in (("1", "1.3", "1.7"), ("2", bars["PyTorch 2"], "1.3")):
            peer = results.fastest(STEP, f"PyTorch {version}.")
            text = f"{peer} {tokens(peer)}" if peer else f"PyTorch {version}.x {NOT_RUN}"
            ratio = ratio_text(STEP, ours, STEP, peer) if peer else NOT_RUN
            rows.append((what, tokens(ours), text, ratio, share_text(STEP, ours), bar, goal))
        rows.append((what + ", share of FMA peak", tokens(ours), "–", "–", share_text(STEP, ours), bars["peak"], "–"))

    slowest = min(products_beside_best(results), default=None)
    rows.append(
        ("Products of the step, the one furthest behind the best peer", NOT_RUN, NOT_RUN, NOT_RUN, "–", "0.95", "–")
        if slowest is None
        else (
            f"Products of the step, the one furthest behind the best peer: {'/'.join(slowest[1].split('/')[2:4])}",
            seconds_text(results.median(slowest[1])),
            f"{slowest[2]} {seconds_text(results.median(slowest[1], slowest[2]))}",
            f"{slowest[0]:.2f}",
            share_text(slowest[1]),
            "0.95",
            "–",
        )
    )

    for length in (256, 1024):
        name = f"attention/softmax/T={length}/threads=2"
        rate = results.median(name, key="FLOP/s")
        for peer in results.runners(name, "PyTorch") or [None]:
            rows.append((
                f"Causal attention, forward and backward, T = {length}",
                rate_text(rate, "FLOP/s") if rate else NOT_RUN,
                f"{peer} {seconds_text(results.median(name, peer))}" if peer else f"PyTorch {NOT_RUN}",
                ratio_text(name, OURS, name, peer) if peer else NOT_RUN,
                share_text(name),
                "60 % of peak" if length == 256 else "80 GFLOP/s or 2.5",
                "–" if length == 256 else "60 % of peak",
            ))

    def beside(what, name, peers, bar):
        """Time of ours, and the fastest of the peers whose labels begin so."""
        peer = results.fastest(name, peers)
        rows.append((
            what,
            seconds_text(results.median(name)),
            f"{peer} {seconds_text(results.median(name, peer))}" if peer else f"{peers} {NOT_RUN}".replace(". ", ".x "),
            ratio_text(name, OURS, name, peer) if peer else NOT_RUN,
            share_text(name),
            bar,
            "–",
        ))

    def against(what, pair, bar, goal):
        """Time of the pair's first in times of its second, both ours."""
        first, second, ratio = (results.median(pair, key=k) for k in ("first", "second", "ratio"))
        ratio = NOT_RUN if ratio is None else f"{ratio:.3f}"
        rows.append((what, seconds_text(first), seconds_text(second), ratio, "–", bar, goal))

    for length in (256, 1024):
        against(
            f"softmax-1 / softmax, T = {length}", f"attention/pair/softmax1_softmax/T={length}/threads=2", "1.02", "1.00"
        )
    against("softmax-1 / softmax, whole step", "model/pair/softmax1_softmax/threads=2", "1.02", "1.00")

    memory = results.median("attention/softmax/T=8192/threads=2", key="workspace MB")
    memory_text = NOT_RUN if memory is None else f"{memory:.3g} MB"
    rows.append(("Attention's extra memory, T = 8192", memory_text, "–", "–", "–", "200 MB", "–"))
    rows.append((
        "Adam, 10.8 M parameters, 28 B each",
        seconds_text(results.median("optim/adam/threads=2")),
        "–",
        "–",
        share_text("optim/adam/threads=2"),
        "80 %",
        "–",
    ))
    for rotation, bar, goal in (("Hadamard", "1.03", "1.015"), ("Kronecker", "1.45", "–")):
        pair = f"model/pair/{rotation.lower()}_adam/threads=2"
        against(f"OrthoAdam ({rotation}) / Adam, whole step", pair, bar, goal)
    cost = results.ratio(STEP, OURS, "model/statistics/threads=2", OURS)
    rows.append((
        "All statistics each 10th step, share of step time",
        seconds_text(results.median("model/statistics/threads=2")),
        f"step {seconds_text(results.median(STEP))}",
        NOT_RUN if cost is None else percent(cost / 10),
        "–",
        "2 %",
        "1 %",
    ))
    for what, prefix, kinds in (
        ("LayerNorm", "norm/layer_norm", ("forward", "backward")),
        ("RMSNorm", "norm/rms_norm", ("forward", "backward")),
        ("GELU", "layer/gelu", ("forward", "backward")),
        ("Cross-entropy", "layer/cross_entropy", ("forward", "forward_backward")),
    ):
        for kind in kinds:
            for size in ("step", "large"):
                of_size = f"{what} {kind.replace('_', ' and ')}, {'of the step' if size == 'step' else '1 GB'}"
                beside(of_size, f"{prefix}/{kind}/{size}/threads=2", "PyTorch", "70 %")
    against("1 → 2 threads, whole step", "model/pair/one_two_threads/threads=2", "1.8", "1.9")
    for width, what, bar in (
        (128, "4 layers of width 128, 16 × 64 tokens", "1.75"),
        (64, "1 layer of width 64, 32 × 64 tokens", "1.5"),
    ):
        against(f"1 → 2 threads, {what}", f"model/small/one_two_threads/width={width}/threads=2", bar, "–")
        for threads in (1, 2):
            on_threads = f"Training step, {what}, {threads} thread{'s' * (threads > 1)}"
            beside(on_threads, f"{SMALL}={width}/threads={threads}", "PyTorch 2.", "1.5")
    return rows


def products_beside_best(results):
    """(ratio, case, peer) of every product: ours in times of the fastest of others. Without a peer there is none."""
    for name in results.by_case:
        peers = [r for r in results.runners(name) if not r.startswith(OURS)]
        if name.startswith("core/gemm") and OURS in results.by_case[name] and peers:
            best = min(peers, key=lambda r: results.median(name, r))
            yield results.ratio(name, OURS, name, best), name, best


def markdown(header, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]) + "\n"


def curves(results):
    """{axis: [(value, case)]}, with the training step itself where it lies on the curve."""
    axes = {"time": [(256, STEP)], "layers": [(6, STEP)], "width": [(384, STEP)], "batch": [(8, STEP)]}
    for name in results.by_case:
        if match := re.match(r"model/curve/(\w+)=(\d+)/", name):
            axes[match[1]].append((int(match[2]), name))
    return {axis: sorted(points) for axis, points in axes.items()}


def curve_runners(results):
    """Those that ran on the curves: the compiled step did not."""
    names = [name for name in results.by_case if name.startswith("model/curve")]
    return [r for r in results.runners(STEP) if names and r in results.by_case[names[0]]]


def tables(results, bars, machine_text, rounds):
    names = [n for n in results.by_case if n.startswith("core/gemm")]
    beside = {name: f"{ratio:.2f}" for ratio, name, _ in products_beside_best(results)}
    products = []
    for name in names:
        work = results.median(name, key="FLOP/s") * results.median(name)
        rates = [rate_text(work / results.median(name, r), "FLOP/s") for r in results.runners(name)]
        products.append(["/".join(name.split("/")[2:4]), *rates, beside.get(name, NOT_RUN)])
    load = median(s["load"] for s in results.samples)
    text = [
        machine_text,
        f"Medians of {rounds} round{'s' * (rounds > 1)}. Load average {load:.2f}.\n",
        markdown(["what", "ours", "peer", "ratio", "share of peak", "bar", "goal"], bars),
        "Ceilings, measured in the same run:\n",
        markdown(
            ["ceiling", "rate"],
            [
                [n, spread(results.values(n, key=k), lambda v, k=k: rate_text(v, k))]
                for n in results.by_case
                if n.startswith(CEILINGS)
                for k in RATES
                if results.values(n, key=k)
            ],
        ),
    ]
    if products:
        header = ["product", *results.runners(names[0]), "ours / best peer"]
        text += ["Products of the training step, two threads:\n", markdown(header, products)]
    runners = curve_runners(results)
    for axis, points in curves(results).items() if runners else []:
        rows = [
            [
                str(value),
                *(spread(results.values(name, r)) for r in runners),
                percent((results.share(name) or [None])[0]),
            ]
            for value, name in points
        ]
        text += [f"Step time against {AXES[axis]}:\n", markdown([AXES[axis], *runners, "our share of FMA peak"], rows)]
    return "\n".join(text)


def microarchitecture(vendor, family, model, stepping=0):
    """Its usual name, or its numbers."""
    if vendor == "AuthenticAMD" and family == 0x17:
        if 0x30 <= model <= 0x4F or 0x60 <= model <= 0x7F or model >= 0x84:
            return "Zen 2"
        return "Zen+" if model in (0x08, 0x18) else "Zen"
    if vendor == "AuthenticAMD" and family == 0x19:
        if 0x10 <= model <= 0x1F or 0x60 <= model <= 0x7F or 0xA0 <= model <= 0xAF:
            return "Zen 4"
        return "Zen 3+" if 0x40 <= model <= 0x4F else "Zen 3"
    if vendor == "AuthenticAMD" and family == 0x1A:
        return "Zen 5"
    if vendor == "GenuineIntel" and family == 6:
        if model == 0x55:
            return "Skylake-X" if stepping < 5 else "Cascade Lake" if stepping < 8 else "Cooper Lake"
        for name, models in INTEL.items():
            if model in models:
                return name
    return f"{vendor} family {family} model {model}"


INTEL = {
    "Haswell": (0x3C, 0x3F, 0x45, 0x46),
    "Broadwell": (0x3D, 0x47, 0x4F, 0x56),
    "Skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
    "Ice Lake": (0x6A, 0x6C, 0x7D, 0x7E),
    "Tiger Lake": (0x8C, 0x8D),
    "Rocket Lake": (0xA7,),
    "Alder Lake": (0x97, 0x9A),
    "Raptor Lake": (0xB7, 0xBA, 0xBF),
    "Meteor Lake": (0xAA, 0xAC),
    "Sapphire Rapids": (0x8F,),
    "Emerald Rapids": (0xCF,),
    "Granite Rapids": (0xAD, 0xAE),
}


class Machine:
    """Processor, compiler and flags of the build, and what of the environment slows or speeds the peers."""

    def __init__(self, build, env, cpuinfo=None):
        cpuinfo = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
        field = dict(re.findall(r"^([^\t:]+?)\s*:[ \t]*(.*)$", cpuinfo.split("\n\n")[0], re.M))
        number = lambda key: int(field[key]) if field.get(key, "").isdigit() else 0
        self.processor = field.get("model name", "unknown")
        self.vendor = field.get("vendor_id", "unknown")
        self.microarchitecture = microarchitecture(
            self.vendor, number("cpu family"), number("model"), number("stepping")
        )
        commands = json.loads((build / "compile_commands.json").read_text())
        words = shlex.split(next(c["command"] for c in commands if c["file"].endswith("training_step_bench.cpp")))
        self.compiler = next(w for w in words if re.search(r"(g|c|clang)\+\+[-\d.]*$", w))
        self.flags = [w for w in words if re.match(r"-(O|m|f|DNDEBUG|DEIGEN)", w)]
        self.vectors = self.vector_extension()
        self.peers = {k: env[k] for k in PEER_SETTINGS if k in env}

    def vector_extension(self):
        """That of our build: the compiler's own macros for its flags."""
        macros = subprocess.run(
            [self.compiler, *(f for f in self.flags if f.startswith("-m")), "-dM", "-E", "-x", "c++", "/dev/null"],
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        for macro, name in (("AVX512F", "AVX-512"), ("AVX2", "AVX2"), ("AVX", "AVX"), ("SSE4_2", "SSE4.2"), ("SSE2", "SSE2")):
            if f"#define __{macro}__ " in macros:
                return name + (" and FMA" if name.startswith("AVX2") and "#define __FMA__ " in macros else "")
        return "none known"

    def bars(self):
        """Of the whole step: share of the peak, and speed in times of PyTorch 2.15's."""
        if self.vectors == "AVX-512" and self.vendor == "GenuineIntel":
            return {"peak": "75 %", "PyTorch 2": "1.1"}
        if self.vectors.startswith("AVX2"):
            return {"peak": "72 %", "PyTorch 2": "1.2"}
        if self.microarchitecture == "Zen 4":
            return {"peak": "81.7 %", "PyTorch 2": "1.14"}
        return {"peak": "60 %", "PyTorch 2": "1.0"}

    def table(self):
        version = subprocess.run([self.compiler, "--version"], stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
        rows = [
            ["date", time.strftime("%Y-%m-%d")],
            ["processor", f"{self.processor}, {os.cpu_count()} cores"],
            ["microarchitecture", self.microarchitecture],
            ["vector extension of ours", self.vectors],
            ["compiler", version],
            ["flags", f"`{' '.join(self.flags)}`"],
        ]
        if self.peers:
            rows.append(["set for the peers", " ".join(f"`{k}={v}`" for k, v in self.peers.items())])
        return markdown(["machine", ""], rows)


PEER_SETTINGS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_CORETYPE")


def write_csv(samples, path):
    keys = ["round", "name", "runner", "seconds", *COUNTERS, "load"]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, keys, restval="")
        writer.writeheader()
        writer.writerows(samples)


def put_between_markers(path, table):
    begin, end = "<!-- bench:begin -->", "<!-- bench:end -->"
    text = path.read_text()
    before, rest = text.split(begin)
    path.write_text(f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}")


def plot(results, path):
    """Tokens a second along the curves. False without gnuplot or without curves."""
    runners = curve_runners(results)
    if not runners:
        return False
    colors = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]
    script = [
        "set terminal svg size 900,640 font 'sans-serif,13' background rgb 'white' noenhanced",
        f"set output '{path}'",
        "set multiplot layout 2,2",
        "set border 3; set tics nomirror out; set grid; set logscale x 2; set yrange [0:*]",
        "set ylabel 'tokens/s'; set format y '%.0f'",
    ]
    step_tokens = results.median(STEP, key="tokens/s") * results.median(STEP)
    for axis, points in curves(results).items():
        drawn = []
        for i, runner in enumerate(runners):
            script.append(f"$data{i} << EOD")
            for value, name in points:
                tokens = step_tokens * value / 8 if axis == "batch" else step_tokens
                seconds = results.values(name, runner)
                rates = [tokens / s for s in (median(seconds), max(seconds), min(seconds))] if seconds else []
                script.append(" ".join(f"{x:.6g}" for x in (value, *rates)))
            script.append("EOD")
            color = f"lc rgb '{colors[i % len(colors)]}' lw 2"
            drawn += [
                f"$data{i} using 1:2 with lines {color} notitle",
                f"$data{i} with yerrorbars {color} pt 7 ps 0.5 title '{runner}'",
            ]
        free = "top right" if axis in ("layers", "width") else "bottom left"  # these two fall steeply
        script += [f"set key {free} Left reverse; set xlabel '{AXES[axis]}'", "plot " + ", ".join(drawn)]
    script.append("unset multiplot")
    try:
        subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
