"""Programs whose Pallas kernels are compiled for a TPU, without one.

    python -m tests.functional.pallas_programs KIND

prints the programs that it has compiled, as JSON. The process needs the compilers that
scripts/accelerators.sh installs.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from docs.examples.user_cells import AttentionCell
from experiments.draw import attention
from experiments.handwriting.window import WindowCell
from lnrepro.functional import (
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    scan,
    stack,
    unroll,
    zoneout,
)

TOPOLOGIES = {"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
OPTIONS = ScanOptions(kernels="on", platform="tpu")
# Rows and units that do not fill the tiles of a TPU, and those that do.
ROWS, UNITS = 20, 100
FULL_ROWS, FULL_UNITS = 32, 128
STEPS, FEATURES = 4, 30


def cells(units: int) -> dict:
    """One cell for each kind of operation."""
    return {
        "lstm": LSTMCell(units, "layer", learned_carry=True, peephole=True),
        "lstm_batch": LSTMCell(units, "batch"),
        "gru": GRUCell(units, "layer"),
        "gru_before": GRUCell(units, "rms", reset="before"),
        "dreamer": DreamerGRUCell(units, "layer"),
        "attention": AttentionCell(units, memory_features=units),
        "window": WindowCell(LSTMCell(units, "layer"), 60, 10, -3.0),
        "zoneout": zoneout(LSTMCell(units, "layer"), 0.1, 0.1),
        "stack": stack(
            LSTMCell(units, "none"), GRUCell(units, "layer"), skip="residual"
        ),
    }


def memory_features(cell) -> int:
    """Number of features of the memory that a cell reads; any number serves others."""
    if isinstance(cell, AttentionCell):
        return cell.memory_features
    return cell.symbols if isinstance(cell, WindowCell) else 1


def of_cell(cell, rows: int, dtype=jnp.float32):
    """A gradient with padding and resets, and the shapes of its arguments."""
    key = jax.random.key(0)

    def loss(params, x, memory, lengths, resets):
        result = unroll(
            cell,
            params,
            x,
            memory=memory,
            seq_lengths=lengths,
            resets=resets,
            key=key if cell.is_noisy else None,
            time_major=True,
            options=OPTIONS,
        )
        return jnp.sum(jnp.square(result.outputs))

    return jax.grad(loss, (0, 1)), (
        jax.eval_shape(lambda: cell.init(key, FEATURES, dtype)),
        jax.ShapeDtypeStruct((STEPS, rows, FEATURES), dtype),
        jax.ShapeDtypeStruct((rows, 50, memory_features(cell)), dtype),
        jax.ShapeDtypeStruct((rows,), jnp.int32),
        jax.ShapeDtypeStruct((STEPS, rows), bool),
    )


def of_glimpse(rows: int, side: int = 28, points: int = 5, options=OPTIONS):
    """DRAW's two windows in a loop: reading from an image, and writing to a canvas."""

    def step(dot, image, canvas, noise, context):
        read, write = (
            attention.window(dot(name, noise), points, side)
            for name in ("read", "write")
        )
        patch = attention.read(read, image - jax.nn.sigmoid(canvas))
        patch = patch.reshape(-1, points, points)
        return canvas + attention.write(write, patch), jnp.sum(patch, (1, 2))

    def loss(weights, image, noise):
        canvas = jnp.zeros_like(image)
        result = scan(step, weights, image, canvas, noise, options=options)
        return jnp.sum(result.carry) + jnp.sum(result.aux)

    weights = {
        name: jax.ShapeDtypeStruct((8, 5), jnp.float32) for name in ("read", "write")
    }
    return jax.grad(loss, (0, 1)), (
        weights,
        jax.ShapeDtypeStruct((rows, side, side), jnp.float32),
        jax.ShapeDtypeStruct((STEPS, rows, 8), jnp.float32),
    )


def programs(kind: str):
    """Yield (name, function, shapes of its arguments).

    Compiling all for one kind of TPU takes minutes. So a v5e gets all of them, and the
    others an LSTM and a GRU.
    """
    if kind != "v5e":
        for name in ("lstm", "gru"):
            yield name, *of_cell(cells(UNITS)[name], ROWS)
        return
    for name, cell in cells(UNITS).items():
        yield name, *of_cell(cell, ROWS)
    for name in ("lstm", "gru"):
        yield f"{name} of full tiles", *of_cell(cells(FULL_UNITS)[name], FULL_ROWS)
        in_bfloat16 = of_cell(cells(FULL_UNITS)[name], FULL_ROWS, jnp.bfloat16)
        yield f"{name} in bfloat16", *in_bfloat16
    yield "glimpse", *of_glimpse(ROWS)


def main(kind: str) -> None:
    """Compile all programs for a TPU, and print their names."""
    topology = topologies.get_topology_desc(
        platform="tpu", topology_name=TOPOLOGIES[kind]
    )
    mesh = Mesh(np.array(topology.devices[:1]), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec())
    compiled = []
    for name, function, shapes in programs(kind):
        print(name, file=sys.stderr)
        jax.jit(function, in_shardings=sharding).lower(*shapes).compile()
        compiled.append(name)
    print(json.dumps(compiled))


if __name__ == "__main__":
    main(sys.argv[1])
