"""What every cell can do with every norm: one function for each check.

docs/capabilities.md shows `table()`. After a change, write the page again:

    python -m tests.functional.test_capabilities
"""

import functools
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.functional import (
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    step,
    unroll,
    zoneout,
)
from tests.convert.cases import CASES
from tests.functional.programs import drawn, norms_of, shapes_of

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "capabilities.md"
B, T, D, H = 4, 5, 3, 8
X = np.random.default_rng(0).standard_normal((B, T, D))
MASK = np.array(
    [[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [0, 1, 1, 0, 1], [1, 1, 0, 1, 0]], bool
)
AUTODIFF = ScanOptions(backward="autodiff")
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
    a, b = jax.device_get((a, b))
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


FLAGS = ("reverse", "keep_order")


# Compiled programs are shared by the checks of a cell.
@functools.partial(jax.jit, static_argnames=("cell", *FLAGS))
def compiled(cell, params, x, **options):
    return unroll(cell, params, x, **options)


def run(cell, x=X, params=None, **options):
    params = params_of(cell) if params is None else params
    return jax.device_get(compiled(cell, params, x, **options))


def first_carry(cell):
    start = jax.jit(cell.initial_carry)
    return jax.device_get(start(params_of(cell), X[:, 0]))


def loss(cell, params, x, **options):
    result = unroll(cell, params, x, **options)
    carry = sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(result.carry))
    return jnp.sum(jnp.sin(result.outputs)) + carry


@functools.cache
def gradient(cell):
    return jax.jit(jax.grad(functools.partial(loss, cell), (0, 1)))


# The checks, in the order of the page


def masks_with_holes(cell):
    """Padding anywhere may hold NaN: outputs are zero there, the carry passes on."""
    x = np.where(MASK[..., None], X, np.nan)
    result = run(cell, x, mask=MASK)
    close(result, run(cell, mask=MASK))
    assert not result.outputs[~MASK].any()
    _, d_x = gradient(cell)(params_of(cell), x, mask=MASK)
    close(np.asarray(d_x)[~MASK], 0)


def length_0(cell):
    """A sequence of length 0 returns the first carry."""
    lengths = np.array([5, 0, 2, 0])
    result = run(cell, seq_lengths=lengths)
    first = first_carry(cell)
    close(*jax.tree.map(lambda a: a[lengths == 0], (result.carry, first)))
    assert not result.outputs[lengths == 0].any()


def resets(cell):
    """After a reset, everything is as in a sequence that begins there."""
    at_3 = np.broadcast_to(np.arange(T) == 3, (B, T))
    result, rest = run(cell, resets=at_3), run(cell, X[:, 3:])
    close(result.outputs[:, 3:], rest.outputs)
    close(result.carry, rest.carry)


def reverse(cell):
    """From the end to the start."""
    backwards = run(cell, reverse=True, keep_order=True)
    flipped = run(cell, X[:, ::-1])
    close(backwards.outputs, flipped.outputs[:, ::-1])
    close(backwards.carry, flipped.carry)


def any_batch_axes(cell):
    """Two batch axes, and none."""
    two = run(cell, X.reshape(2, 2, T, D), mask=MASK.reshape(2, 2, T))
    close(two.outputs.reshape(B, T, H), run(cell, mask=MASK).outputs)
    close(run(cell, X[0]).outputs, run(cell, X[:1]).outputs[0])


def streaming(cell):
    """Steps equal the sequence; batch norm takes the statistics of each step."""
    whole = run(cell)
    carry = first_carry(cell)

    @jax.jit
    def one_step(carry, x, statistics):
        return step(cell, params_of(cell), carry, x, statistics=statistics)

    for t in range(T):
        statistics = None
        if whole.statistics is not None:
            statistics = jax.tree.map(lambda a, t=t: a[t], whole.statistics.values)
        carry, y = one_step(carry, X[:, t], statistics)
        close(y, whole.outputs[:, t])
    close(carry, whole.carry)


def bfloat16(cell):
    """Outputs and gradients stay bfloat16, near those in float64."""
    narrow = jax.tree.map(lambda a: a.astype(jnp.bfloat16), (params_of(cell), X))
    exact = jax.tree.map(lambda a: a.astype(np.float64), narrow)
    assert run(cell, narrow[1], narrow[0]).outputs.dtype == jnp.bfloat16
    mine, theirs = gradient(cell)(*narrow), gradient(cell)(*exact)
    assert {a.dtype for a in jax.tree.leaves(mine)} == {jnp.dtype(jnp.bfloat16)}
    flat = [
        np.concatenate([np.asarray(a, float).ravel() for a in jax.tree.leaves(tree)])
        for tree in (mine, theirs)
    ]
    assert np.linalg.norm(flat[0] - flat[1]) < 0.1 * np.linalg.norm(flat[1])


