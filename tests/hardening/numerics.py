"""Loss and gradient of every experiment at its start, on extreme inputs.

    python -m tests.hardening numerics

Neither may be NaN or infinite. Real-valued inputs (the word vectors, in experiments
that read words) are scaled by 1e-6 to 1e6 and constant, all words are one, and
sequences are empty, in float32 and in bfloat16. A NaN in an input must appear in the
loss, because the trainer watches the loss. Sizes and data are those of :smoke.
"""

import argparse
import functools
import importlib
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.engine import config_file, experiment
from scripts import markdown as md
from tests.runs import ROOT

SCALES = (1e-6, 1e-3, 1.0, 1e3, 1e6)
ROWS = 4
# Longest sequence. The layer norm of zeros multiplies a gradient by 1 / sqrt(eps) = 316
# in every step, so that the true gradient of 15 steps is beyond float32.
LONGEST = 10
# Names of the real-valued inputs in a batch, or else of the word vectors in the
# parameters.
INPUTS = {
    "mnist": ("image",),
    "convnet": ("image",),
    "draw": ("image",),
    "handwriting": ("steps",),
    "order_embeddings": ("image", "words"),
    "attentive_reader": ("embedding",),
    "skip_thoughts": ("embedding",),
}

# Programs that run for microseconds are not worth optimising.
compiled = functools.partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)
DTYPES = ("float32", "bfloat16")


