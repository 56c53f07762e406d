"""The ConvNet of section 6.7: what its norms normalise, and statistics of its units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import convnet as configs
from experiments.convnet import evaluate, make, pictures
from experiments.convnet.model import NORMS, ConvNet
from lnrepro import data, theory
from lnrepro.engine import train
from lnrepro.engine.experiment import check_data_sizes
from lnrepro.errors import DataError, UserError


def config(**changes):
    c = configs.get_config("smoke")
    c.update_from_flattened_dict(changes)
    return c


def count(c) -> int:
    return sum(
        p.size for p in jax.tree.leaves(make(c).init(jax.random.key(0))["params"])
    )


def images(seed=0, cases=6):
    return jnp.asarray(
        np.random.default_rng(seed).uniform(size=(cases, 8, 8, 1)), jnp.float32
    )


@pytest.mark.slow
def test_parameters_of_each_norm():
    """4 channels on 8x8 positions, 8 channels on 4x4 positions, and 10 classes."""
    plain = 36 + 288 + 1280 + 10
    assert count(config(norm="none")) == plain + 4 + 8  # one bias a channel
    assert count(config(norm="batch")) == plain + 2 * (
        4 + 8
    )  # gain and bias a channel, no other bias
    assert count(config(norm="layer")) == plain + 2 * (4 + 8)
    per_unit = config(**{"norm": "layer", "layer_norm.gain_per_unit": True})
    assert count(per_unit) == plain + 2 * (4 * 64 + 8 * 16)


@pytest.mark.parametrize(
    ("statistics", "axes"), [("layer", (1, 2, 3)), ("position", (3,))]
)
def test_layer_norms_statistics_are_those_of_a_case(statistics, axes):
    c = config(
        **{
            "norm": "layer",
            "layer_norm.statistics": statistics,
            "layer_norm.eps": 1e-12,
        }
    )
    net = ConvNet(c)
    _, seen = net.apply(
        net.init(jax.random.key(0), images(), False),
        images(),
        True,
        mutable=["intermediates"],
    )
    for z in seen["intermediates"]["normalised"]:
        np.testing.assert_allclose(z.mean(axes), 0.0, atol=1e-4)
        np.testing.assert_allclose(z.var(axes), 1.0, rtol=1e-3)


def test_logits_keep_what_the_norm_promises():
    """Table 1 for the first kernel. Layer norm over positions loses re-centring."""
    for norm in NORMS:
        c = config(**{"norm": norm, "layer_norm.eps": 0.0, "batch_norm.eps": 0.0})
        net = ConvNet(c)
        vars = net.init(jax.random.key(0), images(), False)

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


def test_border_numbers_are_the_moments_of_the_units():
    rng = np.random.default_rng(0)
    sums = rng.normal(size=(50, 8, 8, 3)) * rng.uniform(
        0.5, 2.0, (8, 8, 3)
    ) + rng.normal(size=(8, 8, 3))
    z = 2.0 * sums + 1.0
    moments = evaluate.Moments(
        count=np.full((8, 8, 3), 50.0),
        active=(z > 0).sum(0),
        input=sums.sum(0),
        input_squared=(sums**2).sum(0),
        normalised=z.sum(0),
        normalised_squared=(z**2).sum(0),
    )
    layers = [evaluate.unit_statistics(moments, "layer")]
    values = evaluate.border_metrics(layers)
    near = evaluate.border(8, 8)
    np.testing.assert_allclose(values["conv1 std border"], sums.std(0)[near].mean())
    np.testing.assert_allclose(values["conv1 std rest"], sums.std(0)[~near].mean())
    np.testing.assert_allclose(
        values["conv1 normalised std rest"], 2 * sums.std(0)[~near].mean()
    )
    np.testing.assert_allclose(values["conv1 on border"], (z > 0)[:, near].mean())
    picture = pictures.statistics(layers, "title")
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[-1] == 3
    assert picture.std() > 10  # something is drawn


@pytest.mark.slow
def test_border_of_a_net_counts_every_test_image():
    """The last batch of the evaluation is padded; padding must not count."""
    c = config(norm="layer", eval_batch_size=70)
    exp = make(c)
    vars = exp.init(jax.random.key(0))
    x = jnp.asarray(
        data.open_config(c.data, "test")["image"][..., None] / 16.0, jnp.float32
    )
    _, seen = ConvNet(c).apply(vars, x, False, mutable=["intermediates"])
    measured = exp.evaluate(vars, "border").scalars
    for n, (sums, z) in enumerate(
        zip(*(seen["intermediates"][k] for k in ("sums", "normalised")), strict=True), 1
    ):
        near = evaluate.border(*sums.shape[1:3])
        np.testing.assert_allclose(
            measured[f"conv{n} std border"], sums.std(0)[near].mean(), rtol=1e-3
        )
        np.testing.assert_allclose(
            measured[f"conv{n} on rest"], (z > 0)[:, ~near].mean(), rtol=1e-3
        )


@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_learns(norm):
    c = config(norm=norm)
    exp = make(c)
    vars = dict(exp.init(jax.random.key(0)))
    batch = next(iter(exp.batches(0)))

    @jax.jit
    def step(vars):
        def loss(params):
            return exp.loss(vars | {"params": params}, batch, jax.random.key(0))

        (value, (new, _)), grads = jax.value_and_grad(loss, has_aux=True)(
            vars["params"]
        )
        return value, {
            **new,
            "params": jax.tree.map(lambda p, g: p - 0.1 * g, vars["params"], grads),
        }

    values = []
    for _ in range(30):
        value, vars = step(vars)
        values.append(float(value))
    assert values[-1] < 0.7 * values[0]


@pytest.mark.slow
def test_smoke_config_trains_to_a_picture(tmp_path):
    c = config(norm="batch", epochs=6.0)
    numbers = train.train(c, tmp_path)
    assert numbers["test/error"] < 0.5
    assert 0 < numbers["border/conv1 on border"] < 1
    assert (tmp_path / "artifacts" / "statistics.png").stat().st_size > 5000
    assert (tmp_path / "artifacts" / "curves.png").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm": "group"}, "config.norm = 'group'"),
        ({"layer_norm.statistics": "channel"}, "choose one of layer, position"),
        (
            {"layer_norm.statistics": "position", "layer_norm.gain_per_unit": True},
            "gain_per_unit",
        ),
        ({"model.strides": (1,)}, "one entry for each convolution"),
    ],
)
def test_a_wrong_config_gives_one_line(changes, words):
    with pytest.raises(UserError, match=words) as error:
        make(config(**changes))
    assert "\n" not in str(error.value)


def test_sizes_must_be_those_of_the_data():
    for changes, words in (
        ({"data.image": (28, 28)}, "config.data.image"),
        ({"data.train_examples": 9}, "train_exam"),
    ):
        with pytest.raises(DataError, match=words):
            check_data_sizes(config(**changes))


def test_unknown_variant():
    with pytest.raises(ValueError, match="no variant 'cifar'"):
        configs.get_config("cifar")
