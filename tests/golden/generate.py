#!/usr/bin/env python3
"""Golden data of Meso: what PyTorch computes in float64. The C++ tests read the files and need no PyTorch.

  python3 tests/golden/generate.py            write tests/golden/data
  python3 tests/golden/generate.py --check    compute all again and compare with the files: inputs must be equal,
                                              outputs must agree to 1e-9 of the largest number of their array

Needs torch and numpy. The files were written by the versions named in data/versions.txt (PyTorch 1.13.0, NumPy 1.24.2).
Inputs come from numpy.random.RandomState, whose stream NumPy froze, seeded by the CRC of the case's name, so that they
are the same for every version. Inputs are rounded to float32 and stored so: the float and the double library
start from the same numbers. Outputs are float64.

Formats: .npy, version 1.0, little-endian, C order. data/<suite>/<case>/<name>.npy; a leading d is "gradient of", as
in dx. The loss that is differentiated is sum(y * dy). Activations are (batch * time, features), weights (out, in).

PyTorch 2.15.0 with NumPy 2.4.6 computes the same: --check finds at most 3.1e-14 of the largest number of an array. What
differs between 1.13 and 2.x, by the documentation of 2.0 to 2.8 (torch.nn, torch.nn.functional, torch.optim):
- nn.RMSNorm, which 1.13 lacks: x / sqrt(eps + mean(x^2)) * weight, the formula written out below. Its default eps is
  torch.finfo(dtype).eps; here it is always given.
- scaled_dot_product_attention, which 1.13 lacks: softmax of the scaled scores, masked ones filled with -inf, which
  leaves the weights of the visible keys alone, as it is written below; with enable_gqa query head h reads key-value
  head h // (heads // key_value_heads) (repeat_interleave), as below.
- gelu, silu, layer_norm, linear, embedding: the same.
- cross_entropy: the same; ignore_index is -100 by default and -1 here. If all targets are ignored, the mean is NaN in
  1.13 (tried) and 0 in Meso, so that there is no such case here.
- SGD: the same; the momentum buffer starts as the first gradient, undamped.
- RMSprop, Adam, AdamW: the same formulas, eps outside the root and after the bias correction. Later 2.x write the
  averages of the gradient as lerp(average, g, 1 - beta), which rounds differently, and make AdamW a subclass of Adam.
- clip_grad_norm_: the same formula, min(1, max_norm / (norm + 1e-6)).
- foreach and fused implementations, where they are chosen, round differently.
"""

import argparse
import math
import pathlib
import platform
import sys
import zlib

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

DATA = pathlib.Path(__file__).resolve().parent / "data"


class Writer:
    """Writes arrays, or with `check` compares them with the files."""

    def __init__(self, check):
        self.check = check
        self.files = {}
        self.worst = (0.0, "")
        self.failures = []

    def save(self, name, array):
        path = DATA / (name + ".npy")
        assert path not in self.files, name
        array = np.ascontiguousarray(array)
        assert array.dtype in (np.float32, np.float64, np.int32), name
        assert array.dtype.kind == "i" or np.isfinite(array).all(), name
        self.files[path] = array
        if not self.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, array)
            return
        stored = np.load(path)
        if stored.shape != array.shape or stored.dtype != array.dtype:
            self.failures.append(f"{name}: {array.dtype}{array.shape}, the file has {stored.dtype}{stored.shape}")
            return
        error = np.abs(stored.astype(np.float64) - array).max() / max(np.abs(stored).max(), 1e-300)
        if error > (1e-9 if array.dtype == np.float64 else 0):
            self.failures.append(f"{name}: differs by {error:.3g} of its largest number")
        self.worst = max(self.worst, (float(error), name))


