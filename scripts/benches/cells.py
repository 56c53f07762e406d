"""The recurrent cells against Flax and, where installed, torch and dm-haiku.

Time, temporary memory and compile time are measured.
"""

import argparse
import functools
import importlib.util
import itertools
import json
import pathlib
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro import functional

# T, B, D, H of the paper's experiments.
SHAPES = {
    "handwriting": (500, 8, 77, 400),
    "draw": (64, 128, 356, 256),
    "reader": (300, 32, 240, 240),
    "order": (25, 128, 300, 1024),
    "skip": (30, 64, 620, 2400),
}

# Number of compilations of each function, in turns; their median is reported.
COMPILATIONS = 7

# Functions whose times are compared.
PAIRS = (
    ("ours LN", "Flax LN"),
    ("ours LN", "Flax plain"),
    ("ours LN", "torch plain"),
    ("ours LN", "torch script LN"),
    ("ours LN", "haiku plain"),
    ("ours LN, inference", "Flax plain, inference"),
    ("products alone", "Flax LN"),
    ("products alone", "Flax plain"),
    ("products alone", "torch plain"),
    ("products alone, inference", "Flax plain, inference"),
    ("torch products alone", "torch plain"),
    ("torch products alone", "torch script LN"),
)


class Contestant(NamedTuple):
    """A function that is measured.

    `call` runs it once and waits for it. If it is compiled first, it has `compile`, and
    `call` takes the result.
    """

    call: Callable
    compile: Callable[[], Any] | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `cells`."""
    parser.add_argument("--cell", choices=("lstm", "gru"), default="lstm")
    parser.add_argument(
        "--shapes", nargs="+", choices=tuple(SHAPES), default=list(SHAPES)
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="interleaved repetitions at least; the median is reported",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=30,
        help="repeat each shape for so long at least",
    )
    parser.add_argument(
        "--peers",
        nargs="*",
        default=["torch", "haiku"],
        help="libraries to measure if they are installed",
    )
    parser.add_argument(
        "--json", type=pathlib.Path, help="also write the figures there"
    )


def main(args: argparse.Namespace) -> int:
    """Print a markdown table of medians, and the geometric means of the ratios."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    device = jax.devices()[0]
    print(
        f"{args.cell}, {device.device_kind} ({platform.machine()}, "
        f"{jax.device_count()} device), jax {jax.__version__}, commit {commit}"
    )
    print(
        f"forward + backward unless `inference`; medians of {args.rounds} interleaved "
        f"rounds or more, for {args.seconds:g} s or longer a shape; temp = temporary "
        "memory\n"
    )
    print(
        "| shape | what | ms | x Flax plain | x Flax LN | temp MB | compile s |\n"
        "|---|---|---|---|---|---|---|"
    )
    _ours(
        functional.LSTMCell, (2, 1, 1, 1), "layer", True
    ).compile()  # The first compilation of a process takes longer.
    table = {name: _shape(name, args) for name in args.shapes}
    print("\ngeometric means over the shapes measured:")
    for what, ours, theirs in (
        *(("ms", *pair) for pair in PAIRS),
        *(("temp_mb", "ours LN", f"Flax {theirs}") for theirs in ("LN", "plain")),
        ("compile_s", "ours LN", "Flax plain"),
    ):
        both = [
            (rows[ours][what], rows[theirs][what])
            for rows in table.values()
            if {ours, theirs} <= rows.keys()
        ]
        ratios = [
            a / b for a, b in both if a and b
        ]  # Some backends do not report their memory.
        if ratios:
            name = {
                "ms": "time",
                "temp_mb": "temporary memory",
                "compile_s": "time to compile",
            }[what]
            most = f" (at most {max(ratios):.2f})" if what == "temp_mb" else ""
            mean = statistics.geometric_mean(ratios)
            print(f"- {name}, {ours} / {theirs}: {mean:.3f}{most}")
    if args.json:
        record = {
            "cell": args.cell,
            "device": device.device_kind,
            "jax": jax.__version__,
            "commit": commit,
            "shapes": table,
        }
        args.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def _shape(name, args):
    contestants = {
        label: make() for label, make in _contestants(args, SHAPES[name]).items()
    }
    runs, rows = _prepare(contestants)
    times = {label: [] for label in runs}
    begun = time.perf_counter()
    for done in itertools.count():
        if done >= args.rounds and time.perf_counter() - begun > args.seconds:
            break
        for label, call in _shuffled(runs, done):
            start = time.perf_counter()
            call()
            times[label].append(time.perf_counter() - start)
    for label, row in rows.items():
        row |= {"ms": 1e3 * statistics.median(times[label]), "rounds": done}
    for label, row in rows.items():
        rest = ", inference" if label.endswith("inference") else ""
        ratios = [
            f"{row['ms'] / rows[other]['ms']:.2f}" if other in rows else ""
            for other in (f"Flax plain{rest}", "Flax LN")
        ]
        temp, compiled = (
            "" if value is None else f"{value:{how}}"
            for value, how in ((row["temp_mb"], ".0f"), (row["compile_s"], ".2f"))
        )
        print(
            f"| {name} | {label} | {row['ms']:.1f} | {ratios[0]} "
            f"| {'' if rest else ratios[1]} | {temp} | {compiled} |",
            flush=True,
        )
    return rows