def jvp(cell):
    """Forward mode, with ScanOptions(backward="autodiff")."""
    arguments = params_of(cell), X
    tangents = jax.tree.map(np.cos, arguments)
    plain = functools.partial(loss, cell, options=AUTODIFF)
    slope = jax.jit(lambda a, t: jax.jvp(plain, a, t)[1])(arguments, tangents)
    products = jax.tree.map(
        lambda g, t: np.sum(g * t), gradient(cell)(*arguments), tangents
    )
    close(slope, sum(jax.tree.leaves(products)))
    lean = functools.partial(loss, cell)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jit(lambda a, t: jax.jvp(lean, a, t)).lower(arguments, tangents)


def second_derivatives(cell):
    """The gradient of the length of the gradient, against differences of it."""

    def length(g):
        return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(g))

    def of_gradient(params, x):
        return length(jax.grad(functools.partial(loss, cell), (0, 1))(params, x))

    arguments = params_of(cell), X
    direction = jax.tree.map(np.cos, arguments)
    slopes = jax.jit(jax.grad(of_gradient, (0, 1)))(*arguments)
    slope = sum(
        np.sum(d * s)
        for d, s in zip(*map(jax.tree.leaves, (direction, slopes)), strict=True)
    )

    def moved(by):
        there = jax.tree.map(lambda a, d: a + by * d, arguments, direction)
        return length(jax.device_get(gradient(cell)(*there)))

    close(slope, (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-5)


def explicit_mesh(cell):
    """The batch sharded over a mesh with Explicit axes."""
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Explicit,))
    # Outside of the mesh, since they are kept for the other checks.
    params = params_of(cell)
    with jax.set_mesh(mesh):
        params = jax.device_put(params, NamedSharding(mesh, P()))
        x = jax.device_put(X, NamedSharding(mesh, P("data")))
        sharded = gradient(cell)(params, x)
    close(sharded, gradient(cell)(params_of(cell), X))


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


def with_zoneout(cell):
    """Zoneout keeps units of the carry, and takes the expectation at test time."""
    half, one_step = zoneout(cell, 0.5, 0.5), jax.jit(step, static_argnums=0)
    params, x = params_of(cell), X[:, 0]
    carry = jax.tree.map(lambda a: a + 0.5, first_carry(cell))
    new, _ = one_step(cell, params, carry, x)
    mean, _ = one_step(half, params, carry, x)
    close(mean, jax.tree.map(lambda a, b: 0.5 * (a + b), carry, jax.device_get(new)))
    noisy, _ = one_step(half, params, carry, x, key=jax.random.key(0))
    for old, fresh, kept in zip(
        *map(jax.tree.leaves, (carry, new, noisy)), strict=True
    ):
        is_old, is_new = np.isclose(kept, old), np.isclose(kept, fresh)
        assert (is_old | is_new).all()
        assert is_old.any()


COLUMNS = (
    masks_with_holes,
    length_0,
    resets,
    reverse,
    any_batch_axes,
    streaming,
    bfloat16,
    jvp,
    second_derivatives,
    explicit_mesh,
    shard_map,
    jax_export,
    with_zoneout,
)


# By default one cell has all checks, and two others those between them: that with batch
# norm has the ones in which statistics of the batch are treated apart. All cells have
# all checks in the nightly job.
OF_BATCH_NORM = (masks_with_holes, reverse, streaming, bfloat16, shard_map)
OF_BATCH_NORM += (second_derivatives, any_batch_axes)


def is_quick(row, column):
    if row == "GRU, batch":
        return column in OF_BATCH_NORM
    if row == "DreamerGRU, layer":
        return column not in OF_BATCH_NORM
    return row == "LSTM, layer"


@pytest.mark.parametrize(
    ("row", "column"),
    [
        pytest.param(
            row,
            column,
            id=f"{row}-{column.__name__}",
            marks=() if is_quick(row, column) else pytest.mark.nightly,
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
    names = [column.__name__.removeprefix("with_") for column in COLUMNS]
    checks = ", ".join(name.replace("_", " ") for name in names) + "."
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


BEGIN, END = "<!-- begin of the table -->\n", "\n<!-- end of the table -->"


def test_the_page_shows_the_table():
    text = PAGE.read_text()
    shown = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert shown == table(), "write the page by python -m tests.functional." + (
        "test_capabilities"
    )


def main():
    """Write the table into the page."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1])


if __name__ == "__main__":
    sys.exit(main())