class Case:
    """One case: its inputs, drawn by name, and its outputs."""

    def __init__(self, writer, name):
        self.writer, self.name = writer, name
        self.random = np.random.RandomState(zlib.crc32(name.encode()))

    def given(self, name, array):
        """Stores an input, rounded to float32; returns it as a tensor that wants a gradient."""
        rounded = np.asarray(array, dtype=np.float32)
        self.writer.save(f"{self.name}/{name}", rounded)
        return torch.tensor(rounded.astype(np.float64), requires_grad=True)

    def normal(self, name, *shape, scale=1.0, shift=0.0):
        return self.given(name, shift + scale * self.random.standard_normal(shape))

    def integers(self, name, array):
        self.writer.save(f"{self.name}/{name}", np.asarray(array, dtype=np.int32))
        return torch.tensor(np.asarray(array, dtype=np.int64))

    def output(self, name, tensor):
        self.writer.save(f"{self.name}/{name}", np.asarray(tensor.detach().numpy(), dtype=np.float64))

    def backward(self, y, dy, **wanted):
        """Gradients of sum(y * dy)."""
        gradients = torch.autograd.grad((y * dy).sum(), list(wanted.values()))
        for name, gradient in zip(wanted, gradients):
            self.output("d" + name, gradient)


# ---------------------------------------------------------------- norms


def rms_norm(x, gain, epsilon=1e-5):
    return gain * x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon)


def norms(w):
    # The first row is nearly 0, so that epsilon counts; the second has a large mean.
    for rows, width in ((5, 7), (4, 33)):
        for name in ("layer_norm", "rms_norm", "rms_norm_single"):
            c = Case(w, f"norm/{name}_{width}")
            x = c.random.standard_normal((rows, width))
            x[0] *= 1e-3
            x[1] += 100
            x = c.given("x", x)
            dy = c.normal("dy", rows, width)
            if name == "layer_norm":
                theta = c.normal("theta", 2 * width, scale=0.5, shift=1.0)
                y = F.layer_norm(x, (width,), theta[:width], theta[width:], 1e-5)
            else:
                theta = c.normal("theta", width if name == "rms_norm" else 1, scale=0.5, shift=1.0)
                y = rms_norm(x, theta)
            c.output("y", y)
            c.backward(y, dy, x=x, theta=theta)


# ---------------------------------------------------------------- layers