def _prepare(contestants):
    """Compile in turns and run everything once.

    Returns:
      {label: call}, and {label: what was measured of its compilation}.
    """
    compiled, seconds = {}, {label: [] for label, c in contestants.items() if c.compile}
    for turn in range(COMPILATIONS):
        for label, _ in _shuffled(seconds, turn):
            # Otherwise it would find traced parts of the one before.
            jax.clear_caches()
            start = time.perf_counter()
            compiled[label] = contestants[label].compile()
            seconds[label].append(time.perf_counter() - start)
    runs, rows = {}, {}
    for label, contestant in contestants.items():
        runs[label], rows[label] = contestant.call, {"compile_s": None, "temp_mb": None}
        if label in compiled:
            runs[label] = functools.partial(contestant.call, compiled[label])
            memory = (
                analysis := compiled[label].memory_analysis()
            ) and analysis.temp_size_in_bytes / 1e6
            rows[label] = {
                "compile_s": statistics.median(seconds[label]),
                "temp_mb": memory,
            }
        runs[label]()
    return runs, rows


def _shuffled(table, turn):
    """Return a table's items in an order that differs from turn to turn.

    No item then always follows the same other one.
    """
    return random.Random(turn).sample(list(table.items()), len(table))


def _contestants(args, shape):
    """Return {label: function that makes its Contestant}."""
    lstm = args.cell == "lstm"
    plain, layered = (nn.OptimizedLSTMCell, _LNLSTM) if lstm else (nn.GRUCell, _LNGRU)
    make = functional.LSTMCell if lstm else functional.GRUCell
    found = {
        "ours LN": lambda: _ours(make, shape, "layer", True),
        "ours plain": lambda: _ours(make, shape, "none", True),
        "Flax LN": lambda: _flax(layered, shape, True),
        "Flax plain": lambda: _flax(plain, shape, True),
        "ours LN, inference": lambda: _ours(make, shape, "layer", False),
        "Flax plain, inference": lambda: _flax(plain, shape, False),
        "products alone": lambda: _products(make, shape, True),
        "products alone, inference": lambda: _products(make, shape, False),
    }
    if (
        "torch" in args.peers
        and importlib.util.find_spec("torch")
        and _torch_beside_jax()
    ):
        found["torch plain"] = lambda: _torch(lstm, shape)
        found["torch products alone"] = lambda: _torch_products(lstm, shape)
        if lstm:
            found["torch script LN"] = lambda: _torch_script(shape)
    if "haiku" in args.peers and importlib.util.find_spec("haiku"):
        found["haiku plain"] = lambda: _haiku(lstm, shape)
    return found


