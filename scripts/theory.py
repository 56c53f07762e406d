"""Section 5 of the paper, measured on a random layer: python scripts/theory.py

It prints Table 1 and the errors of the paper's Fisher formulas in float64, and draws
geometry.png in runs/theory. The same of trained networks: scripts/theory_trained.py.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro import theory
from lnrepro.engine.command_line import Parser
from lnrepro.errors import ended
from scripts import markdown as md

# Number of random cases, inputs and units of the layer.
CASES, FEATURES, UNITS = 256, 16, 8
NORMALISERS = ("batch", "weight", "layer")
# The largest relative change of the output that counts as invariant.
TOLERANCE = 1e-5
FAMILIES = {
    "gaussian": theory.gaussian(),
    "bernoulli": theory.bernoulli,
    "categorical": theory.categorical,
}
SCALES = 2.0 ** np.linspace(-3, 4, 15)
# Two pairs of curves coincide in the second panel: the lower ones are wide and pale,
# the upper ones thin and dashed.
STYLE = {
    "none": {"color": "0.72", "linewidth": 4},
    "batch": {"color": "#9ec5e8", "linewidth": 4},
    "weight": {"color": "C2", "linestyle": "--"},
    "layer": {"color": "C3", "linestyle": "--"},
}


def problem(norm: str) -> tuple[jax.Array, jax.Array]:
    """Return a random layer and random data.

    The gains are ||w||, so that the weight-normalised layer and the plain one are the
    same function.

    Args:
      norm: a name of `theory.NORMS`.

    Returns:
      theta [UNITS, FEATURES + 2], or [UNITS, FEATURES + 1] for "none", and the data
      [CASES, FEATURES].
    """
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(UNITS, FEATURES))
    bias = 0.5 * rng.normal(size=(UNITS, 1))
    lengths = rng.uniform(0.7, 1.4, (UNITS, 1))
    # Each ||w_i|| is drawn from [0.7, 1.4].
    weights /= np.linalg.norm(weights, axis=1, keepdims=True) / lengths
    # The data has a mean that is not zero.
    x = rng.normal(size=(CASES, FEATURES)) + 0.5 * rng.normal(size=FEATURES)
    # theta has rows [w_i, b_i, g_i], as `lnrepro.theory.fisher` expects them.
    columns = [weights, bias] if norm == "none" else [weights, bias, lengths]
    return jnp.asarray(np.concatenate(columns, 1)), jnp.asarray(x)


def table_1(epsilon: float) -> dict[str, dict[str, float]]:
    """Measure a random tanh layer under the transformations of Table 1.

    Args:
      epsilon: epsilon of the norms.

    Returns:
      {norm: {column: relative change of the output}}.
    """
    rng = np.random.default_rng(0)
    kernel = jnp.asarray(rng.normal(size=(FEATURES, UNITS)))
    x = jnp.asarray(rng.normal(size=(CASES, FEATURES)))
    gain = jnp.asarray(rng.uniform(0.5, 2.0, UNITS))
    bias = jnp.asarray(rng.normal(size=UNITS))
    rows = {}
    for norm in NORMALISERS:

        def model(w, x, norm=norm):
            sums = theory.normalized_sums(norm, w, x, gain, bias, epsilon=epsilon)
            return jnp.tanh(sums)

        rows[norm] = theory.measure_row(model, kernel, x, key=jax.random.key(0))
    return rows


def fisher_errors() -> dict[str, dict[str, float]]:
    """Compare the paper's closed forms with the exact Fisher matrix.

    Returns:
      {name of the formula and the outputs: {norm: relative error}}.
    """
    rows = {}
    for family, outputs in FAMILIES.items():
        blocks = rows[f"eq. 12-13, {family}"] = {}
        gains = rows[f"eq. 32-35, {family}"] = {}
        for norm in theory.NORMS:
            theta, x = problem(norm)
            exact = theory.fisher(theory.layer_model(norm), theta, x, outputs)
            exact = exact.reshape(*theta.shape, *theta.shape)
            block = theory.block_fisher(norm, theta, x, outputs)
            blocks[norm] = _distance(block, exact)
            # The last column of theta is the gain g_i.
            magnitudes = exact[:, -1, :, -1]
            if norm == "none":
                magnitudes = _along_weights(exact, theta)
            gain = theory.gain_metric(norm, theta, x, outputs)
            gains[norm] = _distance(gain, magnitudes)
    return rows


def _along_weights(exact, theta):
    weights = theta[:, :FEATURES]
    unit = weights / jnp.linalg.norm(weights, axis=1, keepdims=True)
    # v^T F v for the directions w_i / ||w_i|| of all pairs of units, see eq. 35.
    return jnp.einsum("ip,ipjq,jq->ij", unit, exact[:, :FEATURES, :, :FEATURES], unit)


def _distance(a, b):
    return float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))


def geometry(norm: str) -> dict[str, np.ndarray]:
    """Measure a random layer with Gaussian outputs over SCALES.

    Returns:
      "length" and "curvature": mean ||w|| and curvature along the weights, with scaled
      weights. "gain": curvature along the gain, with scaled inputs.
    """
    (theta, x), outputs = problem(norm), FAMILIES["gaussian"]

    @jax.jit
    @jax.vmap
    def measure(scale):
        scaled = theory.scale_weights(theta, scale, FEATURES)
        return {
            "length": jnp.linalg.norm(scaled[:, :FEATURES], axis=1).mean(),
            "curvature": theory.weight_curvature(norm, scaled, x, outputs),
            "gain": theory.magnitude_curvature(norm, theta, scale * x, outputs).mean(),
        }

    return jax.tree.map(np.asarray, measure(jnp.asarray(SCALES)))


def draw_geometry(path: pathlib.Path) -> None:
    """Draw curvature against ||w||, and curvature of the gain against inputs."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(9, 4.1), layout="constrained")
    weights, gains = fig.subplots(1, 2)
    for norm in theory.NORMS:
        measured = geometry(norm)
        style = STYLE[norm] | {"label": "no norm" if norm == "none" else f"{norm} norm"}
        weights.plot(measured["length"], measured["curvature"], **style)
        gains.plot(SCALES, measured["gain"], **style)
    weights.set(xlabel="mean ||w||", title="curvature along the weights")
    title = "along the gain, or the weight's magnitude"
    gains.set(xlabel="scale of the input", title=title)
    for ax in (weights, gains):
        ax.set(xscale="log", yscale="log")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    fig.suptitle(
        f"One layer: {FEATURES} inputs, {UNITS} Gaussian outputs, {CASES} random cases"
    )
    fig.savefig(path, dpi=110)


