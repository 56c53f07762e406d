"""The ConvNet of section 6.7: what its norms normalise, and statistics of its units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.convnet import evaluate, pictures
from experiments.convnet.model import ConvNet
from lnrepro import theory
from tests.experiments.small import config_of

IMAGES = jnp.float32(np.random.default_rng(0).uniform(size=(6, 8, 8)))
INVARIANT = {
    "none": set(),
    "batch": {
        "weight matrix re-scaling",
        "weight vector re-scaling",
        "dataset re-scaling",
    },
    # Layer norm over positions loses re-centring.
    "layer": {
        "weight matrix re-scaling",
        "dataset re-scaling",
        "single training case re-scaling",
    },
}


@pytest.mark.parametrize("norm", INVARIANT)
def test_logits_keep_what_the_norm_promises(norm):
    """Table 1 for the first kernel."""
    exact = {"layer_norm.eps": 0.0, "batch_norm.eps": 0.0}
    net = ConvNet(config_of("convnet", norm=norm, **exact))
    vars = jax.jit(net.init, static_argnums=2)(jax.random.key(0), IMAGES, False)
    first = vars["params"]["Conv_0"]

    @jax.jit
    def logits(kernel, x):
        params = {**vars["params"], "Conv_0": first | {"kernel": kernel}}
        found, _ = net.apply(
            {**vars, "params": params}, x, True, mutable=["batch_stats"]
        )
        return found

    row = theory.measure_row(logits, first["kernel"], IMAGES, key=jax.random.key(1))
    invariant = {column for column, value in row.items() if value < 1e-4}
    assert invariant == INVARIANT[norm]


def test_border_is_the_blank_margin_of_mnist():
    near = evaluate.border(28, 42)
    assert near.sum() == 28 * 42 - 20 * 30
    assert not near[4:24, 6:36].any()
    assert evaluate.border(2, 2).all()


def test_statistics_of_units_are_those_of_the_images():
    rng = np.random.default_rng(0)
    scale, shift = rng.uniform(0.5, 2.0, (8, 8, 3)), rng.normal(size=(8, 8, 3))
    inputs = rng.normal(size=(50, 8, 8, 3)) * scale + shift
    mask = np.arange(50) < 40
    padded = np.where(mask[:, None, None, None], inputs, np.nan)
    moments = evaluate.batch_moments(padded, 2 * padded + 1, mask)
    layers = [evaluate.unit_statistics(np.asarray(moments, float), "layer")]
    values, near = evaluate.border_metrics(layers), evaluate.border(8, 8)
    std, active = inputs[:40].std(0), (2 * inputs[:40] + 1 > 0).mean(0)
    for name, wanted in {
        "std border": std[near],
        "std rest": std[~near],
        "normalised std rest": 2 * std[~near],
        "on border": active[near],
    }.items():
        assert values[f"conv1 {name}"] == pytest.approx(wanted.mean(), rel=1e-4)
    assert pictures.statistics(layers, "title").shape[-1] == 3
