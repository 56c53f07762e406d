"""Section 5 of the paper, measured: Table 1, the Fisher formulas, and the learning rate that a growing ||w|| implies.

    python scripts/theory.py                               tables, and geometry.png in runs/theory
    python scripts/theory.py --workdir RUN [RUN ...]       also trained.png: the same in nets of experiments/mnist.py,
                                                           e.g. runs/mnist/default-none-seed0 and -layer-seed0

The tables and geometry.png are of a random layer on random data, in float64. For --workdir see theory_trained.py.
"""

import argparse
import pathlib
import sys

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parents[1])
)  # `experiments` is used from a checkout

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

from lnrepro import functional, theory
from lnrepro.engine.errors import UserError

CASES, FEATURES, UNITS = 256, 16, 8
NORMALISERS = ("batch", "weight", "layer")
TOLERANCE = 1e-5
FAMILIES = {
    "gaussian": theory.gaussian(),
    "bernoulli": theory.bernoulli,
    "categorical": theory.categorical,
}
SCALES = 2.0 ** np.linspace(-3, 4, 15)
# Two pairs of curves lie on each other in the third panel: wide and pale below, thin and dashed above.
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
    """A layer's theta (H, D + 2), or (H, D + 1) for "none", and data (B, D). The gains are ||w||: at that point the
    weight-normalised layer and the plain one are the same function."""
    rng = np.random.default_rng(seed)
    weights, bias = (
        rng.normal(size=(UNITS, FEATURES)),
        0.5 * rng.normal(size=(UNITS, 1)),
    )
    weights /= np.linalg.norm(weights, axis=1, keepdims=True) / rng.uniform(
        0.7, 1.4, (UNITS, 1)
    )
    x = rng.normal(size=(CASES, FEATURES)) + 0.5 * rng.normal(size=FEATURES)
    gain = [] if norm == "none" else [np.linalg.norm(weights, axis=1, keepdims=True)]
    return jnp.asarray(np.concatenate([weights, bias, *gain], 1)), jnp.asarray(x)


# --- Table 1 -----------------------------------------------------------------------------------------------------


def table_1(
    seed: int, epsilon: float = 0.0, factor: float = 2.5
) -> dict[str, dict[str, float]]:
    """{norm: {column of Table 1: relative change of the output}} of a tanh layer under the table's transformations."""
    rng = np.random.default_rng(seed)
    kernel, x = (
        jnp.asarray(rng.normal(size=(FEATURES, UNITS))),
        jnp.asarray(rng.normal(size=(CASES, FEATURES))),
    )
    gain, bias = (
        jnp.asarray(rng.uniform(0.5, 2.0, UNITS)),
        jnp.asarray(rng.normal(size=UNITS)),
    )

    def row(norm):
        def model(w, x):
            return jnp.tanh(
                theory.normalized_sums(norm, w, x, gain, bias, epsilon=epsilon)
            )

        return theory.measure_row(
            model, kernel, x, key=jax.random.key(seed), factor=factor
        )

    return {norm: row(norm) for norm in NORMALISERS}


def lstm_rows(seed: int) -> dict[str, dict[str, float]]:
    """{"W_x, x_t" | "W_h, h_(t-1)": {column: change}} of one LN-LSTM step at either of its kernels and inputs."""
    cell = functional.LSTMCell(UNITS, norm="layer", epsilon=0.0)
    params = cell.init(jax.random.key(seed), FEATURES, jnp.float64)
    rng = np.random.default_rng(seed)
    x, c, h = (
        jnp.asarray(rng.normal(size=(CASES, n))) for n in (FEATURES, UNITS, UNITS)
    )

    def of_input(w_x, x):
        return functional.step(cell, {**params, "w_x": w_x}, (c, h), x)

    def of_state(w_h, h):
        return functional.step(cell, {**params, "w_h": w_h}, (c, h), x)

    key = jax.random.key(seed)
    return {
        "W_x, x_t": theory.measure_row(jax.jit(of_input), params["w_x"], x, key=key),
        "W_h, h_(t-1)": theory.measure_row(
            jax.jit(of_state), params["w_h"], h, key=key
        ),
    }


