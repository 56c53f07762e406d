"""One optimiser step of an experiment against its most direct Flax version, in turns: time, and XLA's temporary memory.

    python scripts/bench.py train --config=configs/draw.py:paper --norms none layer_cell --shares

The direct version of `experiments.NAME` stands in scripts/benches/direct/NAME.py: `make(config)` returns `init(key)`,
the parameters, and `loss(params, batch, key)`, a scalar. Both get the config's batches, keys and optimiser; a direct
version that also gives `batch(config)` is measured on that, without the data set.
"""

import argparse
import collections
import contextlib
import gzip
import importlib
import json
import pathlib
import re
import statistics
import tempfile
import time

import jax
import optax

from lnrepro.engine import config_file, experiment, optim


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `scripts/bench.py train`."""
    parser.add_argument(
        "--config",
        required=True,
        metavar="FILE[:VARIANT]",
        help="configs/NAME.py[:VARIANT]",
    )
    parser.add_argument(
        "--norms",
        nargs="*",
        help="values of config.norm to measure; the config's own by default",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=12,
        help="timed steps of each; medians are reported",
    )
    parser.add_argument(
        "--shares",
        action="store_true",
        help="also where ours spends its time, by jax.named_scope",
    )


def main(args: argparse.Namespace) -> int:
    """Print a line for each norm."""
    for norm in args.norms or [None]:
        config = config_file.read(args.config)
        config.norm = norm or config.norm
        _compare(config, args)
    return 0


def _compare(config, args) -> None:
    name = config.experiment.rpartition(".")[2]
    ours = experiment.load(config)
    direct = importlib.import_module(f"scripts.benches.direct.{name}")
    direct_init, direct_loss = direct.make(config)
    key = jax.random.key(config.seed)
    if hasattr(direct, "batch"):
        batch = direct.batch(config)
    else:
        with contextlib.closing(ours.batches(0)) as stream:
            batch = next(stream)
    collections_of = lambda vars: {k: v for k, v in vars.items() if k != "params"}  # noqa: E731
    vars = jax.jit(ours.init)(key)

    def our_loss(params, batch, key):
        return ours.loss({"params": params, **collections_of(vars)}, batch, key)[0]

    steps = {
        "ours": Step(config, vars["params"], our_loss, batch, key),
        "direct": Step(config, jax.jit(direct_init)(key), direct_loss, batch, key),
    }
    times = collections.defaultdict(list)
    for round in range(args.rounds + 2):
        for which in sorted(steps, reverse=round % 2):
            took = steps[which].timed()
            if round >= 2:
                times[which].append(took)
    ratio = statistics.median(
        a / b for a, b in zip(times["ours"], times["direct"], strict=True)
    )
    a, b = (
        {"s": statistics.median(times[w]), "MB": steps[w].temporary / 1e6}
        for w in ("ours", "direct")
    )
    print(
        f"{name} norm={config.norm} batch {config.batch_size} on {jax.devices()[0].device_kind}: "
        f"{a['s']:.4f} s/step against {b['s']:.4f}, ratio {ratio:.3f}; "
        f"temporary memory {a['MB']:.0f} MB against {b['MB']:.0f}, ratio {a['MB'] / b['MB']:.3f}",
        flush=True,
    )
    if args.shares:
        for scope, share in steps["ours"].shares():
            print(f"  {share:6.1%} {scope}")


class Step:
    """A compiled optimiser step with its state."""

    def __init__(self, config, params, loss, batch, key):
        optimizer = optim.make(config.optimizer)

        def step(params, state, batch, key):
            value, grads = jax.value_and_grad(loss)(params, batch, key)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        self.state = (params, jax.jit(optimizer.init)(params))
        self.rest = (batch, key)
        self.compiled = (
            jax.jit(step, donate_argnums=(0, 1))
            .lower(*self.state, *self.rest)
            .compile()
        )
        self.temporary = self.compiled.memory_analysis().temp_size_in_bytes

    def timed(self) -> float:
        """Seconds for one step."""
        began = time.perf_counter()
        *self.state, _ = jax.block_until_ready(self.compiled(*self.state, *self.rest))
        return time.perf_counter() - began

    def shares(self, steps: int = 3) -> list[tuple[str, float]]:
        """[(scope, fraction of the traced time)], most first; matrix products apart."""
        scopes = {}
        for line in self.compiled.as_text().splitlines():
            if found := re.match(
                r"\s*(?:ROOT )?%?([\w.-]+) = .*op_name=\"([^\"]*)\"", line
            ):
                path = re.sub(r"(transpose|jvp|vmap)\(|jit\([^()]*\)|\)", "/", found[2])
                parts = [
                    p
                    for p in path.split("/")
                    if p and p not in ("while", "body", "closed_call")
                ]
                product = ", products" if "dot_general" in found[2] else ""
                scopes[found[1]] = (parts[0] if len(parts) > 1 else "other") + product
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(steps):
                    self.timed()
            (written,) = pathlib.Path(folder).glob("**/*.trace.json.gz")
            trace = json.loads(gzip.decompress(written.read_bytes()))
        spent = collections.Counter()
        for event in trace["traceEvents"]:
            if event.get("ph") == "X" and "hlo_op" in event.get("args", {}):
                spent[scopes.get(event["name"], "other")] += event["dur"]
        return [(scope, time / spent.total()) for scope, time in spent.most_common(12)]
