#!/usr/bin/env python3
"""Runs the benchmarks that bench/run.sh built and their peers in turn, case by case and round by round.

Peers: OpenBLAS where the benchmarks were built with it, and PyTorch in every interpreter of MESO_PYTHON (a list
separated by colons; default: python3) that can import it. Prints each figure as `name: ours, peer, ratio, share of
peak`, medians over the rounds with the smallest and the largest in parentheses; a ratio above 1 means that ours is
faster. Writes build/bench/results.csv, table.md and performance.svg; a whole run for this machine's own instructions also
writes the tables and the plot of docs/performance.md.
"""
import argparse
import collections
import ctypes
import glob
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import report

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build/bench"
CURVE_ROUNDS = 2


# What keeps peers to the instructions that ours are built for: of PyTorch's own kernels and its compiler's, of oneDNN, MKL
# and OpenBLAS.
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
PEERS_FOR = {"x86-64-v3": AVX2, "haswell": AVX2}


def openblas_core():
    """The kernels to ask OpenBLAS for where it does not know the processor and falls back to those of 2004."""
    try:
        library = ctypes.CDLL("libopenblas.so.0")
    except OSError:
        return None
    library.openblas_get_corename.restype = ctypes.c_char_p
    if library.openblas_get_corename().decode() != "Prescott":
        return None
    flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    return "SkylakeX" if "avx512dq" in flags else "Haswell" if "avx2" in flags else None


# Threads that wait for an op spin for some ten microseconds, then sleep.
SHORT_SPIN = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}


def environment(march):
    """Of the peers: OpenBLAS with OpenMP where Debian has it, and no more instructions than ours where that can be set."""
    env = {k: v for k, v in os.environ.items() if k not in SHORT_SPIN}
    folders = glob.glob("/usr/lib/*/openblas-openmp")
    env["LD_LIBRARY_PATH"] = ":".join(folders + [p for p in [env.get("LD_LIBRARY_PATH")] if p])
    if settings := PEERS_FOR.get(march):
        env.update(settings)
        print(f"built for {march}; the peers have " + " ".join(f"{k}={v}" for k, v in settings.items()))
    elif march != "native":
        print(f"built for {march}; the peers use what the processor has")
    if "OPENBLAS_CORETYPE" not in env and (core := openblas_core()):
        env["OPENBLAS_CORETYPE"] = core
    return env


