"""What every cell can do with every norm: one function for each check.

docs/capabilities.md shows `table()`.
"""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from lnrepro.functional import (
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    unroll,
)
from tests.convert.cases import CASES
from tests.functional import programs
from tests.functional.programs import (
    drawn,
    norms_of,
    relative_error,
    same,
    shapes_of,
    total,
)

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "capabilities.md"
B, T, D, H = 4, 5, 3, 8
X = np.random.default_rng(0).standard_normal((B, T, D))
JOINT = {"norm_site": "joint", "cell_norm": "carry"}
CELLS = {
    **{f"LSTM, {norm}": LSTMCell(H, norm) for norm in norms_of(LSTMCell)},
    "LSTM, layer, joint": LSTMCell(H, "layer", **JOINT),
    **{f"GRU, {norm}": GRUCell(H, norm) for norm in norms_of(GRUCell)},
    "GRU, layer, reset before": GRUCell(H, "layer", reset="before"),
    **{f"Simple, {norm}": SimpleCell(H, norm) for norm in norms_of(SimpleCell)},
    **{
        f"DreamerGRU, {norm}": DreamerGRUCell(H, norm)
        for norm in norms_of(DreamerGRUCell)
    },
    "DreamerBlockGRU, rms": DreamerBlockGRUCell(
        H, hidden_features=3, input_sizes=(2, 1), blocks=2
    ),
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@functools.cache
def params_of(cell):
    return drawn(shapes_of(cell, D, jnp.float64)[0])


def close(a, b, tolerance=1e-9):
    same(*jax.device_get((a, b)), tolerance)


def run(cell, x=X, params=None, **options):
    params = params_of(cell) if params is None else params
    return programs.run(cell, params, x, **options)


def loss(cell, params, x, **options):
    return total(unroll(cell, params, x, **options)[:2])


@functools.cache
def gradient(cell):
    return jax.jit(jax.grad(functools.partial(loss, cell), (0, 1)))


# The checks, in the order of the page


def any_batch_axes(cell):
    """Two batch axes, and none, in values and gradients."""
    params, two = params_of(cell), X.reshape(2, 2, T, D)
    d_params, d_x = gradient(cell)(params, two)
    close((d_params, d_x.reshape(X.shape)), gradient(cell)(params, X))
    d_params, d_x = gradient(cell)(params, X[0])
    close((d_params, d_x[None]), gradient(cell)(params, X[:1]))


def bfloat16(cell):
    """Outputs and gradients stay bfloat16, near those in float64."""
    narrow = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (params_of(cell), X))
    exact = jax.tree.map(lambda a: a.astype(np.float64), narrow)
    assert run(cell, narrow[1], narrow[0]).outputs.dtype == jnp.bfloat16
    mine, theirs = gradient(cell)(*narrow), gradient(cell)(*exact)
    # The dtype of all of them, if it is one.
    assert ravel_pytree(mine)[0].dtype == jnp.bfloat16
    assert relative_error(mine, theirs) < 0.1


def jvp(cell):
    """Forward mode, with ScanOptions(backward="autodiff")."""
    arguments = params_of(cell), X
    tangents = jax.tree.map(np.cos, arguments)
    autodiff = ScanOptions(backward="autodiff")
    plain = functools.partial(loss, cell, options=autodiff)
    slope = jax.jit(lambda a, t: jax.jvp(plain, a, t)[1])(arguments, tangents)
    products = jax.tree.map(
        lambda g, t: np.sum(g * t), gradient(cell)(*arguments), tangents
    )
    close(slope, sum(jax.tree.leaves(products)))
    lean = functools.partial(loss, cell)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jit(lambda a, t: jax.jvp(lean, a, t)).lower(arguments, tangents)


def shard_map(cell):
    """Each device runs its rows; batch norm then has statistics of its own rows."""
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))

    @functools.partial(
        jax.shard_map, mesh=mesh, in_specs=(P(), P("data")), out_specs=P()
    )
    def total(params, x):
        return jax.lax.psum(loss(cell, params, x), "data")

    sharded = jax.jit(jax.grad(total))(params_of(cell), X)
    halves = [gradient(cell)(params_of(cell), x)[0] for x in (X[:2], X[2:])]
    close(sharded, jax.tree.map(jnp.add, *halves))


def jax_export(cell):
    """jax.export of the gradient, with any batch and any number of steps."""
    params = params_of(cell)
    b, t = export.symbolic_shape("b, t")
    shapes = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), params)
    x = jax.ShapeDtypeStruct((b, t, D), jnp.float64)
    written = export.export(gradient(cell))(shapes, x).serialize()
    exported = export.deserialize(written)
    close(exported.call(params, X), gradient(cell)(params, X))


COLUMNS = (
    any_batch_axes,
    bfloat16,
    jvp,
    shard_map,
    jax_export,
)
# Checks of other files: test_cells.py, test_transforms.py, test_unroll.py and
# test_wrappers.py.
OTHERS = ["masks with holes", "length 0", "resets", "reverse"]
OTHERS += ["second derivatives", "explicit mesh", "zoneout", "streaming"]

# By default each check runs with one cell. What treats statistics of the batch apart
# runs with batch norm, too. All cells have all checks in the nightly job.
QUICK = {
    "LSTM, layer": (bfloat16, any_batch_axes),
    "GRU, batch": (bfloat16, shard_map),
    "DreamerGRU, layer": (jvp, jax_export),
}


@pytest.mark.parametrize(
    ("row", "column"),
    [
        pytest.param(
            row,
            column,
            id=f"{row}-{column.__name__}",
            marks=() if column in QUICK.get(row, ()) else pytest.mark.nightly,
        )
        for row in CELLS
        for column in COLUMNS
    ],
)
def test_capability(row, column):
    column(CELLS[row])


# The page


def libraries_of(cell):
    """The libraries whose weights tests/convert turns into this cell's."""
    fields = ("norm", "norm_site", "reset")

    def kind(cell):
        return type(cell), [getattr(cell, name, None) for name in fields]

    # A library without an entry in the table has a layout in place of a name.
    named = [case for case in CASES.values() if isinstance(case.library, str)]
    same = {
        case.library.split("_")[0] for case in named if kind(case.cell) == kind(cell)
    }
    return ", ".join(sorted(same))


def table():
    """The checks, the exceptions and the sources of weights in Markdown."""
    names = [column.__name__.replace("_", " ") for column in COLUMNS]
    checks = ", ".join(OTHERS + names) + "."
    # Statistics over the batch are those of the rows of one device.
    with_batch_norm = "; ".join(row for row, cell in CELLS.items() if cell.sites)
    rows = ["| exception | cells |", "|---|---|"]
    rows.append(
        f"| shard map: statistics of the rows of one device | {with_batch_norm} |"
    )
    sources = ["| cell, norm | weights can come from |", "|---|---|"]
    for row, cell in CELLS.items():
        libraries = libraries_of(cell)
        if libraries:
            sources.append(f"| {row} | {libraries} |")
    return "\n\n".join((checks, "\n".join(rows), "\n".join(sources)))


def test_the_page_shows_the_table():
    assert table() in PAGE.read_text()
