"""The ConvNet of section 6.7: what its norms normalise, and statistics of its units."""

import jax
import jax.numpy as jnp
import numpy as np

from configs import convnet as configs
from experiments.convnet import evaluate, pictures
from experiments.convnet.fields import FIELDS
from experiments.convnet.model import ConvNet
from lnrepro import theory


def config(**changes):
    c = configs.get_config("smoke")
    c.update_from_flattened_dict(changes)
    return c


def images(seed=0, cases=6):
    return jnp.asarray(
        np.random.default_rng(seed).uniform(size=(cases, 8, 8)), jnp.float32
    )


def test_logits_keep_what_the_norm_promises():
    """Table 1 for the first kernel. Layer norm over positions loses re-centring."""
    for norm in FIELDS["norm"].allowed:
        c = config(**{"norm": norm, "layer_norm.eps": 0.0, "batch_norm.eps": 0.0})
        net = ConvNet(c)
        init = jax.jit(net.init, static_argnums=2)
        vars = init(jax.random.key(0), images(), False)

        @jax.jit
        def logits(kernel, x, vars=vars, net=net):
            params = {
                **vars["params"],
                "Conv_0": {**vars["params"]["Conv_0"], "kernel": kernel},
            }
            return net.apply(
                {**vars, "params": params}, x, True, mutable=["batch_stats"]
            )[0]

        row = theory.measure_row(
            logits, vars["params"]["Conv_0"]["kernel"], images(), key=jax.random.key(1)
        )
        invariant = {column for column, value in row.items() if value < 1e-4}
        assert (
            invariant
            == {
                "none": set(),
                "batch": {
                    "weight matrix re-scaling",
                    "weight vector re-scaling",
                    "dataset re-scaling",
                },
                "layer": {
                    "weight matrix re-scaling",
                    "dataset re-scaling",
                    "single training case re-scaling",
                },
            }[norm]
        )


def test_border_is_the_blank_margin_of_mnist():
    near = evaluate.border(28, 28)
    assert near.sum() == 28 * 28 - 20 * 20
    assert not near[4:24, 4:24].any()
    assert evaluate.border(8, 8).sum() == 64 - 36


def test_statistics_of_units_are_those_of_the_images():
    rng = np.random.default_rng(0)
    scale, shift = rng.uniform(0.5, 2.0, (8, 8, 3)), rng.normal(size=(8, 8, 3))
    inputs = rng.normal(size=(50, 8, 8, 3)) * scale + shift
    mask = np.arange(50) < 40
    padded = np.where(mask[:, None, None, None], inputs, np.nan)
    moments = evaluate.batch_moments(padded, 2 * padded + 1, mask)
    layers = [evaluate.unit_statistics(np.asarray(moments, float), "layer")]
    values, near = evaluate.border_metrics(layers), evaluate.border(8, 8)
    seen = inputs[:40]
    std, active = seen.std(0), (2 * seen + 1 > 0).mean(0)
    for name, wanted in {
        "std border": std[near],
        "std rest": std[~near],
        "normalised std rest": 2 * std[~near],
        "on border": active[near],
    }.items():
        np.testing.assert_allclose(values[f"conv1 {name}"], wanted.mean(), rtol=1e-4)
    assert pictures.statistics(layers, "title").shape[-1] == 3
