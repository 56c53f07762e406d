"""Loss and gradient of every experiment at its start, on inputs that no data set should hold: none may be NaN or infinite.

Real-valued inputs (for experiments that read words: the word vectors) are scaled by 1e-6 to 1e6 and constant, all words
are one, and sequences have no step at all; in float32 and in bfloat16. A NaN that goes in must come out in the loss, for
it is the loss that the trainer watches. Sizes are those of :smoke, batches are made up.
"""

import argparse
import functools
import importlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.engine import experiment

SCALES = (1e-6, 1e-3, 1.0, 1e3, 1e6)
ROWS = 4

# Programs that run for microseconds are not worth optimising.
compiled = functools.partial(
    jax.jit,
    compiler_options={
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    },
)
DTYPES = ("float32", "bfloat16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `scripts/harden.py numerics`."""
    parser.add_argument(
        "--experiments",
        nargs="+",
        default=tuple(EXPERIMENTS),
        choices=EXPERIMENTS,
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
    """Print a line for each experiment, norm and dtype; 1 if anything is not as it must be."""
    print(
        "| experiment | norm | dtype | inputs tried | not finite | NaN put in | unseen |\n|---|---|---|---|---|---|---|"
    )
    total, failed = np.zeros(4, int), []
    for name in args.experiments:
        for norm in norms_of(name):
            for dtype in args.dtypes:
                try:
                    tried, wrong, put, unseen = check(name, norm, jnp.dtype(dtype))
                except TypeError:
                    if dtype == "float32":
                        raise
                    print(
                        f"| {name} | {norm} | {dtype} | refused: runs in float32 alone | | | |",
                        flush=True,
                    )
                    continue
                row = (tried, len(wrong), put, len(unseen))
                print(
                    f"| {name} | {norm} | {dtype} | {' | '.join(map(str, row))} |",
                    flush=True,
                )
                total += row
                failed += [
                    f"{name} {norm} {dtype}: {what}"
                    for what in (*wrong.items(), *unseen)
                ]
    print(f"| all | | | {' | '.join(map(str, total))} |")
    for line in failed:
        print(line)
    return 1 if failed else 0


def norms_of(name: str) -> tuple[str, ...]:
    """The values of config.norm that an experiment takes."""
    module = importlib.import_module(f"experiments.{name}")
    return (
        module
        if hasattr(module, "NORMS")
        else importlib.import_module(f"experiments.{name}.model")
    ).NORMS


def opened(name: str, norm: str) -> tuple[Any, experiment.Experiment, dict[str, Any]]:
    """(config, experiment, batch) at :smoke sizes."""
    config = importlib.import_module(f"configs.{name}").get_config("smoke")
    config.norm = norm
    batch = EXPERIMENTS[name][0](config, np.random.default_rng(0))
    return config, experiment.load(config), batch


def check(
    name: str, norm: str, dtype: Any
) -> tuple[int, dict[str, list[str]], int, list[str]]:
    """(inputs tried, {input: what was not finite}, NaNs put in, where one left no trace in the loss)."""
    inputs = EXPERIMENTS[name][1]
    _, exp, batch = opened(name, norm)
    collections = dict(compiled(exp.init)(jax.random.key(0, impl="rbg")))
    params, batch = as_floats((collections.pop("params"), batch), dtype)
    key = jax.random.key(1, impl="rbg")
    loss = lambda params, batch: exp.loss({"params": params, **collections}, batch, key)  # noqa: E731
    step = compiled(jax.value_and_grad(loss, has_aux=True))
    wrong, tried, put, unseen = {}, 0, 0, []
    for tried, (what, p, b) in enumerate(stresses(inputs, params, batch), 1):  # noqa: B007
        (value, (new, metrics)), grads = step(p, b)
        if bad := not_finite(
            {"loss": value, "new": new, "metrics": metrics, "gradient": grads}
        ):
            wrong[what] = bad
    for put, (where, p, b) in enumerate(poisons(inputs, params, batch), 1):  # noqa: B007
        if np.isfinite(step(p, b)[0][0]):
            unseen.append(f"NaN in {where}")
    return tried, wrong, put, unseen


def as_floats(tree: Any, dtype: Any) -> Any:
    """The tree as arrays, real numbers in `dtype`."""

    def cast(a):
        real = jnp.issubdtype(jnp.result_type(a), jnp.floating)
        return jnp.asarray(a, dtype if real else None)

    return jax.tree.map(cast, tree)


def not_finite(tree: Any) -> list[str]:
    """The leaves with a NaN or infinity."""
    leaves = jax.tree.leaves_with_path(tree)
    return [
        jax.tree_util.keystr(p)
        for p, x in leaves
        if not np.isfinite(np.asarray(x, np.float32)).all()
    ]


def stresses(
    inputs: tuple[str, ...], params: dict, batch: dict
) -> Iterator[tuple[str, dict, dict]]:
    """(what, params, batch), all of one shape; `inputs` are names of the batch, or else of the parameters."""
    found = {name: (batch if name in batch else params)[name] for name in inputs}

    def put(change):
        new = {name: jnp.asarray(change(x), x.dtype) for name, x in found.items()}
        return params | {n: new[n] for n in new if n not in batch}, batch | {
            n: new[n] for n in new if n in batch
        }

    for scale in SCALES:
        yield f"inputs times {scale:g}", *put(lambda x, s=scale: x * s)
        yield f"all inputs {scale:g}", *put(lambda x, s=scale: jnp.full_like(x, s))
    yield "all inputs 0", *put(jnp.zeros_like)
    lengths = [name for name in batch if name.endswith("length")]
    same = {
        name: jax.tree.map(jnp.zeros_like, v)
        for name, v in batch.items()
        if name not in (*inputs, *lengths)
    }
    yield "one word, one class", params, batch | same
    for names in ([[name] for name in lengths] + [lengths]) if lengths else []:
        yield (
            f"{names} 0",
            params,
            batch | {name: jnp.zeros_like(batch[name]) for name in names},
        )
        yield (
            f"{names} 0 in a row",
            params,
            batch | {name: batch[name].at[0].set(0) for name in names},
        )


def poisons(
    inputs: tuple[str, ...], params: dict, batch: dict
) -> Iterator[tuple[str, dict, dict]]:
    """(where, params, batch) with NaN in a row of an input, and in each of the parameters."""
    for name in batch.keys() & set(inputs):
        yield (
            f"a row of {name}",
            params,
            batch | {name: batch[name].at[-1].set(jnp.nan)},
        )
    leaves, tree = jax.tree.flatten(params)
    for i, (path, _) in enumerate(jax.tree.leaves_with_path(params)):
        poisoned = [
            jnp.full_like(x, jnp.nan) if k == i else x for k, x in enumerate(leaves)
        ]
        yield jax.tree_util.keystr(path), jax.tree.unflatten(tree, poisoned), batch


def _numbers(rng, below, *shape):
    return rng.integers(0, below, (ROWS, *shape)).astype(np.int32)


def _images(config, rng):
    side = config.data.get("image", (8, 8))
    return {
        "image": rng.uniform(0, config.data.full_ink, (ROWS, *side)),
        "label": _numbers(rng, 10),
    }


def _binary(config, rng):
    side = config.model.image_size = 8
    return {"image": rng.integers(0, 2, (ROWS, side, side)).astype(float)}


def _strokes(config, rng):
    m = config.model
    steps = rng.normal(size=(ROWS, m.steps, 3))
    steps[..., 2] = steps[..., 2] > 1
    text = {
        "text": _numbers(rng, m.symbols, m.characters),
        "text_length": _numbers(rng, m.characters) + 1,
    }
    return text | {"steps": steps, "steps_length": _numbers(rng, m.steps) + 1}


def _pairs(config, rng):
    tokens, lengths = _numbers(rng, config.data.vocabulary, 7), _numbers(rng, 7) + 1
    return {
        "image": rng.normal(size=(ROWS, config.model.features)),
        "tokens": (tokens,),
        "length": lengths,
    }


def _questions(config, rng):
    made = {"answer": 1 + _numbers(rng, config.data.entities)}
    for name, steps in (("passage", 11), ("question", 5)):
        made |= {
            name: _numbers(rng, config.data.vocabulary, steps),
            f"{name}_length": _numbers(rng, steps) + 1,
        }
    return made


def _triples(config, rng):
    made = {}
    for name in ("previous", "current", "next"):
        made |= {
            name: _numbers(rng, config.model.vocabulary, 6),
            f"{name}_length": _numbers(rng, 6) + 1,
        }
    return made


# A batch of each experiment, and its real-valued inputs: of the batch, or else the word vectors among the parameters.
EXPERIMENTS = {
    "mnist": (_images, ("image",)),
    "convnet": (_images, ("image",)),
    "draw": (_binary, ("image",)),
    "handwriting": (_strokes, ("steps",)),
    "order_embeddings": (_pairs, ("image", "words")),
    "attentive_reader": (_questions, ("embedding",)),
    "skip_thoughts": (_triples, ("embedding",)),
}