def print_tables() -> None:
    """Print Table 1 and the errors of the Fisher formulas in Markdown."""
    measured, with_epsilon = table_1(0.0), table_1(1e-5)
    rows = []
    for column in theory.COLUMNS:
        cells = []
        for norm in NORMALISERS:
            value = measured[norm][column]
            invariant = value < TOLERANCE
            word = "invariant" if invariant else "changes"
            if invariant != theory.TABLE_1[norm][column]:
                word += " (not so in the paper)"
            cells.append(f"{word} {value:.0e}, {with_epsilon[norm][column]:.0e}")
        rows.append((column, *cells))
    print("Table 1: relative change of the output, then with eps = 1e-5\n")
    print(md.table(("", *NORMALISERS), rows))
    rows = []
    for name, errors in fisher_errors().items():
        cells = ["exact" if e < 1e-9 else f"{e:.3f}" for e in errors.values()]
        rows.append((name, *cells))
    print("\nRelative error of the closed Fisher forms\n")
    print(md.table(("", *theory.NORMS), rows))


def main(argv: list[str]) -> None:
    """Print the tables and draw the picture.

    Raises:
      UserError: a wrong flag.
      OSError: the picture cannot be written.
    """
    parser = Parser(description=__doc__)
    out = folder(parser, argv)
    # In float32, rounding would hide which formulas are exact.
    with jax.enable_x64(True):
        print_tables()
        draw_geometry(out / "geometry.png")
    print(f"picture    {out / 'geometry.png'}")


def folder(parser: Parser, argv: list[str]) -> pathlib.Path:
    """Parse --out, make the folder and return it."""
    default = pathlib.Path("runs/theory")
    parser.add_argument(
        "--out", type=pathlib.Path, default=default, help="folder of the picture"
    )
    out = parser.parse_args(argv).out
    out.mkdir(parents=True, exist_ok=True)
    return out


if __name__ == "__main__":
    ended(main, "this measurement")
