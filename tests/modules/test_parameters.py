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
from lnrepro.flax_modules import as_drawn, map_with_axes, own_params
from tests.functional.programs import drawn, shapes_of
from tests.functional.test_wrappers import Delay
from tests.modules.adaptor import (
    KINDS,
    D,
    H,
    Linen,
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
def test_options_and_names_of_the_module_are_those_of_its_cell(package, kind):
    name, cell_name, cell_class = KINDS[kind]
    options = {"norm": "rms", "activation_fn": jax.nn.relu}
    if kind != "simple":
        options["gate_fn"] = jax.nn.hard_sigmoid
    expected = cell_class(H, **options)
    initializers = {name: getattr(expected, name) for name in INITIALIZERS}
    for module in (name, cell_name):
        layer = package.named(module, fresh=True, **options, **INITIALIZERS)
        cell = layer.module.functional_cell
        assert dataclasses.replace(cell, **initializers) == expected
        assert shapes(layer.params) == shapes(shapes_of(expected, D)[0])
        for name, value in layer.params.items():
            number = {"w_x": 1, "w_h": 2, "bias": 3}.get(name, 4)
            assert (value == number).all()


def test_parameters_of_linen_that_do_not_fit_are_refused():
    """Of another norm, of another shape, or too few."""
    plain, given = (Linen.named("LSTM", norm=n).params for n in ("none", "layer"))
    for norm, params, message in (
        ("none", given, "params has 'bias_"),
        ("rms", given, "params has 'bias_"),
        ("layer", plain, "params has no 'bias_"),
        ("layer", given | {"w_h": jnp.ones(1)}, r"w_h has shape .*\(1,\)"),
    ):
        with refused(ValueError, "LSTMCell: ", message):
            Linen.named("LSTM", norm=norm).apply(X, params=params)
    with refused(ValueError, "stack: params must be a tuple"):
        Linen.rnn(STACK).apply(X, params={"1": given})


class WithOthers(linen.GRU):
    """A module with more parameters in its scope, of which one is drawn first."""

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:])
        low_rank = self.param("a", nn.initializers.ones, (D, H))
        return nn.Dense(H, name="head")(super().__call__(x * scale)) + x @ low_rank


def test_linen_scopes_hold_other_parameters():
    plain, module = Linen.named("GRU"), WithOthers(H, activation_fn=nn.PReLU())
    variables = drawn(jax.eval_shape(module.init, jax.random.key(1), X))
    others = variables["params"].keys() - plain.params.keys()
    assert others == {"scale", "a", "head", "activation_fn"}
    variables["params"] |= plain.params

    @jax.jit
    def both(variables):
        params = variables["params"]
        slope = params["activation_fn"]["negative_slope"]
        activation = functools.partial(nn.leaky_relu, negative_slope=slope)
        scaled = X * params["scale"]
        y = linen.GRU(H, activation_fn=activation).apply(
            {"params": plain.params}, scaled
        )
        head = y @ params["head"]["kernel"] + params["head"]["bias"]
        return module.apply(variables, X), head + X @ params["a"]

    same(*both(variables))


class WithMemory(lnnx.GRU):
    """A layer that keeps its carry, and adds weights of low rank."""

    def __init__(self, *args, rngs):
        super().__init__(*args, activation_fn=nnx.PReLU(0.3), rngs=rngs)
        self.lora = nnx.LoRA(D, 2, H, rngs=rngs)
        self.carry = nnx.Cache(jnp.zeros((len(X), H)))

    def __call__(self, x):
        self.carry[...], y = super().__call__(
            x, initial_carry=self.carry[...], return_carry=True
        )
        return y + self.lora(x)


def test_nnx_modules_hold_other_variables():
    activation = functools.partial(nnx.leaky_relu, negative_slope=0.3)
    plain = lnnx.GRU(D, H, activation_fn=activation, rngs=nnx.Rngs(0))
    module = WithMemory(D, H, rngs=nnx.Rngs(0))

    @nnx.jit
    def expected(plain):
        carry, y = plain(X, return_carry=True)
        return y, plain(X, initial_carry=carry)

    first, second = expected(plain)
    run = nnx.jit(lambda module: module(X))
    # The second factor of a LoRA starts at zero.
    same(run(module), first)
    same(run(module), second)


