"""Table 1 and the errors of the Fisher formulas of section 5, for a random layer.

    python scripts/theory.py

It prints both tables of docs/theory.md, computed in float64.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro import theory
from lnrepro.engine.command_line import Parser
from lnrepro.errors import run_script
from scripts import markdown as md

# Number of random cases, inputs and units of the layer.
CASES, FEATURES, UNITS = 256, 16, 8
NORMALISERS = ("batch", "weight", "layer")
# The largest relative change of the output that counts as invariant, and the largest
# relative error of a formula that counts as exact.
TOLERANCE, EXACT = 1e-5, 1e-9
FAMILIES = (theory.gaussian(), theory.bernoulli, theory.categorical)


def table_1() -> list[list[str]]:
    """Return the relative change of the output of a tanh layer, as in Table 1."""
    theta, x = problem()
    kernel, bias, gain = theta[:, :FEATURES].T, theta[:, -2], theta[:, -1]
    rows = {column: [column] for column in theory.COLUMNS}
    for norm in NORMALISERS:

        def layer(w, x, norm=norm):
            return jnp.tanh(theory.normalized_sums(norm, w, x, gain, bias))

        row = theory.measure_row(layer, kernel, x, key=jax.random.key(0))
        for column, change in row.items():
            word = "invariant" if change < TOLERANCE else "changes"
            rows[column].append(f"{word} {change:.0e}")
    return list(rows.values())


def problem() -> tuple[jax.Array, jax.Array]:
    """Return theta [UNITS, FEATURES + 2] of a random layer and data [CASES, FEATURES].

    The gains are ||w||, so that weight norm changes nothing.
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
    theta = np.concatenate([weights, bias, lengths], 1)
    return jnp.asarray(theta), jnp.asarray(x)


def fisher_errors(norm: str, outputs: theory.Outputs) -> list[str]:
    """Return the relative errors of eq. 13-14 and of eq. 32-35, or "exact".

    Args:
      norm: one of `NORMALISERS`.
      outputs: the family of the outputs.
    """
    theta, x = problem()
    exact = theory.fisher(theory.layer_model(norm), theta, x, outputs)
    exact = exact.reshape(*theta.shape, *theta.shape)
    words = []
    # The last column of theta is the gain g_i.
    for found, expected in (
        (theory.block_fisher(norm, theta, x, outputs), exact),
        (theory.gain_metric(norm, theta, x, outputs), exact[:, -1, :, -1]),
    ):
        error = jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected)
        words.append("exact" if error < EXACT else f"{error:.2f}")
    return words


def fisher_table() -> list[list[str]]:
    """Return the errors against the exact Fisher matrix, for each family of outputs."""
    rows = [["eq. 13-14"], ["eq. 32-35 (gains)"]]
    for norm in NORMALISERS:
        errors = [fisher_errors(norm, outputs) for outputs in FAMILIES]
        for row, words in zip(rows, zip(*errors, strict=True), strict=True):
            row.append("exact" if set(words) == {"exact"} else ", ".join(words))
    return rows


def main(argv: list[str]) -> None:
    """Print the tables.

    Raises:
      UserError: a wrong flag.
    """
    Parser(description=__doc__).parse_args(argv)
    head = ("", *NORMALISERS)
    # In float32, rounding would hide which formulas are exact.
    with jax.enable_x64(True):
        print("Relative change of the output\n")
        print(md.table(head, table_1()))
        print("\nRelative error for Gaussian, Bernoulli and categorical outputs\n")
        print(md.table(head, fisher_table()))


if __name__ == "__main__":
    run_script(main, "this measurement")
