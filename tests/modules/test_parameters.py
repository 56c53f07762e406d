"""Parameters of the modules: names, options, refusals, sharding."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, PartitionSpec

from docs.examples.user_cells import ProjectedLSTMCell
from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from lnrepro.flax_modules import own_params
from tests.functional.programs import drawn, shapes_of
from tests.modules.adaptor import (
    KINDS,
    D,
    H,
    Linen,
    Nnx,
    X,
    differ,
    each_kind,
    each_package,
    refused,
    same,
    shapes,
)

STACK = functional.stack(functional.GRUCell(H), functional.GRUCell(H))
INITIALIZERS = {
    "kernel_init": jax.nn.initializers.constant(1.0),
    "recurrent_kernel_init": jax.nn.initializers.constant(2.0),
    "bias_init": jax.nn.initializers.constant(3.0),
    "scale_init": jax.nn.initializers.constant(4.0),
}
SHARDING = {
    "w_x": (None, "model"),
    "w_h": (None, "model"),
    "bias": ("model",),
    "gain_h": ("model",),
}


@each_package
@each_kind
def test_parameters_have_their_functional_names(package, kind):
    name, cell_name, cell_class = KINDS[kind]
    expected, _ = shapes_of(cell_class(H), D)
    for module in (name, cell_name):
        assert shapes(package.named(module).params) == shapes(expected)
    learned = cell_class(H, learned_carry=True)
    expected, _ = shapes_of(learned, D)
    assert shapes(package.rnn(learned).params) == shapes(expected)


@each_package
@each_kind
def test_options_of_the_module_reach_its_cell(package, kind):
    name, cell_name, cell_class = KINDS[kind]
    options = {"norm": "rms", "activation_fn": jax.nn.relu}
    if kind != "simple":
        options["gate_fn"] = jax.nn.hard_sigmoid
    for module in (name, cell_name):
        layer = package.named(module, fresh=True, **options, **INITIALIZERS)
        cell = dataclasses.replace(
            layer.module.functional_cell,
            **{name: getattr(cell_class(H), name) for name in INITIALIZERS},
        )
        assert cell == cell_class(H, **options)
        for name, value in layer.params.items():
            number = {"w_x": 1, "w_h": 2, "bias": 3}.get(name, 4)
            assert (value == number).all()


@each_package
@pytest.mark.parametrize("norm", ["none", "rms", "layer_cell"])
def test_weights_of_another_norm_are_refused(package, norm):
    trained, served = package.named("LSTM"), package.named("LSTM", norm=norm)
    with refused(ValueError, "LSTMCell: params has 'bias_"):
        if package.package is linen:
            served.apply(X, params=trained.params)
        else:
            nnx.update(served.module, nnx.state(trained.module))
            served.module(X)
    missing = package.named("LSTM", norm="none").params
    with refused(ValueError, "LSTMCell: params has no 'bias_"):
        if package.package is linen:
            trained.apply(X, params=missing)
        else:
            del trained.module.bias_h
            trained.module(X)


@each_package
@pytest.mark.parametrize("name", ["gain_h", "bias", "w_h"])
def test_parameters_of_another_shape_are_refused(package, name):
    layer = package.named("LSTM")
    wrong = layer.params | {name: jnp.ones(1)}
    message = f"LSTMCell: {name} has shape", r"\(1,\)"
    if package.package is linen:
        with refused(ValueError, *message):
            layer.apply(X, params=wrong)
        return
    setattr(layer.module, name, nnx.Param(wrong[name]))
    with refused(ValueError, *message):
        layer.module(X)


class WithHead(linen.GRU):
    """A module with more parameters in its scope, which are drawn first."""

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        return nn.Dense(2, name="head")(super().__call__(x * scale))


class LowRank(nn.Module):
    """A wrapper that shares the scope of the layer that it is around."""

    base: nn.Module

    def setup(self):
        nn.share_scope(self, self.base)

    @nn.compact
    def __call__(self, x):
        low_rank = self.param("a", nn.initializers.ones, (D, H))
        return self.base(x) + x @ low_rank


def test_linen_scopes_hold_other_parameters():
    plain = Linen.named("GRU")
    for module, changed in (
        (WithHead(H), lambda y, p: y @ p["head"]["kernel"] + p["head"]["bias"]),
        (LowRank(linen.GRU(H)), lambda y, p: y + X @ p["a"]),
        (linen.GRU(H, activation_fn=nn.PReLU()), None),
    ):
        _, variables = jax.jit(module.init_with_output)(jax.random.key(1), X)
        params = variables["params"]
        assert params.keys() > plain.params.keys()
        params |= plain.params
        if changed:
            y = jax.jit(module.apply)({"params": params}, X)
            same(y, changed(plain.apply(X), jax.device_get(params)))


class WithMemory(lnnx.GRU):
    """A layer that keeps its carry, and adds weights of low rank."""

    def __init__(self, *args, rngs):
        super().__init__(*args, rngs=rngs)
        self.lora = nnx.LoRA(D, 2, H, rngs=rngs)
        self.carry = nnx.Cache(jnp.zeros((len(X), H)))

    def __call__(self, x):
        self.carry[...], y = super().__call__(
            x, initial_carry=self.carry[...], return_carry=True
        )
        self.sow(nnx.Intermediate, "y", y)
        return y + self.lora(x)


def test_nnx_modules_hold_other_variables():
    plain = lnnx.GRU(D, H, rngs=nnx.Rngs(0))
    module = WithMemory(D, H, rngs=nnx.Rngs(0))

    @nnx.jit
    def expected(plain):
        carry, y = plain(X, return_carry=True)
        return y, plain(X, initial_carry=carry)

    first, second = expected(plain)
    outputs, seen = nnx.capture(module, nnx.Intermediate)(X)
    # The second factor of a LoRA starts at zero.
    same(outputs, first)
    same(jax.tree.leaves(seen), [first])
    run = nnx.jit(lambda module: module(X))
    same(run(module), second)
    with_module = lnnx.GRU(D, H, activation_fn=nnx.PReLU(0.3), rngs=nnx.Rngs(0))
    plain.activation_fn = functools.partial(nnx.leaky_relu, negative_slope=0.3)
    same(run(with_module), run(plain))


@pytest.mark.parametrize("name", ["LSTM", "GRUCell"])
def test_attributes_of_nnx_take_effect(name):
    """Also after the module was made; what does not fit its parameters is refused."""
    changes = {"activation_fn": jax.nn.relu, "gate_fn": jax.nn.hard_sigmoid}
    expected = getattr(lnnx, name)(D, H, norm="rms", **changes, rngs=nnx.Rngs(0))
    module = getattr(lnnx, name)(D, H, norm="rms", rngs=nnx.Rngs(0))
    module.set_attributes(**changes)
    inputs = (jnp.zeros((len(X), H)), X[:, 0]) if name == "GRUCell" else (X,)
    same(module(*inputs), expected(*inputs), 0)
    for option, value, message in (
        ("hidden_features", 7, "w_x has shape"),
        ("norm", "layer", "params has no 'bias_"),
        ("norm", "none", "params has 'gain_"),
        ("norm", "batch", "batch norm"),
    ):
        module.set_attributes(**{option: value})
        with refused(ValueError, message):
            module(*inputs)
        module.set_attributes(hidden_features=H, norm="rms")


def test_names_of_options_are_known():
    """A module passes the parameters of other options to the cell, which refuses."""
    options = {"learned_carry": True, "norm": "layer"}
    for cell in (
        functional.LSTMCell(H, peephole=True, inner_bias=True, **options),
        functional.LSTMCell(H, norm_site="joint", **options),
        functional.LSTMCell(H, norm="weight"),
        functional.GRUCell(H, reset="before", **options),
        functional.GRUCell(H, norm="none", recurrent_bias=True),
        functional.SimpleCell(H, **options),
        functional.DreamerGRUCell(H, **options),
        functional.DreamerBlockGRUCell(
            H, hidden_features=2, input_sizes=(D,), blocks=2, norm="layer"
        ),
    ):
        names = shapes_of(cell, D)[0].keys()
        assert own_params((), dict.fromkeys(names)).keys() == names
    assert not own_params((), dict.fromkeys(("lora", "w_out", "gain", "scale", "head")))


def test_an_incomplete_stack_is_refused():
    module = linen.RNN(STACK)
    variables = drawn(jax.eval_shape(module.init, jax.random.key(0), X))
    cells = variables["params"]["cell"]
    bias = cells["1"].pop("bias")
    with refused(ValueError, "GRUCell: params has no 'bias'"):
        module.apply(variables, X)
    cells["1"]["bias"] = bias
    for name in ("0", "1"):
        others = {"params": {"cell": {name: cells[name]}}}
        with refused(ValueError, "stack: params must be a tuple"):
            module.apply(others, X)
    with refused(ValueError, "params"):
        module.apply({"params": {}}, X)


def test_more_than_ten_layers():
    """Numbers are sorted as numbers."""
    cells = functional.stack(*(functional.SimpleCell(H) for _ in range(11)))
    module = linen.RNN(cells)
    variables = drawn(jax.eval_shape(module.init, jax.random.key(0), X))
    params = variables["params"]["cell"]
    assert len(params) == 11

    @jax.jit
    def both(variables, params):
        return module.apply(variables, X), functional.unroll(cells, params, X).outputs

    same(*both(variables, tuple(params[str(i)] for i in range(11))))


@each_package
def test_sharding_names_parameters(package):
    """The kernels of all gates are drawn as without sharding, gate by gate."""
    with nnx.use_eager_sharding(False):
        layer = package.named("GRU", fresh=True, sharding=SHARDING)
    same(layer.params, package.named("GRU", fresh=True).params, 0)
    for name in layer.params:
        if package.package is linen:
            kept = layer.variables["params"][name]
            axes = kept.names if isinstance(kept, nn.Partitioned) else None
        else:
            metadata = getattr(layer.module, name).get_metadata()
            axes = metadata.get("out_sharding")
        assert axes == SHARDING.get(name)
    with refused(ValueError, "sharding: no parameter 'w_y', only"):
        package.named("GRU", sharding={"w_y": ("model",)})


def mesh_of(axis_type):
    return jax.make_mesh((2, 2), ("data", "model"), axis_types=(axis_type,) * 2)


def loss(layer, params, x):
    return jnp.mean(jnp.square(layer.apply(x, params=params)))


@pytest.mark.slow
@each_package
@each_kind
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto])
def test_model_sharded_parameters(package, kind, axis_type):
    name = KINDS[kind][0]
    run = jax.jit(jax.value_and_grad(loss, argnums=1), static_argnums=0)
    one_device = package.named(name)
    expected = run(one_device, one_device.params, X)
    mesh = mesh_of(axis_type)
    with jax.set_mesh(mesh):
        place = functools.partial(jax.NamedSharding, mesh)
        specs = {n: PartitionSpec(*SHARDING.get(n, ())) for n in one_device.params}
        sharded = jax.device_put(one_device.params, jax.tree.map(place, specs))
        x = jax.device_put(X, place(PartitionSpec("data")))
        same(run(one_device, sharded, x), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "axis_type"),
    # Boxes of linen need Auto axes.
    [(Linen, AxisType.Auto), (Nnx, AxisType.Auto), (Nnx, AxisType.Explicit)],
)
def test_modules_that_are_made_on_a_mesh(package, axis_type):
    sharding = {name: SHARDING[name] for name in ("w_x", "w_h", "bias")}
    expected = package.named("GRU", fresh=True).params
    with jax.set_mesh(mesh_of(axis_type)):
        layer = package.named("GRU", fresh=True, sharding=sharding)
        same(layer.params, expected)
    if package.package is linen:
        specs = nn.get_partition_spec(layer.variables)["params"]
        assert specs["w_x"] == PartitionSpec(None, "model")
    else:
        assert layer.params["w_x"].sharding.spec == PartitionSpec(None, "model")


@pytest.mark.slow
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto])
def test_noisy_module_that_is_made_under_jit_on_a_mesh(axis_type):
    mesh = mesh_of(axis_type)

    @nnx.jit
    def make(rngs):
        cell = functional.zoneout(functional.GRUCell(H), rate_h=0.5)
        return lnnx.FunctionalCell(cell, D, sharding=SHARDING, rngs=rngs)

    with jax.set_mesh(mesh):
        module = make(nnx.Rngs(0))
        assert module.w_x[...].sharding.spec == PartitionSpec(None, "model")
        x = jax.device_put(X, jax.NamedSharding(mesh, PartitionSpec("data")))
        run = nnx.jit(nnx.grad(lambda module, x: jnp.sum(lnnx.RNN(module)(x))))
        assert differ(run(module, x)["w_x"][...], run(module, x)["w_x"][...])


def test_nnx_states_are_restored_by_flax_s_way():
    """As from a checkpoint, where all names are strings."""
    module, other = (
        lnnx.RNN(STACK, in_features=D, rngs=nnx.Rngs(seed)) for seed in range(2)
    )
    pure = nnx.to_pure_dict(nnx.state(module))
    cells = pure["cell"]["cells"]
    pure["cell"]["cells"] = {str(number): value for number, value in cells.items()}
    state = nnx.state(other)
    nnx.replace_by_pure_dict(state, nnx.restore_int_paths(pure))
    nnx.update(other, state)
    same(other(X), module(X), 0)


def test_nnx_variables_may_be_frozen_by_another_type():
    module = lnnx.GRU(D, H, rngs=nnx.Rngs(0))
    run = nnx.jit(lambda module: module(X))
    expected = run(module)
    module.w_h = nnx.Cache(module.w_h[...])
    same(run(module), expected, 0)
    gradient = nnx.jit(nnx.grad(lambda module: jnp.sum(module(X))))
    assert "w_h" not in gradient(module)


def test_nnx_refuses_a_parameter_whose_name_is_taken():
    @dataclasses.dataclass(frozen=True)
    class Clash(ProjectedLSTMCell):
        def init(self, key, features_in, dtype=jnp.float32):
            return {"dtype": jnp.zeros(features_in, dtype)}

    with refused(ValueError, "'dtype', which is the name of an attribute"):
        lnnx.RNN(Clash(H, 6), in_features=D, rngs=nnx.Rngs(0))


def test_features_of_numpy():
    for features in (np.int64(H), np.int32(H)):
        module = lnnx.LSTM(np.int64(D), features, rngs=nnx.Rngs(0))
        expected = nnx.graphdef(lnnx.LSTM(D, H, rngs=nnx.Rngs(0)))
        assert nnx.graphdef(module) == expected
        assert linen.LSTM(features).functional_cell == functional.LSTMCell(H)


@pytest.mark.parametrize("package", ["linen", "nnx"])
def test_a_narrow_dtype_is_that_of_kernels_alone(package):
    """A bias is no part of a product, and is not rounded to bfloat16."""
    x = np.zeros((1, 2, 3), np.float32)
    if package == "linen":
        module = linen.SimpleRNN(1, norm="none", dtype=jnp.bfloat16)
        variables = module.init(jax.random.key(0), x)
        bias = jax.tree.map(np.zeros_like, variables["params"])
        bias["bias"] = np.full(1, 0.1234, np.float32)
        carry = module.apply({"params": bias}, x, return_carry=True)[0]
    else:
        module = lnnx.SimpleRNN(3, 1, norm="none", dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
        for name, value in (("w_x", 0), ("w_h", 0), ("bias", 0.1234)):
            parameter = getattr(module, name)
            parameter[...] = jnp.full_like(parameter[...], value)
        carry = module(x, return_carry=True)[0]
    np.testing.assert_allclose(carry, np.full((1, 1), np.tanh(0.1234)), rtol=1e-6)