def test_nnx_variables_may_be_shared_and_frozen_by_another_type():
    module = lnnx.GRU(D, H, rngs=nnx.Rngs(0))
    gradient = nnx.jit(nnx.grad(lambda module: jnp.sum(module(X))))
    of_two = gradient(module)
    module.bias_x = module.bias_h
    same(gradient(module)["bias_h"][...], of_two["bias_h"][...] + of_two["bias_x"][...])
    module.bias_x = nnx.Cache(module.bias_h[...])
    found = gradient(module)
    assert "bias_x" not in found
    same(found["bias_h"][...], of_two["bias_h"][...])


def test_attributes_of_nnx_take_effect():
    """Also after the module was made; what does not fit its parameters is refused."""
    changes = {"activation_fn": jax.nn.relu, "gate_fn": jax.nn.hard_sigmoid}
    expected = lnnx.LSTM(D, H, norm="rms", **changes, rngs=nnx.Rngs(0))
    module = lnnx.LSTM(D, H, norm="rms", rngs=nnx.Rngs(0))
    module.set_attributes(**changes)
    same(module(X), expected(X), 0)
    for option, value, message in (
        ("hidden_features", 7, "w_x has shape"),
        ("norm", "layer", "params has no 'bias_"),
        ("norm", "none", "params has 'gain_"),
        ("norm", "batch", "batch norm"),
    ):
        module.set_attributes(**{option: value})
        with refused(ValueError, message):
            module(X)
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


def test_layers_are_sorted_as_numbers():
    layers = {str(number): {"w": number} for number in (10, 9, 0)}
    assert [layer["w"] for layer in as_drawn(layers)] == [0, 9, 10]


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


def test_sharding_names_parameters_of_every_layer():
    layers = ({"w": 1}, {"w": 2, "b": 3})
    found = map_with_axes(lambda _, axes: axes, layers, {"w": ("model",)})
    assert found == ({"w": ("model",)}, {"w": ("model",), "b": None})


def mesh_of(axis_type):
    return jax.make_mesh((2, 2), ("data", "model"), axis_types=(axis_type,) * 2)


each_axis_type = pytest.mark.parametrize(
    "axis_type", [AxisType.Explicit, AxisType.Auto]
)


@pytest.mark.slow
def test_a_linen_module_that_is_made_on_a_mesh():
    """Boxes of linen need Auto axes."""
    plain, mesh = Linen.named("GRU", fresh=True), mesh_of(AxisType.Auto)
    with jax.set_mesh(mesh):
        layer = Linen.named("GRU", fresh=True, sharding=SHARDING)
        x = jax.device_put(X, jax.NamedSharding(mesh, PartitionSpec("data")))
        y = jax.jit(layer.module.apply)(layer.variables, x)
    specs = nn.get_partition_spec(layer.variables)["params"]
    assert specs["w_x"] == PartitionSpec(None, "model")
    same((layer.params, y), (plain.params, plain.apply(X)))


@pytest.mark.slow
@each_axis_type
def test_a_noisy_nnx_module_that_is_made_under_jit_on_a_mesh(axis_type):
    @nnx.jit
    def make(rngs):
        cell = functional.zoneout(functional.GRUCell(H), rate_h=0.5)
        return lnnx.FunctionalCell(cell, D, sharding=SHARDING, rngs=rngs)

    mesh = mesh_of(axis_type)
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


def test_nnx_refuses_a_parameter_whose_name_is_taken():
    @dataclasses.dataclass(frozen=True)
    class Clash(ProjectedLSTMCell):
        def init(self, key, features_in, dtype=jnp.float32):
            return {"dtype": jnp.zeros(features_in, dtype)}

    with refused(ValueError, "'dtype', which is the name of an attribute"):
        lnnx.RNN(Clash(H, 6), in_features=D, rngs=nnx.Rngs(0))


def test_features_of_numpy():
    graphs = [
        nnx.graphdef(lnnx.LSTM(size(D), size(H), rngs=nnx.Rngs(0)))
        for size in (int, np.int64)
    ]
    assert graphs[0] == graphs[1]
    assert linen.LSTM(np.int64(H)).functional_cell == functional.LSTMCell(H)


# Delay, a cell whose carry has the size of x.


@pytest.mark.parametrize(
    "cell", [Delay(), functional.stack(functional.GRUCell(6), Delay())]
)
def test_initialize_carry_knows_the_size_of_x(cell):
    module = lnnx.RNN(cell, in_features=H, return_carry=True, rngs=nnx.Rngs(0))
    carries = [module.initialize_carry((2, size)) for size in (H, None)]
    carries.append(linen.RNN(cell).initialize_carry(None, (2, H)))
    expected = shapes(jax.eval_shape(module, jnp.zeros((2, 5, H)))[0])
    assert [shapes(carry) for carry in carries] == [expected] * 3