def print_table_1(console: Console, seed: int) -> None:
    """Table 1 as measured beside the paper's, then what eps = 1e-5 makes of its invariances."""
    measured = table_1(seed)
    table = Table(
        title="Table 1: relative change of the output, eps = 0 (the paper's entry)"
    )
    violation = Table(
        title="The same with eps = 1e-5, where it says invariant; scale factor 2.5, then 0.1"
    )
    for t in (table, violation):
        t.add_column("")
        for norm in NORMALISERS:
            t.add_column(LABEL[norm])
    with_eps = [table_1(seed, 1e-5, factor) for factor in (2.5, 0.1)]
    right = 0
    for column in theory.COLUMNS:
        cells = []
        for norm in NORMALISERS:
            value, paper = measured[norm][column], theory.TABLE_1[norm][column]
            right += (value < TOLERANCE) == paper
            cells.append(f"{_word(value < TOLERANCE)} {value:.0e} ({_word(paper)})")
        table.add_row(column, *cells)
        invariant = [theory.TABLE_1[norm][column] for norm in NORMALISERS]
        pairs = [
            ", ".join(f"{rows[norm][column]:.0e}" for rows in with_eps)
            for norm in NORMALISERS
        ]
        violation.add_row(
            column,
            *(pair if yes else "" for pair, yes in zip(pairs, invariant, strict=True)),
        )
    console.print(table)
    console.print(f"{right} of 18 entries are the paper's, tolerance {TOLERANCE}\n")
    console.print(violation)
    console.print("weight norm has no eps, so it stays exact\n")

    recurrent = Table(
        title="One step of the LN-LSTM (eq. 20-22), eps = 0: layer norm's column at both kernels"
    )
    recurrent.add_column("")
    rows = lstm_rows(seed)
    for name in rows:
        recurrent.add_column(name)
    for column in theory.COLUMNS:
        recurrent.add_row(
            column,
            *(
                f"{_word(row[column] < TOLERANCE)} {row[column]:.0e}"
                for row in rows.values()
            ),
        )
    console.print(recurrent)


def _word(invariant: bool) -> str:
    return "invariant" if invariant else "changes"


# --- Fisher information ------------------------------------------------------------------------------------------


def print_formulas(console: Console, seed: int) -> None:
    """How far the paper's closed forms are from the exact Fisher matrix, and what doubling the weights does to it."""
    errors = Table(
        title="Relative error of the paper's closed forms against the exact Fisher matrix"
    )
    doubling = Table(
        title="Factors when every ||w|| doubles (gaussian outputs; the text says 1/2 for w-w)"
    )
    for t in (errors, doubling):
        t.add_column("")
        for norm in theory.NORMS:
            t.add_column(LABEL[norm])
    layers = {norm: problem(norm, seed) for norm in theory.NORMS}
    for family, outputs in FAMILIES.items():
        whole, gains = [], []
        for norm, (theta, x) in layers.items():
            exact = _exact(norm, theta, x, outputs)
            whole.append(_distance(theory.block_fisher(norm, theta, x, outputs), exact))
            magnitudes = (
                _along_weights(exact, theta) if norm == "none" else exact[:, -1, :, -1]
            )
            gains.append(
                _distance(theory.gain_metric(norm, theta, x, outputs), magnitudes)
            )
        errors.add_row(f"eq. 12-13, {family}", *whole)
        errors.add_row(f"eq. 32-35, {family}", *gains)
    columns = [_doubled(norm, *layers[norm], seed) for norm in theory.NORMS]
    for name, *ratios in zip(
        ("w-w block", "w-b, w-g blocks", "function-space step"), *columns, strict=True
    ):
        doubling.add_row(name, *(f"{r:.4f}" for r in ratios))
    console.print(errors)
    console.print(
        "layer norm: eq. 13 leaves out the cross-neuron terms; batch norm: eq. 32 leaves out z_i z_j\n"
    )
    console.print(doubling)


def _doubled(
    norm: str, theta: jax.Array, x: jax.Array, seed: int
) -> tuple[float, float, float]:
    """Factors on the w-w block, the other blocks of w, and a step's length in function space when W doubles."""
    outputs, both = FAMILIES["gaussian"], (theta, _scaled(theta, 2.0))
    before, after = (_exact(norm, t, x, outputs) for t in both)
    w, rest = slice(None, FEATURES), slice(FEATURES, None)
    size = jnp.linalg.norm
    own, mixed = (size(after[:, w, :, b]) / size(before[:, w, :, b]) for b in (w, rest))
    step = _weight_step(theta, seed)
    ds2 = [theory.metric(theory.layer_model(norm), t, x, outputs, step) for t in both]
    return float(own), float(mixed), float(jnp.sqrt(ds2[1] / ds2[0]))


def _weight_step(theta: jax.Array, seed: int) -> jax.Array:
    """A random step of length 1 in the weights, nothing in biases and gains."""
    step = np.random.default_rng(seed + 1).normal(size=(UNITS, FEATURES))
    return jnp.zeros_like(theta).at[:, :FEATURES].set(step / np.linalg.norm(step))


def _distance(a: jax.Array, b: jax.Array) -> str:
    error = float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))
    return f"exact ({error:.0e})" if error < 1e-9 else f"{error:.3f}"


def _scaled(theta, scale):
    return theory.scale_weights(theta, scale, FEATURES)