class Ours:
    """The C++ benchmarks. A case is a name up to its threads; what follows is a backend."""

    labels = {None: "ours", "eigen": "ours, Eigen", "blas": "ours, BLAS", "openblas": "OpenBLAS"}

    def __init__(self, build, env, min_time):
        self.env = {**env, **SHORT_SPIN}
        del self.env["LD_LIBRARY_PATH"]
        self.min_time = min_time
        self.cases = collections.defaultdict(dict)  # name: {label: (executable, full name)}
        for executable in sorted((build / "bench").glob("*_bench")):
            for full in self.output(executable, "--benchmark_list_tests").split():
                bare = re.sub(r"/real_time|/manual_time|/iterations:\d+", "", full)
                name, backend = re.match(r"(.*/threads=\d+)(?:/(\w+))?$", bare).groups()
                self.cases[name][self.labels[backend]] = executable, full

    def output(self, executable, *arguments):
        command = [executable, *arguments]
        return subprocess.check_output(command, env=self.env, stderr=subprocess.DEVNULL, text=True)

    def run(self, name, label):
        executable, full = self.cases[name][label]
        output = self.output(
            executable,
            f"--benchmark_filter=^{re.escape(full)}$",
            f"--benchmark_min_time={self.min_time}",
            "--benchmark_format=json",
        )
        result = json.loads(output)["benchmarks"][0]
        return {
            "seconds": result["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[result["time_unit"]],
            **{key: result[key] for key in report.COUNTERS if key in result},
        }


class PyTorch:
    """A process that answers names with seconds; RuntimeError where there is no PyTorch."""

    def __init__(self, python, env, min_time, *options):
        command = [python, ROOT / "bench/peers/pytorch_bench.py", f"--min-time={min_time}", *options]
        try:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError as error:
            raise RuntimeError(f"PyTorch of {python}: {error.strerror}")
        first = self.process.stdout.readline()
        if not first:
            raise RuntimeError(f"PyTorch of {python}: there is none")
        self.label = f"PyTorch {json.loads(first)['version']}" + (" compiled" if options else "")

    def run(self, name):
        if self.process.poll() is not None:
            return None
        try:
            print(name, file=self.process.stdin, flush=True)
            seconds = json.loads(self.process.stdout.readline() or "{}").get(name)
        except BrokenPipeError:
            return None
        return seconds and {"seconds": seconds}


def start_peers(env, min_time):
    peers = []
    for python in os.environ.get("MESO_PYTHON", "python3").split(":"):
        try:
            setting, peer = fastest_setting(python, env, min_time)
        except RuntimeError as error:
            print(f"not run: {error}")
            continue
        peers.append(peer)
        if not peer.label.startswith("PyTorch 1."):
            peers.append(PyTorch(python, setting, min_time, "--compile"))
    return peers


def fastest_setting(python, env, min_time):
    """(environment, process) in which the training step is the fastest: OpenMP's default, or threads that sleep while they
    wait, at once or after what ours wait. These win on a busy machine."""
    found = []
    for policy in ({}, {"OMP_WAIT_POLICY": "passive"}, SHORT_SPIN):
        setting = {**env, **policy}
        peer = PyTorch(python, setting, min_time)
        seconds = (peer.run(report.STEP) or {}).get("seconds", float("inf"))
        print(f"{peer.label}, {' '.join(f'{k}={v}' for k, v in policy.items()) or 'default'}: {seconds:.3g} s a step")
        found.append((seconds, len(found), setting, peer))
    found.sort()
    for _, _, _, peer in found[1:]:
        peer.process.kill()
    return found[0][2:]


def wanted(name, options):
    """Two threads everywhere, one where a figure needs it; the ceilings always, as every share needs them."""
    if name.startswith(report.CEILINGS):
        return True
    if options.quick and name.startswith("model/curve"):
        return False
    return options.filter in name and (
        name.endswith("threads=2") or name.startswith(("model/step", report.SMALL))
    )


def positive(text):
    if (value := int(text)) > 0:
        return value
    raise argparse.ArgumentTypeError(f"{value}, expected a positive number")


def main():
    parser = argparse.ArgumentParser(
        prog="bench/run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("filter", nargs="?", default="", help="only cases whose name contains it, as in gemm/qkv")
    parser.add_argument("--quick", action="store_true", help="one short round without the curves")
    parser.add_argument("--rounds", type=positive, help="default: 5")
    parser.add_argument(
        "--march",
        default="native",
        help="build for NAME and hold the peers to its instructions where that can be set (x86-64-v3: AVX2)",
    )
    parser.add_argument("--no-pip", action="store_true", help="install no PyTorch 2 where there is none")
    parser.add_argument("--build", type=Path, default="build/release", help=argparse.SUPPRESS)
    options = parser.parse_args()
    build = ROOT / options.build
    rounds = options.rounds or (1 if options.quick else 5)
    min_time = 0.05 if options.quick else 0.2

    env = environment(options.march)
    ours = Ours(build, env, min_time)
    if not any(options.filter in name for name in ours.cases):
        sys.exit(f"bench/run.sh: no case has {options.filter!r} in its name")
    names = sorted((n for n in ours.cases if wanted(n, options)), key=lambda n: not n.startswith(report.CEILINGS))
    peers = start_peers(env, min_time)

    samples = []
    for round_number in range(rounds):
        print(f"round {round_number + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
        for name in names:
            if name.startswith("model/curve") and round_number >= CURVE_ROUNDS:
                continue
            runs = [(label, lambda label=label: ours.run(name, label)) for label in ours.cases[name]]
            if name.endswith("threads=2") or name.startswith(report.SMALL):
                runs += [(peer.label, lambda peer=peer: peer.run(name)) for peer in peers]
            for label, run in runs:
                try:
                    result = run()
                except subprocess.CalledProcessError as error:
                    print(f"not run: {name}, {label}: {error}", file=sys.stderr)
                    continue
                if result:
                    load = os.getloadavg()[0]
                    samples.append({"round": round_number, "name": name, "runner": label, "load": load, **result})

    whole = not options.filter and not options.quick and options.march == "native"
    results = report.Results(samples)
    OUT.mkdir(parents=True, exist_ok=True)
    report.write_csv(samples, OUT / "results.csv")
    machine = report.Machine(build, env)
    figures = [f for f in report.figures(results, machine) if whole or f[1] != report.NOT_RUN]
    for line in report.lines(results, figures):
        print(line)
    table = report.tables(results, figures, machine.table(), rounds)
    (OUT / "table.md").write_text(table)
    plotted = report.plot(results, OUT / "performance.svg")
    print("plot: " + (str(OUT / "performance.svg") if plotted else "not run"))
    if whole:
        report.put_between_markers(ROOT / "docs/performance.md", table)
        if plotted:
            (ROOT / "docs/plots/performance.svg").write_bytes((OUT / "performance.svg").read_bytes())


if __name__ == "__main__":
    main()