def _jax(apply, params, shape, train):
    """Return y's gradient with respect to parameters and inputs, or y alone.

    The weights of the loss are an argument. Constants would be written into the program
    and count as compile time. So would the drawing of parameters, which takes seconds
    for a large orthogonal kernel.
    """
    steps, batch, features, hidden = shape
    x = jax.random.normal(jax.random.key(0), (steps, batch, features))
    w = jax.random.normal(jax.random.key(1), (steps, batch, hidden))
    loss = jax.grad(lambda p, x, w: jnp.sum(apply(p, x) * w), (0, 1))
    function, given = (loss, (params, x, w)) if train else (apply, (params, x))
    jax.block_until_ready(given)
    return Contestant(
        lambda compiled: jax.block_until_ready(compiled(*given)),
        lambda: jax.jit(function).lower(*given).compile(),
    )


def _ours(make, shape, norm, train):
    return _unrolled(make(shape[3], norm=norm), shape, train)


def _unrolled(cell, shape, train):
    params = cell.init(jax.random.key(2), shape[2])

    def apply(params, x):
        return functional.unroll(cell, params, x, time_major=True).outputs

    return _jax(apply, params, shape, train)


def _products(make, shape, train):
    """Return our scan of a cell that does little besides its matrix products."""

    class ProductsCell(make):
        """A cell with the products of `make`, whose gates are added."""

        def step(self, dot, params, carry, x_proj, context):
            h = carry[-1] if isinstance(carry, tuple) else carry
            # A linear function, so that nothing is kept for the backward pass.
            h = 0.1 * sum(jnp.split(x_proj + dot("w_h", h), self.gates, -1))
            return (carry[0], h) if isinstance(carry, tuple) else h, None

    return _unrolled(ProductsCell(shape[3], use_bias=False), shape, train)


def _flax(cell, shape, train):
    module = nn.RNN(cell(shape[3]), time_major=True)
    variables = module.init(jax.random.key(2), jnp.zeros((1, *shape[1:3])))
    return _jax(module.apply, variables, shape, train)


class _LNLSTM(nn.RNNCellBase):
    """Eq. 20-22 written with nn.Dense and nn.LayerNorm, as most Flax users would."""

    features: int

    @nn.compact
    def __call__(self, carry, x):
        c, h = carry
        dense_x = nn.Dense(4 * self.features, use_bias=False, name="x")(x)
        dense_h = nn.Dense(4 * self.features, use_bias=False, name="h")(h)
        gates = nn.LayerNorm(1e-5, name="norm_x")(dense_x) + nn.LayerNorm(
            1e-5, use_bias=False, name="norm_h"
        )(dense_h)
        f, i, o, g = jnp.split(gates, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(nn.LayerNorm(1e-5, name="norm_c")(c))
        return (c, h), h

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        zeros = jnp.zeros((*input_shape[:-1], self.features))
        return zeros, zeros

    num_feature_axes = 1


class _LNGRU(nn.RNNCellBase):
    """Eq. 26-28 written with nn.Dense and nn.LayerNorm."""

    features: int

    @nn.compact
    def __call__(self, h, x):
        def normed(name, size, value, bias):
            return nn.LayerNorm(1e-5, name=f"norm_{name}")(
                nn.Dense(size, use_bias=bias, name=name)(value)
            )

        size = self.features
        z, r = jnp.split(
            nn.sigmoid(
                normed("x", 2 * size, x, True) + normed("h", 2 * size, h, False)
            ),
            2,
            -1,
        )
        n = jnp.tanh(normed("xn", size, x, True) + r * normed("hn", size, h, False))
        h = (1 - z) * h + z * n
        return h, h

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        return jnp.zeros((*input_shape[:-1], self.features))

    num_feature_axes = 1


def _haiku(lstm, shape):
    import haiku as hk

    def run(x):
        core = hk.LSTM(shape[3]) if lstm else hk.GRU(shape[3])
        return hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))[0]

    model = hk.without_apply_rng(hk.transform(run))
    params = model.init(jax.random.key(2), jnp.zeros((1, *shape[1:3])))
    return _jax(model.apply, params, shape, True)