def _exact(norm, theta, x, outputs):
    return theory.fisher(theory.layer_model(norm), theta, x, outputs).reshape(
        *theta.shape, *theta.shape
    )


def _along_weights(exact, theta):
    unit = theta[:, :FEATURES] / jnp.linalg.norm(
        theta[:, :FEATURES], axis=1, keepdims=True
    )
    return jnp.einsum("ip,ipjq,jq->ij", unit, exact[:, :FEATURES, :, :FEATURES], unit)


def geometry(norm: str, seed: int, outputs: theory.Outputs) -> dict[str, np.ndarray]:
    """Curvature and step against the scale of W, and gain curvature against the scale of the input, over SCALES."""
    theta, x = problem(norm, seed)
    step = _weight_step(theta, seed)
    curvature = jax.vmap(
        lambda s: theory.weight_curvature(norm, _scaled(theta, s), x, outputs)
    )
    moved = jax.vmap(
        lambda s: jnp.sqrt(
            2
            * theory.metric(
                theory.layer_model(norm), _scaled(theta, s), x, outputs, step
            )
        )
    )
    gain = jax.vmap(
        lambda s: theory.magnitude_curvature(norm, theta, s * x, outputs).mean()
    )
    length = float(jnp.linalg.norm(theta[:, :FEATURES], axis=1).mean())
    scales = jnp.asarray(SCALES)
    return {
        "length": SCALES * length,
        "curvature": np.asarray(jax.jit(curvature)(scales)),
        "step": np.asarray(jax.jit(moved)(scales)),
        "gain": np.asarray(jax.jit(gain)(scales)),
    }


def draw_geometry(path: pathlib.Path, seed: int, family: str) -> None:
    """Three panels: curvature and step against ||w||, curvature along the gain against the input's scale."""
    fig, axes = pyplot.subplots(1, 3, figsize=(13, 4.1), layout="constrained")
    for norm in theory.NORMS:
        g, style = geometry(norm, seed, FAMILIES[family]), STYLE[norm]
        axes[0].plot(g["length"], g["curvature"], label=LABEL[norm], **style)
        axes[1].plot(g["length"], g["step"], label=LABEL[norm], **style)
        axes[2].plot(SCALES, g["gain"], label=LABEL[norm], **style)
    for ax, start, slope, label in (
        (axes[0], 0.1, -2, "1/4 per doubling"),
        (axes[0], 0.1, -1, "1/2 per doubling (text)"),
        (axes[1], 0.4, -1, "1/2 per doubling"),
    ):
        xs = np.array([0.125, 1.0])
        ax.plot(
            xs, start * (xs / xs[0]) ** slope, color="0.5", linestyle=":", linewidth=1.2
        )
        ax.annotate(
            label,
            (xs[1], start * 8.0**slope),
            (4, -3),
            textcoords="offset points",
            fontsize=8,
            color="0.35",
        )
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


# --- Command line ------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message}; see --help")


def run(argv: list[str]) -> None:
    """Everything the command line asks for. Raises UserError."""
    parser = _Parser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("runs/theory"),
        help="folder of the figures",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the random layer and data"
    )
    parser.add_argument(
        "--outputs",
        choices=FAMILIES,
        default="gaussian",
        help="outputs of the layer in geometry.png",
    )
    parser.add_argument(
        "--workdir",
        type=pathlib.Path,
        nargs="+",
        default=[],
        metavar="RUN",
        help="runs of experiments/mnist.py",
    )
    parser.add_argument(
        "--no_replay",
        action="store_true",
        help="measure only the start and the checkpoints of a RUN",
    )
    args = parser.parse_args(argv)
    if args.seed < 0:
        raise UserError(f"argument --seed: {args.seed} is negative; give 0 or more")
    matplotlib.use("Agg")
    console, runs = Console(), []
    if args.workdir:  # opened first: a wrong folder is told at once
        from scripts import theory_trained

        runs = [theory_trained.Trained(folder) for folder in args.workdir]
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(
            f"--out {args.out} cannot be made: {e.strerror}; give another folder"
        ) from None
    with jax.enable_x64(True):
        print_table_1(console, args.seed)
        print_formulas(console, args.seed)
        draw_geometry(args.out / "geometry.png", args.seed, args.outputs)
    console.print(f"picture    {args.out / 'geometry.png'}")
    if runs:
        theory_trained.show(console, args.out / "trained.png", runs, not args.no_replay)
        console.print(f"picture    {args.out / 'trained.png'}")


def main(argv: list[str] | None = None) -> int:
    """Run and return the exit code: 0 done, 2 a mistake to mend."""
    try:
        run(sys.argv[1:] if argv is None else argv)
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        return e.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