def layers(w):
    special = [0.0, -0.0, 1e-3, -1e-3, 1.0, -1.0, 5.0, -5.0, 8.0, -8.0, 30.0, -30.0]
    for name, f in (
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
        ("swiglu", lambda x: F.silu(x[:, : x.shape[1] // 2]) * x[:, x.shape[1] // 2 :]),
    ):
        c = Case(w, f"layer/{name}")
        x = 2 * c.random.standard_normal((6, 26))
        x[0, : len(special)] = special
        x = c.given("x", x)
        y = f(x)
        dy = c.normal("dy", *y.shape)
        c.output("y", y)
        c.backward(y, dy, x=x)

    for tokens, inputs, outputs, bias in ((5, 7, 3, True), (5, 7, 3, False), (9, 1, 4, True), (17, 40, 33, True)):
        c = Case(w, f"layer/linear_{inputs}_{outputs}{'' if bias else '_no_bias'}")
        x, weight = c.normal("x", tokens, inputs), c.normal("w", outputs, inputs)
        b = c.normal("bias", outputs) if bias else None
        dy = c.normal("dy", tokens, outputs)
        y = F.linear(x, weight, b)
        c.output("y", y)
        c.backward(y, dy, x=x, w=weight, **({"bias": b} if bias else {}))

    c = Case(w, "layer/embedding")  # two sequences of 5, of at most 8 positions; token 6 never occurs, token 2 often
    tokens = c.integers("tokens", [2, 0, 2, 5, 1, 3, 2, 4, 2, 0])
    table, positions = c.normal("table", 7, 6), c.normal("positions", 8, 6)
    dy = c.normal("dy", 10, 6)
    y = F.embedding(tokens, table) + positions[:5].repeat(2, 1)
    c.output("y", y)
    c.backward(y, dy, table=table, positions=positions)

    for name, scale, targets in (
        ("cross_entropy", 2.0, [3, 0, 12, 7, 7, 1, 11]),
        ("cross_entropy_ignored", 2.0, [3, -1, 12, -1, 7, 1, -1]),
        ("cross_entropy_large", 300.0, [3, 0, 12, -1, 7, 1, 11]),
    ):
        c = Case(w, f"layer/{name}")
        logits = c.normal("logits", 7, 13, scale=scale)
        targets = c.integers("targets", targets)
        loss = F.cross_entropy(logits, targets, ignore_index=-1)
        c.output("loss", loss)
        c.backward(loss, torch.tensor(1.0), logits=logits)

    for base in (10000, 500000):
        c = Case(w, f"layer/rotary_{base}")  # 12 positions, 3 heads of 6
        x, dy = c.normal("x", 12, 18), c.normal("dy", 12, 18)
        y = rotary(x.reshape(1, 12, 3, 6), base).reshape(12, 18)
        c.output("y", y)
        c.backward(y, dy, x=x)


def rotary(x, base=10000.0):
    """x (batch, time, heads, d): channels (i, i + d/2) turn by position * base^(-2i/d), as in Llama."""
    time, d = x.shape[1], x.shape[3]
    angle = torch.outer(torch.arange(time, dtype=torch.float64), base ** (-torch.arange(0, d, 2) / d))
    cos, sin = (f(angle).repeat(1, 2)[None, :, None, :] for f in (torch.cos, torch.sin))
    half = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), -1)
    return x * cos + half * sin


# ---------------------------------------------------------------- normalizers: weights of one row of visible scores


def null_term(z, null):
    e = torch.exp(z)
    return e / (null + e.sum())


class Expm1(torch.autograd.Function):
    """e^z - 1. The gradient of torch.expm1 is computed as (e^z - 1) + 1, which loses its digits for negative z."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return torch.expm1(z)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.exp(ctx.saved_tensors[0])


def softpick(z):
    r = Expm1.apply(z)
    return torch.relu(r) / (r.abs().sum() + 1e-8)


def sparsemax(z):
    z = z - z.max().detach()
    ordered = torch.sort(z, descending=True).values
    k = torch.arange(1, len(z) + 1)
    size = int((1 + k * ordered > ordered.cumsum(0)).sum())
    return torch.relu(z - (ordered[:size].sum() - 1) / size)


def sinkhorn(z, epsilon, iterations):
    log_p = z / epsilon
    for t in range(iterations):
        if t % 2 == 0:
            log_p = log_p - torch.logsumexp(log_p, 1, keepdim=True)
        else:
            log_p = log_p - torch.logsumexp(log_p, 0, keepdim=True) + math.log(z.shape[0] / z.shape[1])
    return torch.exp(log_p)


CONTEXT = 12  # what normalizers are told of the model; not the number of keys

# name -> weights(z, theta); theta is a learned number of the head, or unused
ROWS = {
    "softmax": lambda z, theta: torch.softmax(z, 0),
    "softmax1": lambda z, theta: null_term(z, 1.0),
    "softmax_n": lambda z, theta: null_term(z, 4.0),
    "learned_sink": lambda z, theta: null_term(z, torch.exp(theta)),
    "sigmoid": lambda z, theta: torch.sigmoid(z - math.log(CONTEXT)),
    "sigmoid_visible": lambda z, theta: torch.sigmoid(z - math.log(len(z))),
    "relu": lambda z, theta: torch.relu(z) / len(z),
    "softpick": lambda z, theta: softpick(z),
    "ssmax": lambda z, theta: torch.softmax(theta * math.log(len(z)) * z, 0),
    "sparsemax": lambda z, theta: sparsemax(z),
}
LEARNED = ("learned_sink", "ssmax")


def normalizers(w):
    for keys in (1, 9, 33):
        c = Case(w, f"normalizer/rows_{keys}")
        z = c.random.standard_normal((7, keys))
        z[1] *= 4
        z[2] = 0
        z[3] = 2 * z[3] + 300  # the naive formulas still hold in float64; shifted ones must in float32
        z[4] = 2 * z[4] - 300
        z[5] *= 60
        z[6, : keys // 2] = z[6].max()  # ties
        z, dp = c.given("z", z), c.normal("dp", 7, keys)
        theta = {"learned_sink": c.given("sink", [[-3], [0], [2], [50], [-300], [100], [0.5]]),
                 "ssmax": c.given("ssmax", [[0.43], [0.5], [1], [0.1], [1.5], [-0.3], [2]])}
        for name, f in ROWS.items():
            case = Case(w, f"normalizer/rows_{keys}/{name}")
            s = theta.get(name)
            p = torch.stack([f(z[i], s[i] if s is not None else None) for i in range(7)])
            case.output("p", p)
            case.backward(p, dp, z=z, **({"theta": s} if s is not None else {}))
        null = {"softmax1": torch.zeros(7, 1), "softmax_n": torch.full((7, 1), math.log(4.0)),
                "learned_sink": theta["learned_sink"]}
        for name, s in null.items():
            mass = torch.softmax(torch.cat((z, s), 1), 1)[:, -1:]
            Case(w, f"normalizer/rows_{keys}/{name}").output("null", mass)

    for rows, cols in ((5, 7), (6, 6), (1, 4), (4, 1)):
        c = Case(w, f"normalizer/sinkhorn_{rows}_{cols}")
        z, dp = c.normal("z", rows, cols, scale=2.0), c.normal("dp", rows, cols)
        for epsilon, iterations in ((1.0, 3), (0.5, 4), (1.0, 1)):
            p = sinkhorn(z, epsilon, iterations)
            case = Case(w, f"{c.name}/iterations_{iterations}")
            case.output("p", p)
            case.backward(p, dp, z=z)


# ---------------------------------------------------------------- attention


def visible(mask, i, time):
    if mask == "causal":
        return 0, i + 1
    if mask == "bidirectional":
        return 0, time
    return max(0, i + 1 - int(mask[len("window"):])), i + 1


def attend(q, k, v, heads, key_value_heads, batch, weights, mask, theta=None):
    """Row by row, as defined: weights of the visible keys alone. q (batch * time, heads * d)."""
    d, time, group = q.shape[1] // heads, q.shape[0] // batch, heads // key_value_heads
    sequences = []
    for b in range(batch):
        rows = slice(b * time, (b + 1) * time)
        outputs = []
        for h in range(heads):
            g = h // group
            qh, kh, vh = q[rows, h * d : (h + 1) * d], k[rows, g * d : (g + 1) * d], v[rows, g * d : (g + 1) * d]
            if weights == "sinkhorn":
                outputs.append(sinkhorn(qh @ kh.T / math.sqrt(d), 1.0, 3) @ vh)
                continue
            f, s = ROWS[weights], theta[h] if theta is not None else None
            o = []
            for i in range(time):
                first, last = visible(mask, i, time)
                o.append(f(kh[first:last] @ qh[i] / math.sqrt(d), s) @ vh[first:last])
            outputs.append(torch.stack(o))
        sequences.append(torch.cat(outputs, 1))
    return torch.cat(sequences, 0)


def attention(w):
    masks = ("causal", "bidirectional", "window3")
    every = [(n, m) for n in ("softmax", "softmax1") for m in masks]
    others = [(n, "causal") for n in ROWS if n not in ("softmax", "softmax1")] + [("sinkhorn", "bidirectional")]
    shapes = {
        # batch, time, heads, key-value heads, head size, cases
        "multi_head": (2, 9, 3, 3, 4, every),
        "grouped": (2, 9, 4, 2, 4, every + others),
        "multi_query": (1, 7, 3, 1, 5, [("softmax1", "causal")]),
        "tiles_32": (1, 70, 2, 1, 3, [("softmax1", "causal"), ("softmax", "window40"), ("learned_sink", "window5")]),
        "tiles_64": (1, 130, 1, 1, 3, [("softmax1", "causal"), ("softmax", "bidirectional"), ("softmax1", "window66")]),
    }
    for shape, (batch, time, heads, key_value_heads, d, cases) in shapes.items():
        c = Case(w, f"attention/{shape}")
        q, k, v = (c.normal(n, batch * time, h * d) for n, h in (("q", heads), ("k", key_value_heads),
                                                                 ("v", key_value_heads)))
        do = c.normal("do", batch * time, heads * d)
        theta = {"learned_sink": c.normal("sink", heads, 1), "ssmax": c.normal("ssmax", heads, 1, scale=0.2, shift=0.6)}
        for weights, mask in cases:
            s = theta.get(weights)
            o = attend(q, k, v, heads, key_value_heads, batch, weights, mask, s)
            case = Case(w, f"{c.name}/{weights}_{mask}")
            case.output("o", o)
            case.backward(o, do, q=q, k=k, v=v, **({"theta": s} if s is not None else {}))


# ---------------------------------------------------------------- optimizers


STEPS = 20


def optimizers(w):
    """Two parameters, a matrix of 15 and a vector of 7; only the matrix decays. Trajectories are (steps, 22)."""
    c = Case(w, "optimizer")
    start = c.normal("start", 22)
    g = c.random.standard_normal((STEPS, 22)) * 10 ** c.random.uniform(-2, 1, 22)
    g[:, 4] = 0  # a parameter that never gets a gradient
    g[:, 9] = 0.25  # a constant one
    g[7] = 0  # a step without any
    g = c.given("gradients", g).detach()

    def run(name, make, vector_rate=1.0, clip=None, factors=None):
        matrix = start[:15].detach().clone().requires_grad_(True)
        vector = start[15:].detach().clone().requires_grad_(True)
        optimizer = make([matrix], [vector], vector_rate)
        rates = [group["lr"] for group in optimizer.param_groups]
        trajectory = []
        for t in range(STEPS):
            matrix.grad, vector.grad = g[t, :15].clone(), g[t, 15:].clone()
            if clip:
                torch.nn.utils.clip_grad_norm_([matrix, vector], clip)
            if factors:
                for group, rate in zip(optimizer.param_groups, rates):
                    group["lr"] = rate * factors[t]
            optimizer.step()
            trajectory.append(torch.cat((matrix, vector)).detach().clone())
        Case(w, f"optimizer/{name}").output("trajectory", torch.stack(trajectory))

    def of(cls, lr, weight_decay=0.0, **options):
        return lambda matrix, vector, rate: cls(
            [{"params": matrix, "weight_decay": weight_decay},
             {"params": vector, "weight_decay": 0.0, "lr": lr * rate}], lr=lr, **options)

    sgd, rms, adam, adamw = torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adam, torch.optim.AdamW
    run("sgd", of(sgd, 0.05))
    run("sgd_decay", of(sgd, 0.05, 0.1))
    run("sgd_momentum", of(sgd, 0.05, momentum=0.9))
    run("sgd_dampening", of(sgd, 0.05, momentum=0.9, dampening=0.3))
    run("sgd_nesterov", of(sgd, 0.05, momentum=0.9, nesterov=True))
    run("sgd_nesterov_decay", of(sgd, 0.05, 0.1, momentum=0.9, nesterov=True))
    run("rmsprop", of(rms, 0.01))
    run("rmsprop_momentum", of(rms, 0.01, momentum=0.9))
    run("rmsprop_centered", of(rms, 0.01, centered=True))
    run("rmsprop_decay", of(rms, 0.01, 0.1))
    run("rmsprop_all", of(rms, 0.01, 0.1, momentum=0.8, centered=True, alpha=0.9, eps=1e-3))
    run("adam", of(adam, 0.01))
    run("adam_decay", of(adam, 0.01, 0.1))
    run("adam_betas", of(adam, 0.01, betas=(0.5, 0.95), eps=1e-3))
    run("adamw", of(adamw, 0.01, 0.01))
    run("adamw_decay", of(adamw, 0.01, 0.5, betas=(0.9, 0.95)))
    run("adamw_groups", of(adamw, 0.01, 0.1), vector_rate=0.1)
    run("adamw_clip", of(adamw, 0.01, 0.1), clip=1.0)
    run("sgd_schedule", of(sgd, 0.05, 0.1, momentum=0.9), factors=[min(1, (t + 1) / 8) for t in range(STEPS)])

    # OrthoAdam in the basis Q, an orthogonal matrix of each parameter, decay in the original basis.
    case = Case(w, "optimizer/ortho_adam")
    bases = [torch.linalg.qr(torch.tensor(case.random.standard_normal((n, n))))[0] for n in (15, 7)]
    case.output("q_matrix", bases[0])
    case.output("q_vector", bases[1])
    theta, trajectory = [start[:15].detach().clone(), start[15:].detach().clone()], []
    m, v = [torch.zeros(15), torch.zeros(7)], [torch.zeros(15), torch.zeros(7)]
    for t in range(1, STEPS + 1):
        for i, (q, decay) in enumerate(zip(bases, (0.1, 0.0))):
            turned = q @ (g[t - 1, :15] if i == 0 else g[t - 1, 15:])
            m[i] = 0.9 * m[i] + 0.1 * turned
            v[i] = 0.999 * v[i] + 0.001 * turned**2
            u = m[i] / (1 - 0.9**t) / (torch.sqrt(v[i] / (1 - 0.999**t)) + 1e-8)
            theta[i] = (1 - 0.01 * decay) * theta[i] - 0.01 * (q.T @ u)
        trajectory.append(torch.cat(theta))
    case.output("trajectory", torch.stack(trajectory))


# ---------------------------------------------------------------- models


VOCABULARY, WIDTH, LAYERS, HEADS, TIME, BATCH = 50, 32, 2, 4, 16, 4
MODEL_STEPS = 50


def model_shapes(name):
    """Name -> shape of each parameter, in the order of the library's layout."""
    llama = name == "llama"
    key_width, hidden = (WIDTH // 2, 88) if llama else (WIDTH, 4 * WIDTH)
    shapes = {"embedding.token": (VOCABULARY, WIDTH)}
    if not llama:
        shapes["embedding.position"] = (TIME, WIDTH)

    def norm(prefix):
        shapes[prefix + ".gain"] = (WIDTH,)
        if not llama:
            shapes[prefix + ".bias"] = (WIDTH,)

    for layer in range(LAYERS):
        block = f"blocks.{layer}."
        norm(block + "norm1")
        for part, rows in (("query", WIDTH), ("key", key_width), ("value", key_width)):
            shapes[block + "attention." + part] = (rows, WIDTH)
        if not llama:
            for part, rows in (("query", WIDTH), ("key", key_width), ("value", key_width)):
                shapes[block + "attention." + part + ".bias"] = (rows,)
        shapes[block + "attention.output"] = (WIDTH, WIDTH)
        if not llama:
            shapes[block + "attention.output.bias"] = (WIDTH,)
        norm(block + "norm2")
        if llama:
            shapes[block + "mlp.gate"] = (hidden, WIDTH)
        shapes[block + "mlp.up"] = (hidden, WIDTH)
        if not llama:
            shapes[block + "mlp.up.bias"] = (hidden,)
        shapes[block + "mlp.down"] = (WIDTH, hidden)
        if not llama:
            shapes[block + "mlp.down.bias"] = (WIDTH,)
    norm("final_norm")
    if llama:
        shapes["head"] = (VOCABULARY, WIDTH)
    return shapes


def model_loss(name, null, p, tokens, targets):
    """Cross-entropy of a batch, tokens (batch, time)."""
    llama = name == "llama"
    heads, key_value_heads, d = HEADS, HEADS // 2 if llama else HEADS, WIDTH // HEADS
    batch, time = tokens.shape

    def norm(x, prefix):
        if llama:
            return rms_norm(x, p[prefix + ".gain"])
        return F.layer_norm(x, (WIDTH,), p[prefix + ".gain"], p[prefix + ".bias"], 1e-5)

    def linear(x, name):
        return F.linear(x, p[name], p.get(name + ".bias"))

    x = F.embedding(tokens, p["embedding.token"])
    if not llama:
        x = x + p["embedding.position"][:time]
    mask = torch.full((time, time), -math.inf).triu(1)
    for layer in range(LAYERS):
        block = f"blocks.{layer}."
        h = norm(x, block + "norm1")
        q = linear(h, block + "attention.query").reshape(batch, time, heads, d)
        k = linear(h, block + "attention.key").reshape(batch, time, key_value_heads, d)
        v = linear(h, block + "attention.value").reshape(batch, time, key_value_heads, d)
        if llama:
            q, k = rotary(q), rotary(k)
        k, v = (y.repeat_interleave(heads // key_value_heads, 2) for y in (k, v))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        e = torch.exp(q @ k.transpose(2, 3) / math.sqrt(d) + mask)
        o = e / (null + e.sum(-1, keepdim=True)) @ v
        x = x + linear(o.transpose(1, 2).reshape(batch, time, WIDTH), block + "attention.output")
        h = norm(x, block + "norm2")
        if llama:
            h = F.silu(linear(h, block + "mlp.gate")) * linear(h, block + "mlp.up")
        else:
            h = F.gelu(linear(h, block + "mlp.up"))
        x = x + linear(h, block + "mlp.down")
    logits = F.linear(norm(x, "final_norm"), p["head" if llama else "embedding.token"])
    return F.cross_entropy(logits.reshape(batch * time, VOCABULARY), targets.reshape(-1), ignore_index=-1)


def models(w):
    """AdamW 3e-3, betas (0.9, 0.95), decay 0.1 of matrices and embeddings, warm-up of 10 steps, clipping at 1."""
    c = Case(w, "model")
    following = c.random.permutation(VOCABULARY)  # four times in five a token is followed by a fixed one
    tokens = np.zeros((MODEL_STEPS, BATCH, TIME + 1), dtype=np.int64)
    tokens[:, :, 0] = c.random.randint(0, VOCABULARY, (MODEL_STEPS, BATCH))
    for t in range(TIME):
        random = c.random.randint(0, VOCABULARY, (MODEL_STEPS, BATCH))
        fixed = c.random.uniform(size=(MODEL_STEPS, BATCH)) < 0.8
        tokens[:, :, t + 1] = np.where(fixed, following[tokens[:, :, t]], random)
    targets = tokens[:, :, 1:].copy()
    targets[1::3, -1, TIME // 2 :] = -1  # padding at the end of a sequence
    x = c.integers("tokens", tokens[:, :, :-1].reshape(-1, TIME)).reshape(MODEL_STEPS, BATCH, TIME)
    y = c.integers("targets", targets.reshape(-1, TIME)).reshape(MODEL_STEPS, BATCH, TIME)

    for name in ("gpt2", "llama"):
        weights = Case(w, f"model/{name}/weights")
        initial = {}
        for parameter, shape in model_shapes(name).items():
            gain = parameter.endswith("gain")
            initial[parameter] = weights.normal(parameter, *shape, scale=0.1 if len(shape) == 1 else 0.15,
                                                shift=1.0 if gain else 0.0).detach()
        for variant, null in (("softmax", 0.0), ("softmax1", 1.0)):
            p = {k: v.clone().requires_grad_(True) for k, v in initial.items()}
            optimizer = torch.optim.AdamW(
                [{"params": [v for v in p.values() if v.dim() == 2], "weight_decay": 0.1},
                 {"params": [v for v in p.values() if v.dim() == 1], "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95))
            losses = []
            case = Case(w, f"model/{name}/{variant}")
            for step in range(MODEL_STEPS):
                loss = model_loss(name, null, p, x[step], y[step])
                optimizer.zero_grad()
                loss.backward()
                if step == 0:  # all gradients one after the other, in the order of the layout
                    case.output("gradient", torch.cat([v.grad.reshape(-1) for v in p.values()]))
                torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
                for group in optimizer.param_groups:
                    group["lr"] = 3e-3 * min(1.0, (step + 1) / 10)
                optimizer.step()
                losses.append(loss.detach())
            case.output("losses", torch.stack(losses))
            print(f"model/{name}/{variant}: loss {losses[0].item():.6f} to {losses[-1].item():.6f}")


def main():
    parser = argparse.ArgumentParser(description="Golden data of Meso's tests.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    w = Writer(parser.parse_args().check)
    for suite in (norms, layers, normalizers, attention, optimizers, models):
        suite(w)
    versions = f"PyTorch {torch.__version__}, NumPy {np.__version__}, Python {platform.python_version()}\n"
    if not w.check:
        (DATA / "versions.txt").write_text(versions)
    for path in sorted(set(DATA.rglob("*.npy")) - set(w.files)):
        w.failures.append(f"{path.relative_to(DATA)}: no case writes it")
    size = sum(path.stat().st_size for path in w.files)
    print(f"{versions}{len(w.files)} files, {size} bytes")
    if w.check:
        print(f"largest difference {w.worst[0]:.3g} of the largest number of {w.worst[1]}")
    for failure in w.failures:
        print(failure, file=sys.stderr)
    return 1 if w.failures else 0


if __name__ == "__main__":
    sys.exit(main())
