"""Section 5 of the paper, measured: Table 1, Fisher formulas, effective learning rates.

    python scripts/theory.py
    python scripts/theory.py --workdir RUN [RUN ...]

The first command prints tables and draws geometry.png in runs/theory, for a random
layer on random data in float64. With runs of experiments/mnist, it also measures
trained networks and draws trained.png; see theory_trained.py.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro import functional, theory
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended

if TYPE_CHECKING:
    from rich.console import Console

# Number of random cases, inputs and units of the layer.
CASES, FEATURES, UNITS = 256, 16, 8
NORMALISERS = ("batch", "weight", "layer")
TOLERANCE = 1e-5
FAMILIES = {
    "gaussian": theory.gaussian(),
    "bernoulli": theory.bernoulli,
    "categorical": theory.categorical,
}
SCALES = 2.0 ** np.linspace(-3, 4, 15)
# Two pairs of curves coincide in the third panel: the lower ones are wide and pale, the
# upper ones thin and dashed.
STYLE = {
    "none": {"color": "0.72", "linewidth": 4},
    "batch": {"color": "#9ec5e8", "linewidth": 4},
    "weight": {"color": "C2", "linestyle": "--"},
    "layer": {"color": "C3", "linestyle": "--"},
}
LABEL = {
    "none": "no norm",
    "batch": "batch norm",
    "weight": "weight norm",
    "layer": "layer norm",
}


def problem(norm: str, seed: int) -> tuple[jax.Array, jax.Array]:
    """Return a random layer and random data.

    The gains are ||w||, so that the weight-normalised layer and the plain one are the
    same function.

    Args:
      norm: a name of `theory.NORMS`.
      seed: of the random numbers.

    Returns:
      theta [UNITS, FEATURES + 2], or [UNITS, FEATURES + 1] for "none", and the data
      [CASES, FEATURES].
    """
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(UNITS, FEATURES))
    bias = 0.5 * rng.normal(size=(UNITS, 1))
    lengths = rng.uniform(0.7, 1.4, (UNITS, 1))
    # Each ||w_i|| is drawn from [0.7, 1.4].
    weights /= np.linalg.norm(weights, axis=1, keepdims=True) / lengths
    # The data has a mean that is not zero.
    x = rng.normal(size=(CASES, FEATURES)) + 0.5 * rng.normal(size=FEATURES)
    # theta has rows [w_i, b_i, g_i], as `lnrepro.theory.fisher` expects them.
    columns = [weights, bias]
    if norm != "none":
        columns.append(np.linalg.norm(weights, axis=1, keepdims=True))
    return jnp.asarray(np.concatenate(columns, 1)), jnp.asarray(x)


# Table 1


def table_1(
    seed: int, epsilon: float = 0.0, factor: float = 2.5
) -> dict[str, dict[str, float]]:
    """Measure a random tanh layer under the transformations of Table 1.

    Args:
      seed: of the layer.
      epsilon: epsilon of the norms.
      factor: factor of the re-scalings.

    Returns:
      {norm: {column: relative change of the output}}.
    """
    rng = np.random.default_rng(seed)
    kernel = jnp.asarray(rng.normal(size=(FEATURES, UNITS)))
    x = jnp.asarray(rng.normal(size=(CASES, FEATURES)))
    gain = jnp.asarray(rng.uniform(0.5, 2.0, UNITS))
    bias = jnp.asarray(rng.normal(size=UNITS))

    def row(norm):
        def model(w, x):
            sums = theory.normalized_sums(norm, w, x, gain, bias, epsilon=epsilon)
            return jnp.tanh(sums)

        key = jax.random.key(seed)
        return theory.measure_row(model, kernel, x, key=key, factor=factor)

    return {norm: row(norm) for norm in NORMALISERS}


def lstm_rows(seed: int) -> dict[str, dict[str, float]]:
    """Measure one LN-LSTM step under the transformations of Table 1.

    Returns:
      {name of a kernel and its input: {column: relative change of the output}}.
    """
    # Without epsilon, as the invariances hold exactly only then.
    cell = functional.LSTMCell(UNITS, norm="layer", epsilon=0.0)
    key = jax.random.key(seed)
    params = cell.init(key, FEATURES, jnp.float64)
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(CASES, FEATURES)))
    c = jnp.asarray(rng.normal(size=(CASES, UNITS)))
    h = jnp.asarray(rng.normal(size=(CASES, UNITS)))

    @jax.jit
    def of_input(w_x, x):
        return functional.step(cell, {**params, "w_x": w_x}, (c, h), x)

    @jax.jit
    def of_state(w_h, h):
        return functional.step(cell, {**params, "w_h": w_h}, (c, h), x)

    return {
        "W_x, x_t": theory.measure_row(of_input, params["w_x"], x, key=key),
        "W_h, h_(t-1)": theory.measure_row(of_state, params["w_h"], h, key=key),
    }


def print_table_1(console: Console, seed: int) -> None:
    """Print Table 1 as measured, and how epsilon = 1e-5 violates its invariances.

    Args:
      console: where to print.
      seed: of the layer.
    """
    from rich.table import Table

    measured = table_1(seed)
    with_epsilon = [table_1(seed, 1e-5, factor) for factor in (2.5, 0.1)]
    names = [LABEL[norm] for norm in NORMALISERS]
    table = Table(
        "",
        *names,
        title="Table 1: relative change of the output, eps = 0 (the paper's entry)",
    )
    violation = Table(
        "",
        *names,
        title="The same with eps = 1e-5, where it says invariant; scale factor 2.5, "
        "then 0.1",
    )
    agreeing = 0
    for column in theory.COLUMNS:
        cells, violations = [], []
        for norm in NORMALISERS:
            value, paper = measured[norm][column], theory.TABLE_1[norm][column]
            # A small change where the table says "Invariant", or a large one where it
            # says "No".
            agreeing += (value < TOLERANCE) == paper
            cells.append(f"{_measured(value)} ({_word(paper)})")
            changes = [f"{rows[norm][column]:.0e}" for rows in with_epsilon]
            violations.append(", ".join(changes) if paper else "")
        table.add_row(column, *cells)
        violation.add_row(column, *violations)
    console.print(table)
    console.print(f"{agreeing} of 18 entries are the paper's, tolerance {TOLERANCE}\n")
    console.print(violation)
    console.print("weight norm has no eps, so it stays exact\n")

    rows = lstm_rows(seed)
    recurrent = Table(
        "",
        *rows,
        title="One step of the LN-LSTM (eq. 20-22), eps = 0: layer norm's column at "
        "both kernels",
    )
    for column in theory.COLUMNS:
        recurrent.add_row(column, *(_measured(row[column]) for row in rows.values()))
    console.print(recurrent)


def _measured(change):
    return f"{_word(change < TOLERANCE)} {change:.0e}"


def _word(invariant):
    return "invariant" if invariant else "changes"


# Fisher information


def print_formulas(console: Console, seed: int) -> None:
    """Compare the paper's closed forms with the exact Fisher matrix.

    Args:
      console: where to print.
      seed: of the layer.
    """
    from rich.table import Table

    names = [LABEL[norm] for norm in theory.NORMS]
    errors = Table(
        "",
        *names,
        title="Relative error of the paper's closed forms against the exact Fisher "
        "matrix",
    )
    doubling = Table(
        "",
        *names,
        title="Factors when every ||w|| doubles (gaussian outputs; the text says 1/2 "
        "for w-w)",
    )
    layers = {norm: problem(norm, seed) for norm in theory.NORMS}
    for family, outputs in FAMILIES.items():
        blocks, gains = [], []
        for norm, (theta, x) in layers.items():
            exact = _exact(norm, theta, x, outputs)
            blocks.append(
                _distance(theory.block_fisher(norm, theta, x, outputs), exact)
            )
            # The last column of theta is the gain g_i.
            magnitudes = exact[:, -1, :, -1]
            if norm == "none":
                magnitudes = _along_weights(exact, theta)
            gains.append(
                _distance(theory.gain_metric(norm, theta, x, outputs), magnitudes)
            )
        errors.add_row(f"eq. 12-13, {family}", *blocks)
        errors.add_row(f"eq. 32-35, {family}", *gains)
    factors = [_doubled(norm, *layers[norm], seed) for norm in theory.NORMS]
    rows = ("w-w block", "w-b, w-g blocks", "function-space step")
    for name, *values in zip(rows, *factors, strict=True):
        doubling.add_row(name, *(f"{value:.4f}" for value in values))
    console.print(errors)
    console.print(
        "layer norm: eq. 13 leaves out the cross-neuron terms; batch norm: eq. 32 "
        "leaves out z_i z_j\n"
    )
    console.print(doubling)


def _doubled(norm, theta, x, seed) -> tuple[float, float, float]:
    """Measure what doubling the weights does.

    Args:
      norm: the norm.
      theta: the layer.
      x: the data.
      seed: of a step in the weights.

    Returns:
      Factors on the w-w block, on the other blocks of w, and on the length of the step
      in function space.
    """
    outputs, doubled = FAMILIES["gaussian"], _scaled(theta, 2.0)
    before, after = (_exact(norm, t, x, outputs) for t in (theta, doubled))
    weights, others = slice(None, FEATURES), slice(FEATURES, None)

    def factor(columns):
        a, b = (jnp.linalg.norm(m[:, weights, :, columns]) for m in (after, before))
        return float(a / b)

    step = _weight_step(theta, seed)
    # sqrt(2 ds^2), after over before.
    length = _step_length(norm, doubled, x, outputs, step)
    length /= _step_length(norm, theta, x, outputs, step)
    return factor(weights), factor(others), float(length)


def _step_length(norm, theta, x, outputs, step):
    """Return the length of a step in function space."""
    return jnp.sqrt(
        2 * theory.metric(theory.layer_model(norm), theta, x, outputs, step)
    )


def _weight_step(theta, seed):
    """Return a random step of length 1 in the weights, and none in biases and gains."""
    # Another seed than that of the layer.
    step = np.random.default_rng(seed + 1).normal(size=(UNITS, FEATURES))
    return jnp.zeros_like(theta).at[:, :FEATURES].set(step / np.linalg.norm(step))


def _distance(a, b):
    error = float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))
    return f"exact ({error:.0e})" if error < 1e-9 else f"{error:.3f}"


def _scaled(theta, scale):
    return theory.scale_weights(theta, scale, FEATURES)


def _exact(norm, theta, x, outputs):
    """Return the exact Fisher matrix [UNITS, P, UNITS, P]."""
    matrix = theory.fisher(theory.layer_model(norm), theta, x, outputs)
    return matrix.reshape(*theta.shape, *theta.shape)


def _along_weights(exact, theta):
    weights = theta[:, :FEATURES]
    unit = weights / jnp.linalg.norm(weights, axis=1, keepdims=True)
    # v^T F v for the directions w_i / ||w_i|| of all pairs of units, see eq. 35.
    return jnp.einsum("ip,ipjq,jq->ij", unit, exact[:, :FEATURES, :, :FEATURES], unit)


def geometry(norm: str, seed: int, outputs: theory.Outputs) -> dict[str, np.ndarray]:
    """Measure a random layer over SCALES.

    Args:
      norm: the norm.
      seed: of the layer.
      outputs: its outputs.

    Returns:
      "length", "curvature" and "step": mean ||w||, curvature along the weights and the
      length of a step, with scaled weights. "gain": curvature along the gain, with
      scaled inputs.
    """
    theta, x = problem(norm, seed)
    step = _weight_step(theta, seed)

    @jax.jit
    @jax.vmap
    def measure(scale):
        scaled = _scaled(theta, scale)
        return {
            # The weights are scaled for the first two, the inputs for the third.
            "curvature": theory.weight_curvature(norm, scaled, x, outputs),
            "step": _step_length(norm, scaled, x, outputs, step),
            "gain": theory.magnitude_curvature(norm, theta, scale * x, outputs).mean(),
        }

    length = float(jnp.linalg.norm(theta[:, :FEATURES], axis=1).mean())
    measured = jax.tree.map(np.asarray, measure(jnp.asarray(SCALES)))
    return {"length": SCALES * length, **measured}


def draw_geometry(path: pathlib.Path, seed: int, family: str) -> None:
    """Draw curvature and step against ||w||, and curvature of the gain against inputs.

    Args:
      path: the picture.
      seed: of the layer.
      family: a name of FAMILIES.
    """
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(1, 3, figsize=(13, 4.1), layout="constrained")
    for norm in theory.NORMS:
        measured = geometry(norm, seed, FAMILIES[family])
        style = STYLE[norm] | {"label": LABEL[norm]}
        axes[0].plot(measured["length"], measured["curvature"], **style)
        axes[1].plot(measured["length"], measured["step"], **style)
        axes[2].plot(SCALES, measured["gain"], **style)
    _draw_slope(axes[0], 0.1, -2, "1/4 per doubling")
    _draw_slope(axes[0], 0.1, -1, "1/2 per doubling (text)")
    _draw_slope(axes[1], 0.4, -1, "1/2 per doubling")
    axes[0].set(
        xlabel="mean ||w||",
        ylabel="mean eigenvalue of the w-w block",
        title="curvature along the weights",
    )
    axes[1].set(
        xlabel="mean ||w||",
        ylabel="sqrt(2 ds²) for a step of length 1",
        title="step in function space",
    )
    axes[2].set(
        xlabel="scale of the input",
        ylabel="mean curvature",
        title="along the gain, or the weight's magnitude",
    )
    for ax in axes:
        ax.set(xscale="log", yscale="log")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    fig.suptitle(
        f"One layer: {FEATURES} inputs, {UNITS} {family} outputs, {CASES} random cases"
    )
    fig.savefig(path, dpi=110)
    pyplot.close(fig)


def _draw_slope(ax, start, slope, label):
    # A slope s in logarithmic axes is a straight line through y = start (x / x_0)^s.
    xs = np.array([0.125, 1.0])
    ys = start * (xs / xs[0]) ** slope
    ax.plot(xs, ys, color="0.5", linestyle=":", linewidth=1.2)
    ax.annotate(
        label,
        (xs[1], ys[1]),
        (4, -3),
        textcoords="offset points",
        fontsize=8,
        color="0.35",
    )


# Command line


def main(argv: list[str]) -> None:
    """Print and draw what the command line asks for.

    Raises:
      UserError: a wrong flag, or no such run.
    """
    args = _arguments(argv)
    # Imported late: a mistake in the flags needs none of it.
    import matplotlib
    from rich.console import Console

    matplotlib.use("Agg")
    console, trained = Console(), []
    if args.workdir:
        # They are opened first, so that a wrong folder is reported at once.
        from scripts import theory_trained

        trained = [theory_trained.Trained(folder) for folder in args.workdir]
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(
            f"--out {args.out} cannot be made: {e.strerror}; give another folder"
        ) from None
    picture = args.out / "geometry.png"
    # In float32, rounding would hide which formulas are exact.
    with jax.enable_x64(True):
        print_table_1(console, args.seed)
        print_formulas(console, args.seed)
        draw_geometry(picture, args.seed, args.outputs)
    console.print(f"picture    {picture}")
    if trained:
        picture = args.out / "trained.png"
        theory_trained.show(console, picture, trained, not args.no_replay)
        console.print(f"picture    {picture}")


def _arguments(argv):
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("runs/theory"),
        help="folder of the figures",
    )
    add("--seed", type=int, default=0, help="of the random layer and data")
    add(
        "--outputs",
        choices=FAMILIES,
        default="gaussian",
        help="outputs of the layer in geometry.png",
    )
    add(
        "--workdir",
        type=pathlib.Path,
        nargs="+",
        default=[],
        metavar="RUN",
        help="runs of experiments/mnist",
    )
    add(
        "--no_replay",
        action="store_true",
        help="measure only the start and the checkpoints of a RUN",
    )
    args = parser.parse_args(argv)
    if args.seed < 0:
        raise UserError(f"argument --seed: {args.seed} is negative; give 0 or more")
    return args


if __name__ == "__main__":
    ended(main, "this measurement")
