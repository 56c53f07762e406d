"""One optimiser step of an experiment against its most direct Flax version.

    python scripts/bench.py train --config=configs/draw.py:paper --norms none layer_cell

The time and XLA's temporary memory are measured. The direct version of experiments.NAME
is scripts/benches/direct/NAME.py: `make(config)` returns `init(key)`, which gives the
parameters, and `loss(params, batch, key)`, which gives a scalar. Both versions get the
config's batches, keys and optimiser and take steps alternately. If the direct version
has `batch(config)`, that batch is used, and the data set is not needed.
"""

import argparse
import collections
import contextlib
import importlib
import re
import statistics
import time

import jax
import optax
from ml_collections import ConfigDict

from lnrepro.engine import config_file, experiment, optim
from scripts.benches import cells, records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `train`."""
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
        help="number of timed steps; medians are reported",
    )
    parser.add_argument(
        "--shares",
        action="store_true",
        help="also print where ours spends its time, by jax.named_scope",
    )
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """Print a line for each norm.

    Returns:
      0.
    """
    ratios = {}
    for norm in args.norms or [None]:
        config = config_file.read(args.config)
        config.norm = norm or config.norm
        time_ratio, memory_ratio = _compare(config, args)
        ratios[f"time, ours / direct, {config.norm}"] = time_ratio
        ratios[f"temporary memory, ours / direct, {config.norm}"] = memory_ratio
    records.write(args.json, f"train, {args.config}", ratios)
    return 0


def step_of(config: ConfigDict) -> "Step":
    """Return the compiled optimiser step of a config, with its first batch."""
    ours = experiment.load(config)
    return _our_step(config, ours, _first_batch(ours), jax.random.key(config.seed))


def _first_batch(ours):
    with contextlib.closing(ours.batches(0)) as stream:
        return next(stream)


def _our_step(config, ours, batch, key):
    # The direct version has parameters only. Other collections, such as running
    # statistics, are constants of the loss here.
    collections_ = dict(jax.jit(ours.init)(key))
    params = collections_.pop("params")

    def loss(params, batch, key):
        return ours.loss({"params": params, **collections_}, batch, key)[0]

    return Step(config, params, loss, batch, key)


def _compare(config, args):
    """Measure, print a line, and return the ratios of time and of memory."""
    name = config.experiment.rpartition(".")[2]
    ours = experiment.load(config)
    direct = importlib.import_module(f"scripts.benches.direct.{name}")
    direct_init, direct_loss = direct.make(config)
    key = jax.random.key(config.seed)
    batch = direct.batch(config) if hasattr(direct, "batch") else _first_batch(ours)
    a = _our_step(config, ours, batch, key)
    b = Step(config, jax.jit(direct_init)(key), direct_loss, batch, key)
    # The first two rounds do not count.
    for _ in range(2):
        a.seconds()
        b.seconds()
    times_a, times_b = [], []
    for round in range(args.rounds):
        # Each is first in every second round.
        if round % 2:
            times_b.append(b.seconds())
        times_a.append(a.seconds())
        if not round % 2:
            times_b.append(b.seconds())
    # The median of the ratios of neighbouring steps: slow phases of the machine cancel.
    ratio = statistics.median(x / y for x, y in zip(times_a, times_b, strict=True))
    seconds_a, seconds_b = statistics.median(times_a), statistics.median(times_b)
    memory_a, memory_b = a.temporary_bytes / 1e6, b.temporary_bytes / 1e6
    print(
        f"{name} norm={config.norm} batch {config.batch_size} on "
        f"{jax.devices()[0].device_kind}: {seconds_a:.4f} s/step against "
        f"{seconds_b:.4f}, ratio {ratio:.3f}; temporary memory {memory_a:.0f} MB "
        f"against {memory_b:.0f}, ratio {memory_a / memory_b:.3f}",
        flush=True,
    )
    if args.shares:
        for scope, share in a.shares():
            print(f"  {share:6.1%} {scope}")
    return ratio, memory_a / memory_b


class Step:
    """A compiled optimiser step with its state.

    Attributes:
      temporary_bytes: XLA's temporary memory.
    """

    def __init__(self, config, params, loss, batch, key):
        optimizer = optim.make(config.optimizer, experiment.total_steps(config))

        def step(params, state, batch, key):
            value, grads = jax.value_and_grad(loss)(params, batch, key)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        self._state = (params, jax.jit(optimizer.init)(params))
        self._inputs = (batch, key)
        # As in the trainer, the new state takes over the memory of the old one.
        lowered = jax.jit(step, donate_argnums=(0, 1)).lower(
            *self._state, *self._inputs
        )
        self._compiled = lowered.compile()
        self.temporary_bytes = self._compiled.memory_analysis().temp_size_in_bytes

    def seconds(self) -> float:
        """Take a step and return its duration."""
        began = time.perf_counter()
        outputs = self._compiled(*self._state, *self._inputs)
        *self._state, _ = jax.block_until_ready(outputs)
        return time.perf_counter() - began

    def shares(self, steps: int = 3) -> list[tuple[str, float]]:
        """Return the scopes that take most of the time, with their fractions of it.

        Scopes are those of jax.named_scope. Matrix products are separate.

        Args:
          steps: the number of steps that are traced.
        """
        scopes = {}
        for line in self._compiled.as_text().splitlines():
            # {name of an instruction of the compiled program: its scope}. The trace has
            # the names only.
            found = re.match(r"\s*(?:ROOT )?%?([\w.-]+) = .*op_name=\"([^\"]*)\"", line)
            if found:
                scopes[found[1]] = _scope(found[2])
        events = cells.traced(lambda: [self.seconds() for _ in range(steps)])
        spent = collections.Counter()
        for event in events:
            # "X" are events with a duration, in microseconds.
            if event.get("ph") == "X" and "hlo_op" in event.get("args", {}):
                spent[scopes.get(event["name"], "other")] += event["dur"]
        return [(scope, time / spent.total()) for scope, time in spent.most_common(12)]


def _scope(op_name):
    """Return the outermost named scope of an operation."""
    # "jit(step)/transpose(jvp(encoder))/while/body/dot_general" -> "encoder".
    path = re.sub(r"(transpose|jvp|vmap)\(|jit\([^()]*\)|\)", "/", op_name)
    loop = ("", "while", "body", "closed_call")
    parts = [part for part in path.split("/") if part not in loop]
    scope = parts[0] if len(parts) > 1 else "other"
    return f"{scope}, products" if "dot_general" in op_name else scope
