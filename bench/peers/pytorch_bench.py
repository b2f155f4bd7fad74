#!/usr/bin/env python3
"""The workloads of the C++ benchmarks in PyTorch (1.13 or later), by the same names.

Reads names from standard input, one a line, and answers each with a line of JSON, {"name": seconds}: the mean of the
calls that fit into --min-time, or null where there is no such case. The first line tells the version.

    echo model/step/gpt2/adam/threads=2 | python3 bench/peers/pytorch_bench.py
"""
import argparse
import contextlib
import json
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from pytorch_gpt2 import Gpt2, causal_attention

# The training step of bench/support.hpp
LAYERS, HEADS, HEAD_SIZE, WIDTH, MLP_WIDTH, VOCABULARY, CONTEXT, BATCH = 6, 6, 64, 384, 1536, 256, 256, 8
TOKENS = BATCH * CONTEXT
# Its small models, by width
SMALL = {
    "width=128": dict(layers=4, heads=4, width=128, context=64, batch=16, vocabulary=256),
    "width=64": dict(layers=1, heads=1, width=64, context=64, batch=32, vocabulary=28),
}
LARGE = 1 << 28
ADAM = dict(lr=1e-4, betas=(0.9, 0.999), eps=1e-8)


def fastest_adam(parameters):
    """The fastest of the implementations that this version has; gradients must be there."""

    def seconds_of(optimizer):
        optimizer.step()
        start = time.perf_counter()
        for _ in range(3):
            optimizer.step()
        return time.perf_counter() - start

    found = []
    for options in (dict(fused=True), dict(foreach=True), dict(foreach=False)):
        with contextlib.suppress(TypeError, RuntimeError, ValueError):
            optimizer = torch.optim.Adam(parameters, **ADAM, **options)
            found.append((seconds_of(optimizer), len(found), optimizer))
    return min(found)[2]


def training_step(
    compiled, layers=LAYERS, heads=HEADS, width=WIDTH, context=CONTEXT, batch=BATCH, vocabulary=VOCABULARY
):
    model = Gpt2(layers, heads, width, context, vocabulary)
    loss_of = torch.compile(model) if compiled else model
    tokens, targets = (torch.randint(vocabulary, (batch, context)) for _ in range(2))
    loss_of(tokens, targets).backward()
    optimizer = fastest_adam(list(model.parameters()))

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def product(layer, kind):
    inputs, outputs = dict(
        qkv=(WIDTH, 3 * WIDTH),
        out=(WIDTH, WIDTH),
        up=(WIDTH, MLP_WIDTH),
        down=(MLP_WIDTH, WIDTH),
        head=(WIDTH, VOCABULARY),
    )[layer]
    x, w, dy = torch.randn(TOKENS, inputs), torch.randn(outputs, inputs), torch.randn(TOKENS, outputs)
    a, b = dict(forward=(x, w.t()), dx=(dy, w), dw=(dy.t(), x))[kind]
    out = a @ b
    return lambda: torch.mm(a, b, out=out)