class Report(NamedTuple):
    """The result of an experiment under a norm.

    Attributes:
      tried: number of inputs.
      wrong: {input: what was not finite}.
      poisoned: number of places where NaN was put.
      unseen: the places from which it did not reach the loss.
    """

    tried: int
    wrong: dict[str, list[str]]
    poisoned: int
    unseen: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `numerics`."""
    parser.add_argument(
        "--experiments",
        nargs="+",
        default=tuple(INPUTS),
        choices=INPUTS,
        metavar="NAME",
    )
    parser.add_argument(
        "--dtypes",
        nargs="+",
        default=DTYPES,
        choices=DTYPES,
        help="of parameters and inputs",
    )


def main(args: argparse.Namespace) -> int:
    """Print a row for each experiment, norm and dtype.

    Returns:
      1 if anything is wrong, otherwise 0.
    """
    head = ("experiment", "norm", "dtype", "inputs tried", "not finite")
    print(md.head((*head, "NaN put in", "unseen")))
    total, failed = np.zeros(4, int), []
    cases = [(name, norm) for name in args.experiments for norm in norms_of(name)]
    for (name, norm), dtype in itertools.product(cases, args.dtypes):
        case = name, norm, dtype
        try:
            report = check(name, norm, jnp.dtype(dtype))
        # float32 must run. Of the others, an experiment may refuse a dtype.
        except TypeError:
            if dtype == "float32":
                raise
            refused = "refused: runs in float32 alone"
            print(md.row((*case, refused, "", "", "")), flush=True)
            continue
        wrong, unseen = report.wrong, report.unseen
        row = (report.tried, len(wrong), report.poisoned, len(unseen))
        print(md.row((*case, *row)), flush=True)
        total += row
        for what in (*wrong.items(), *unseen):
            failed.append(f"{name} {norm} {dtype}: {what}")
    print(md.row(("all", "", "", *total)))
    for line in failed:
        print(line)
    return 1 if failed else 0


def norms_of(name: str) -> tuple[str, ...]:
    """Return the values of config.norm that an experiment accepts."""
    module = importlib.import_module(f"experiments.{name}")
    if not hasattr(module, "NORMS"):
        module = importlib.import_module(f"experiments.{name}.model")
    return module.NORMS


def opened(name: str, norm: str) -> tuple[Any, experiment.Experiment, dict[str, Any]]:
    """Return config, experiment and its first batch, with its inputs as real numbers.

    Args:
      name: the experiment.
      norm: config.norm.
    """
    flags = (f"--config.norm={norm}", f"--config.batch_size={ROWS}")
    config = config_file.read(f"{ROOT}/configs/{name}.py:smoke", flags)
    exp = experiment.load(experiment.fill_sizes(config))
    batch = dict(next(iter(exp.batches(0))))
    for entry in batch.keys() & set(INPUTS[name]):
        batch[entry] = np.asarray(batch[entry], float)
    for entry in lengths_of(batch):
        batch[entry] = np.minimum(batch[entry], LONGEST)
    return config, exp, batch


def lengths_of(batch: dict[str, Any]) -> list[str]:
    """Return the names of the lengths of the sequences of a batch."""
    return [name for name in batch if name.endswith("length")]


def check(name: str, norm: str, dtype: Any) -> Report:
    """Try an experiment.

    Args:
      name: the experiment.
      norm: config.norm.
      dtype: of parameters and inputs.
    """
    inputs = INPUTS[name]
    _, exp, batch = opened(name, norm)
    collections = dict(compiled(exp.init)(jax.random.key(0, impl="rbg")))
    params, batch = as_floats((collections.pop("params"), batch), dtype)
    key = jax.random.key(1, impl="rbg")

    def loss(params, batch):
        return exp.loss({"params": params, **collections}, batch, key)

    # One program for all inputs, since they have one shape.
    step = compiled(jax.value_and_grad(loss, has_aux=True))
    tried, wrong = 0, {}
    for what, p, b in stresses(inputs, params, batch):
        (value, (new, metrics)), grads = step(p, b)
        results = {"loss": value, "new": new, "metrics": metrics, "gradient": grads}
        bad = not_finite(results)
        if bad:
            wrong[what] = bad
        tried += 1
    poisoned, unseen = 0, []
    for where, p, b in poisons(inputs, params, batch):
        (value, _), _ = step(p, b)
        # The trainer stops a run whose loss is not finite. A NaN that does not reach
        # the loss would go on unseen.
        if np.isfinite(value):
            unseen.append(f"NaN in {where}")
        poisoned += 1
    return Report(tried, wrong, poisoned, unseen)


def as_floats(tree: Any, dtype: Any) -> Any:
    """Return the tree as arrays, real numbers in `dtype`."""

    def cast(a):
        real = jnp.issubdtype(jnp.result_type(a), jnp.floating)
        return jnp.asarray(a, dtype if real else None)

    return jax.tree.map(cast, tree)


def not_finite(tree: Any) -> list[str]:
    """Return the names of the leaves with a NaN or infinity."""
    found = []
    for path, leaf in jax.tree.leaves_with_path(tree):
        if not np.isfinite(np.asarray(leaf, np.float32)).all():
            found.append(jax.tree_util.keystr(path))
    return found


def stresses(
    inputs: tuple[str, ...], params: dict, batch: dict
) -> Iterator[tuple[str, dict, dict]]:
    """Yield (what was changed, params, batch), all of one shape.

    Args:
      inputs: names in the batch, or else in the parameters.
      params: the parameters.
      batch: the batch.
    """

    def change(function):
        new_params, new_batch = dict(params), dict(batch)
        for name in inputs:
            tree = new_batch if name in batch else new_params
            tree[name] = jnp.asarray(function(tree[name]), tree[name].dtype)
        return new_params, new_batch

    for scale in SCALES:
        yield f"inputs times {scale:g}", *change(functools.partial(_scaled, scale))
        yield f"all inputs {scale:g}", *change(functools.partial(_filled, scale))
    yield "all inputs 0", *change(jnp.zeros_like)
    # Every integer entry but the lengths becomes zero: one word, one class.
    lengths = lengths_of(batch)
    words = {k: v for k, v in batch.items() if k not in (*inputs, *lengths)}
    zeros = jax.tree.map(jnp.zeros_like, words)
    yield "one word, one class", params, batch | zeros
    # Each length by itself, and all of them together.
    groups = [[name] for name in lengths]
    if lengths:
        groups.append(lengths)
    for names in groups:
        empty = {name: jnp.zeros_like(batch[name]) for name in names}
        # All sequences empty, then only the first one of the batch.
        yield f"{names} 0", params, batch | empty
        empty = {name: batch[name].at[0].set(0) for name in names}
        yield f"{names} 0 in a row", params, batch | empty


def _scaled(scale, x):
    return x * scale


def _filled(scale, x):
    return jnp.full_like(x, scale)


def poisons(
    inputs: tuple[str, ...], params: dict, batch: dict
) -> Iterator[tuple[str, dict, dict]]:
    """Yield (where, params, batch) with NaN in a row of an input or in a parameter.

    Args:
      inputs: names in the batch, or else in the parameters.
      params: the parameters.
      batch: the batch.
    """
    for name in batch.keys() & set(inputs):
        # Only the last row: the mean over the batch must still show it.
        poisoned = batch[name].at[-1].set(jnp.nan)
        yield f"a row of {name}", params, batch | {name: poisoned}
    leaves, tree = jax.tree.flatten(params)
    for i, (path, leaf) in enumerate(jax.tree.leaves_with_path(params)):
        poisoned = [*leaves[:i], jnp.full_like(leaf, jnp.nan), *leaves[i + 1 :]]
        yield jax.tree_util.keystr(path), jax.tree.unflatten(tree, poisoned), batch