def _torch_beside_jax():
    """Make torch use JAX's device and precision; return whether it can.

    On a GPU its LSTM is then cuDNN's.
    """
    import torch

    if jax.default_backend() == "gpu":
        if not torch.cuda.is_available():
            return False
        # JAX uses TF32 by default.
        torch.set_float32_matmul_precision("high")
        torch.set_default_device("cuda")
        return True
    return jax.default_backend() == "cpu"


def _torch_wait():
    import torch

    if torch.get_default_device().type == "cuda":
        torch.cuda.synchronize()


def _torch(lstm, shape):
    import torch

    _, _, features, hidden = shape
    module = (torch.nn.LSTM if lstm else torch.nn.GRU)(features, hidden)
    return _torch_call(lambda x: module(x)[0], list(module.parameters()), shape)


def _torch_call(forward, parameters, shape):
    import torch

    steps, batch, features, hidden = shape
    x = torch.randn(steps, batch, features, requires_grad=True)
    w = torch.randn(steps, batch, hidden)

    def call():
        torch.autograd.grad((forward(x) * w).sum(), [x, *parameters])
        _torch_wait()

    return Contestant(call)


def _torch_products(lstm, shape):
    """Return the matrix products of a sequence, forward and backward, in torch.

    They are for comparison, and no strict lower bound. The projection of the inputs,
    the gradients of the kernels and those of the inputs are one product each.
    """
    import torch

    steps, batch, features, hidden = shape
    gates = (4 if lstm else 3) * hidden
    x, h, d = (torch.randn(steps, batch, n) for n in (features, hidden, gates))
    w_x, w_h = torch.randn(features, gates), torch.randn(hidden, gates)
    rows_x, rows_h, rows_d = (a.flatten(0, 1) for a in (x, h, d))

    @torch.no_grad()
    def call():
        rows_x @ w_x
        for t in range(steps):
            h[t] @ w_h
        for t in range(steps):
            d[t] @ w_h.T
        rows_x.T @ rows_d, rows_h.T @ rows_d, rows_d @ w_x.T
        _torch_wait()

    return Contestant(call)


def _torch_script(shape):
    """Eq. 20-22 as a scripted loop, the usual layer-normalised LSTM in torch."""
    import torch

    _, _, features, hidden = shape

    def run(x: torch.Tensor, w_x: torch.Tensor, w_h: torch.Tensor, b: torch.Tensor, g_x: torch.Tensor, g_h: torch.Tensor, g_c: torch.Tensor, b_c: torch.Tensor):  # fmt: skip  # noqa: E501
        h = torch.zeros(x.size(1), w_h.size(0), device=x.device)
        c = torch.zeros_like(h)
        ys: list[torch.Tensor] = []
        for t in range(x.size(0)):
            a = torch.layer_norm(x[t] @ w_x, [w_x.size(1)], g_x, b) + torch.layer_norm(
                h @ w_h, [w_h.size(1)], g_h, None
            )
            f, i, o, g = a.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(
                torch.layer_norm(c, [c.size(1)], g_c, b_c)
            )
            ys.append(h)
        return torch.stack(ys)

    script = torch.jit.script(run)
    sizes = (
        (features, 4 * hidden),
        (hidden, 4 * hidden),
        (4 * hidden,),
        (4 * hidden,),
        (4 * hidden,),
        (hidden,),
        (hidden,),
    )
    parameters = [(torch.randn(*s) / (s[0] ** 0.5)).requires_grad_() for s in sizes[:2]]
    parameters += [torch.ones(*s).requires_grad_() for s in sizes[2:]]
    return _torch_call(lambda x: script(x, *parameters), parameters, shape)