def attention(length):
    shape = (TOKENS // length, HEADS, length, HEAD_SIZE)
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    d_out = torch.randn(shape)
    return lambda: torch.autograd.grad(causal_attention(q, k, v), (q, k, v), d_out)


def rms_norm(x, weight):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (WIDTH,), weight, 1e-5)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def elementwise(function, kind, size, cols, *parameters):
    """`function` of rows of `cols` elements, forward alone or backward alone."""
    arrays = 2 if kind == "forward" else 3
    rows = TOKENS if size == "step" else LARGE // arrays // cols
    x = torch.randn(256, cols).repeat(rows // 256 + 1, 1)[:rows].contiguous()
    if kind == "forward":
        return no_grad(lambda: function(x, *parameters))
    inputs = [x.requires_grad_(), *(p.requires_grad_() for p in parameters)]
    y = function(*inputs)
    dy = x.detach().clone()
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


def no_grad(function):
    def call():
        with torch.no_grad():
            return function()

    return call


def cross_entropy(kind, size):
    rows = TOKENS if size == "step" else LARGE // (1 if kind == "forward" else 2) // VOCABULARY
    logits = torch.randn(256, VOCABULARY).repeat(rows // 256 + 1, 1)[:rows].contiguous()
    targets = torch.randint(VOCABULARY, (rows,))
    if kind == "forward":
        return no_grad(lambda: F.cross_entropy(logits, targets))
    logits.requires_grad_()
    return lambda: torch.autograd.grad(F.cross_entropy(logits, targets), logits)


def adam():
    parameters = list(Gpt2(LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY).parameters())
    for p in parameters:
        p.grad = torch.randn_like(p) * 1e-3
    return fastest_adam(parameters).step


def case_of(parts, compiled):
    """The workload of a name without its threads; None where there is none."""
    if parts == ["model", "step", "gpt2", "adam"]:
        return training_step(compiled)
    if parts[:2] == ["model", "small"]:
        return training_step(compiled, **SMALL[parts[2]])
    if compiled:
        return None
    if parts[:2] == ["model", "curve"]:
        what, value = parts[2].split("=")
        value = int(value)
        return training_step(
            False,
            **dict(
                time=lambda: dict(context=value, batch=TOKENS // value),
                layers=lambda: dict(layers=value),
                width=lambda: dict(width=value, heads=value // HEAD_SIZE),
                batch=lambda: dict(batch=value),
            )[what]()
        )
    if parts[:2] == ["core", "gemm"]:
        return product(*parts[2:])
    if parts[:2] == ["attention", "softmax"] and parts[2] in ("T=256", "T=1024"):
        return attention(int(parts[2][2:]))
    if parts[:2] == ["norm", "layer_norm"]:
        layer_norm = lambda x, gain, bias: F.layer_norm(x, (WIDTH,), gain, bias)
        return elementwise(layer_norm, *parts[2:], WIDTH, torch.ones(WIDTH), torch.zeros(WIDTH))
    if parts[:2] == ["norm", "rms_norm"]:
        return elementwise(rms_norm, *parts[2:], WIDTH, torch.ones(WIDTH))
    if parts[:2] == ["layer", "gelu"]:
        return elementwise(F.gelu, *parts[2:], MLP_WIDTH)
    if parts[:2] == ["layer", "cross_entropy"]:
        return cross_entropy(*parts[2:])
    if parts == ["optim", "adam"]:
        return adam()
    return None


def seconds_a_call(call, min_time):
    call()  # plans and, where asked for, compiles
    calls, start = 0, time.perf_counter()
    while True:
        result = call()
        calls += 1
        elapsed = time.perf_counter() - start
        if elapsed >= min_time:
            use(result)
            return elapsed / calls


def use(result):
    for tensor in result if isinstance(result, (tuple, list)) else [result]:
        if tensor is not None and not math.isfinite(tensor.detach().flatten()[-1].item()):
            raise ValueError("a result is not finite")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="training steps alone, by torch.compile")
    parser.add_argument("--min-time", type=float, default=0.2, help="seconds to measure each case for")
    options = parser.parse_args()
    if options.compile and not hasattr(torch, "compile"):
        sys.exit("this PyTorch has no torch.compile")
    answer = lambda value: print(json.dumps(value), flush=True)
    answer({"version": torch.__version__.split("+")[0]})
    torch.manual_seed(1)
    name, call = None, None
    for line in sys.stdin:
        if line.strip() != name:
            name, call = line.strip(), None  # frees the case before
            what, threads = name.split("/threads=")
            torch.set_num_threads(int(threads))
            call = case_of(what.split("/"), options.compile)
        try:
            answer({name: call and seconds_a_call(call, options.min_time)})
        except (RuntimeError, ValueError) as error:  # of torch.compile too: no compiler, no memory
            print(f"{name}: {error}", file=sys.stderr)
            answer({name: None})


if __name__ == "__main__":
    main()
