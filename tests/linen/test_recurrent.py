"""The recurrent linen modules: equal to the core, and with Flax's conventions."""

import functools

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from docs.examples.user_cells import AttentionCell, ProjectedLSTMCell
from lnrepro import functional, linen
from lnrepro import nnx as lnnx
from lnrepro.convert import gru_from_flax, lstm_from_flax, rnn_from_flax
from lnrepro.linen import (
    GRU,
    LSTM,
    RNN,
    Bidirectional,
    FunctionalCell,
    GRUCell,
    LSTMCell,
    SimpleCell,
    SimpleRNN,
    Stack,
)

B, T, D, H = 4, 6, 3, 4
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.standard_normal((B, T, D)), jnp.float32)
LENGTHS = jnp.array([6, 0, 3, 5])
MASK = jnp.arange(T) < jnp.array([[6], [2], [4], [5]])
RESETS = jnp.arange(T) == jnp.array([[2], [0], [3], [6]])
MEMORY = jnp.asarray(RNG.standard_normal((B, 2, 5)), jnp.float32)
ARGUMENTS = {
    "lengths": {"seq_lengths": LENGTHS},
    "mask": {"mask": MASK},
    "resets": {"resets": RESETS, "seq_lengths": LENGTHS},
    "keep_order": {"reverse": True, "keep_order": True, "seq_lengths": LENGTHS},
}
KINDS = [
    (LSTM, LSTMCell, functional.LSTMCell),
    (GRU, GRUCell, functional.GRUCell),
    (SimpleRNN, SimpleCell, functional.SimpleCell),
]
USER_CELLS = [ProjectedLSTMCell(H, 6), AttentionCell(H, memory_features=5)]
each_kind = pytest.mark.parametrize(
    ("sequence", "cell", "functional_cell"), KINDS, ids=["lstm", "gru", "simple"]
)
zoneout = functools.partial(functional.zoneout, rate_h=0.5)
variational_dropout = functools.partial(functional.variational_dropout, rate_h=0.5)


def same(a, b, tolerance=1e-5):
    """Assert that two trees of arrays are equal up to rounding."""
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


def differ(a, b):
    """Whether two arrays differ by more than rounding."""
    return np.abs(np.asarray(a) - np.asarray(b)).max() > 1e-3


def variables_of(module, *inputs, seed=0, **arguments):
    """Variables of a module, moved away from their starting values."""
    rng = np.random.default_rng(1)
    key = jax.random.key(seed)
    variables = nn.meta.unbox(module.init(key, *(inputs or (X,)), **arguments))

    def moved(a):
        return a + jnp.asarray(0.2 * rng.standard_normal(a.shape), a.dtype)

    return variables | {"params": jax.tree.map(moved, variables["params"])}


def some_carry(module, variables):
    """A carry that is not the module's own."""

    def initialize(module):
        return module.initialize_carry(None, (B, D))

    own = nn.apply(initialize, module)(variables)
    return jax.tree.map(lambda c: c + 0.3, own)


def loss_of(outputs):
    """A number that every output has a part in."""
    return sum(jnp.sum(jnp.sin(a)) for a in jax.tree.leaves(outputs))


# The same numbers as lnrepro.functional


@each_kind
@pytest.mark.parametrize("norm", ["none", "layer", "weight"])
def test_values_and_gradients_equal_functional(sequence, cell, functional_cell, norm):
    module = sequence(H, norm=norm, return_carry=True)
    params = variables_of(module)["params"]
    plain = functional_cell(H, norm)

    @jax.jit
    def ours(params, x):
        outputs = module.apply({"params": params}, x, seq_lengths=LENGTHS)
        return loss_of(outputs), outputs

    @jax.jit
    def theirs(params, x):
        result = functional.unroll(plain, params, x, seq_lengths=LENGTHS)
        outputs = (result.carry, result.outputs)
        return loss_of(outputs), outputs

    both = [
        jax.value_and_grad(f, argnums=(0, 1), has_aux=True)(params, X)
        for f in (ours, theirs)
    ]
    same(*both)


@each_kind
@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_three_ways_to_run_a_cell(sequence, cell, functional_cell, arguments):
    """The short form, RNN of a cell module, and RNN of a functional cell."""
    short = sequence(H)
    variables = variables_of(short)
    carry = some_carry(short, variables)
    plain = functional_cell(H, "layer")
    params = variables["params"]
    result = functional.unroll(plain, params, X, initial_carry=carry, **arguments)
    inside = {"params": {"cell": params}}
    for module, held in (
        (short, variables),
        (RNN(cell(H)), inside),
        (RNN(plain), inside),
    ):
        output = module.apply(
            held, X, initial_carry=carry, return_carry=True, **arguments
        )
        same(output, (result.carry, result.outputs))


@pytest.mark.parametrize(
    ("cell", "theirs", "convert"),
    [
        (LSTMCell(H, norm="none"), nn.LSTMCell, lstm_from_flax),
        (LSTMCell(H, norm="none"), nn.OptimizedLSTMCell, lstm_from_flax),
        (functional.GRUCell(H, "none", recurrent_bias=True), nn.GRUCell, gru_from_flax),
        (SimpleCell(H, norm="none"), nn.SimpleCell, rnn_from_flax),
    ],
)
def test_equals_flax_without_a_norm(cell, theirs, convert):
    """Except at padding, where outputs are zero and the carry does not change."""
    rnn = nn.RNN(theirs(H))
    variables = variables_of(rnn)
    params = {"cell": convert(variables["params"]["cell"])}
    module = RNN(cell)
    for arguments in ({}, {"reverse": True}, {"reverse": True, "keep_order": True}):
        arguments = arguments | {"return_carry": True}
        expected = rnn.apply(variables, X, **arguments)
        same(module.apply({"params": params}, X, **arguments), expected)
    full = LENGTHS.at[1].set(1)
    carry, y = rnn.apply(variables, X, seq_lengths=full, return_carry=True)
    inside = (jnp.arange(T) < full[:, None])[..., None]
    output = module.apply({"params": params}, X, seq_lengths=full, return_carry=True)
    same(output, (carry, jnp.where(inside, y, 0)))


@each_kind
def test_flax_s_rnn_runs_our_cells(sequence, cell, functional_cell):
    module = sequence(H)
    variables = variables_of(module)
    inside = {"params": {"cell": variables["params"]}}
    for arguments in ({}, {"reverse": True}, {"reverse": True, "keep_order": True}):
        arguments = arguments | {"return_carry": True}
        expected = nn.RNN(cell(H)).apply(inside, X, **arguments)
        same(module.apply(variables, X, **arguments), expected)


def test_arguments_override_attributes():
    module = LSTM(H, return_carry=True, time_major=True, reverse=True)
    plain = LSTM(H)
    variables = variables_of(plain)
    arguments = {"time_major": False, "reverse": False, "return_carry": False}
    same(module.apply(variables, X, **arguments), plain.apply(variables, X))
    _, y = module.apply(variables, X.swapaxes(0, 1))
    same(y.swapaxes(0, 1), plain.apply(variables, X, reverse=True))


# Step by step


@each_kind
def test_steps_equal_the_sequence(sequence, cell, functional_cell):
    learned = functional_cell(H, "layer", learned_carry=True)
    module = RNN(learned, return_carry=True)
    variables = variables_of(module)
    stored = some_carry(module, variables)
    expected = module.apply(
        variables, X, initial_carry=stored, mask=MASK, resets=RESETS
    )

    @jax.jit
    def step(carry, x, mask, reset):
        return module.apply(variables, carry, x, mask=mask, reset=reset, method="step")

    carry, outputs = stored, []
    for t in range(T):
        carry, y = step(carry, X[:, t], MASK[:, t], RESETS[:, t])
        outputs.append(y)
    same((carry, jnp.stack(outputs, 1)), expected)


@each_kind
def test_a_reset_restores_the_module_s_own_carry(sequence, cell, functional_cell):
    """Not the carry that is passed in, and no gradient flows from there into it."""
    module = RNN(functional_cell(H, "layer", learned_carry=True))
    variables = variables_of(module)
    resets = jnp.broadcast_to(jnp.arange(T) == 3, (B, T))

    def after_the_reset(stored):
        y = module.apply(variables, X, initial_carry=stored, resets=resets)
        return y[:, 3:]

    stored = some_carry(module, variables)
    same(after_the_reset(stored), module.apply(variables, X[:, 3:]))
    gradient = jax.grad(lambda c: loss_of(after_the_reset(c)))(stored)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_a_carry_init_draws_the_first_carry():
    module = LSTM(H, carry_init=nn.initializers.normal(1.0), return_carry=True)
    variables = variables_of(module)
    key = jax.random.key(7)
    c, h = module.initialize_carry(key, (B, D))
    assert differ(c, h)
    expected = module.apply(variables, X, initial_carry=(c, h))
    same(module.apply(variables, X, init_key=key), expected)
    # It is drawn in the dtype of the parameters, and the computation has a wider one.
    narrow = LSTM(H, carry_init=nn.initializers.ones, param_dtype=jnp.bfloat16)
    ones = (jnp.ones((B, H)), jnp.ones((B, H)))
    params = variables_of(narrow)
    same(narrow.apply(params, X), narrow.apply(params, X, initial_carry=ones))
    # Gains keep their own dtype, and do not decide it.
    gains = {name: value for name, value in params["params"].items() if "gain" in name}
    wide = jax.tree.map(lambda a: a.astype(jnp.float32), gains)
    y = narrow.apply({"params": params["params"] | wide}, X.astype(jnp.bfloat16))
    assert y.dtype == jnp.bfloat16


# Noise


NOISY = [
    zoneout(functional.GRUCell(H, "layer")),
    variational_dropout(functional.GRUCell(H, "layer")),
    functional.GRUCell(H, "layer", recurrent_dropout=0.5),
]


@pytest.mark.parametrize("cell", NOISY, ids=["zoneout", "variational", "recurrent"])
def test_noise_follows_flax_s_dropout(cell):
    module = RNN(cell)
    variables = variables_of(module, deterministic=True)

    def run(**arguments):
        return module.apply(variables, X, **arguments)

    quiet = run(deterministic=True)
    plain = functional.unroll(cell, variables["params"]["cell"], X)
    same(quiet, plain.outputs)
    same(RNN(FunctionalCell(cell, deterministic=True)).apply(variables, X), quiet)
    keys = jax.random.split(jax.random.key(0))
    # One key for all streams, and a key of its own for "dropout".
    for rngs in ([*keys], [{"dropout": key} for key in keys]):
        first, second = (run(deterministic=False, rngs=r) for r in rngs)
        assert differ(first, quiet)
        assert differ(first, second)
    with pytest.raises(flax.errors.InvalidRngError):
        run(deterministic=False)
    with pytest.raises(ValueError, match="deterministic"):
        run(rngs=keys[0])


def test_one_step_refuses_a_mask_for_the_sequence():
    module = RNN(variational_dropout(functional.GRUCell(H, "layer")))
    variables = variables_of(module, deterministic=True)
    with pytest.raises(ValueError, match="one mask for a whole sequence"):
        module.apply(
            variables,
            jnp.zeros((B, H)),
            X[:, 0],
            deterministic=False,
            rngs=jax.random.key(0),
            method="step",
        )


# Batch norm


def test_batch_norm_keeps_statistics_of_each_step():
    module = LSTM(H, norm="batch", max_steps=4, momentum=0.5)
    variables = module.init(jax.random.key(0), X, use_running_average=False)
    assert variables["batch_stats"]["mean_x"].shape == (4, 4 * H)

    @jax.jit
    def train(variables):
        return module.apply(
            variables, X, use_running_average=False, mutable="batch_stats"
        )

    for _ in range(25):
        y, updates = train(variables)
        variables = variables | updates
    at_test = module.apply(variables, X[:, :4], use_running_average=True)
    same(at_test, y[:, :4], 1e-3)
    with pytest.raises(ValueError, match="max_steps"):
        LSTM(H, norm="batch").init(jax.random.key(0), X)
    with pytest.raises(ValueError, match="batch norm has statistics of each time step"):
        module.apply(variables, 2 * (X[:, 0],), X[:, 0], method="step")


# Cells of a user, stacks and directions


@pytest.mark.parametrize("cell", USER_CELLS, ids=lambda c: type(c).__name__)
def test_cells_of_a_user(cell):
    module = RNN(cell, return_carry=True)
    variables = variables_of(module, memory=MEMORY)
    arguments = {"seq_lengths": LENGTHS, "resets": RESETS, "memory": MEMORY}
    params = variables["params"]["cell"]
    expected = functional.unroll(cell, params, X, **arguments)
    output = module.apply(variables, X, **arguments)
    same(output, (expected.carry, expected.outputs))

    def ours(params):
        y = module.apply({"params": {"cell": params}}, X, **arguments)[1]
        return jnp.sum(jnp.sin(y))

    def theirs(params):
        result = functional.unroll(cell, params, X, **arguments)
        return jnp.sum(jnp.sin(result.outputs))

    same(jax.jit(jax.grad(ours))(params), jax.jit(jax.grad(theirs))(params))


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_stack_equals_its_layers(arguments):
    layers = [LSTM(H), RNN(GRUCell(5))]
    module = Stack(layers, return_carry=True)
    variables = variables_of(module)
    params = variables["params"]
    first = functools.partial(layers[0].apply, {"params": params["layers_0"]})
    second = functools.partial(layers[1].apply, {"params": params["layers_1"]})
    carry_0, y = first(X, return_carry=True, **arguments)
    carry_1, y = second(y, return_carry=True, **arguments)
    same(module.apply(variables, X, **arguments), ((carry_0, carry_1), y))
    # The same layers as one scan.
    cells = functional.LSTMCell(H, "layer"), functional.GRUCell(5, "layer")
    nested = {"0": params["layers_0"], "1": params["layers_1"]["cell"]}
    if "reverse" not in arguments:
        one_scan = RNN(functional.stack(*cells))
        same(one_scan.apply({"params": {"cell": nested}}, X, **arguments), y)


def test_stack_step_by_step():
    module = Stack([LSTM(H), GRU(5)], return_carry=True)
    variables = variables_of(module)
    expected = module.apply(variables, X, mask=MASK, resets=RESETS)
    carry, outputs = module.initialize_carry(None, (B, D)), []
    for t in range(T):
        carry, y = module.apply(
            variables,
            carry,
            X[:, t],
            mask=MASK[:, t],
            reset=RESETS[:, t],
            method="step",
        )
        outputs.append(y)
    same((carry, jnp.stack(outputs, 1)), expected)


@pytest.mark.parametrize("merge", ["concat", "sum"])
def test_bidirectional_equals_functional_and_flax(merge):
    left, right = LSTM(H), GRU(H)
    module = Bidirectional(left, right, merge_fn=merge, return_carry=True)
    variables = variables_of(module)
    params = variables["params"]["forward_rnn"], variables["params"]["backward_rnn"]
    cells = left.functional_cell, right.functional_cell
    arguments = {"seq_lengths": LENGTHS, "mask": MASK, "resets": RESETS}
    expected = functional.bidirectional(*cells, params, X, merge=merge, **arguments)
    output = module.apply(variables, X, **arguments)
    same(output, (expected.carry, expected.outputs))
    if merge == "concat":
        flax_s = nn.Bidirectional(left, right)
        same(flax_s.apply(variables, X), module.apply(variables, X)[1])


def test_both_directions_run_concatenated_sequences_as_each_alone():
    learned = functional.LSTMCell(H, "layer", learned_carry=True)
    both = Bidirectional(RNN(learned), GRU(H))
    module = Stack([both, GRU(H, reverse=True, keep_order=True)])
    variables = variables_of(module)
    resets = jnp.broadcast_to(jnp.arange(T) == 2, (B, T))
    whole = module.apply(variables, X, resets=resets)
    alone = [module.apply(variables, x) for x in (X[:, :2], X[:, 2:])]
    same(whole, jnp.concatenate(alone, 1))


def test_two_directions_may_share_a_cell():
    cell = GRUCell(H)
    module = Bidirectional(RNN(cell), RNN(cell))
    params = variables_of(module)["params"]
    assert list(params) == ["forward_rnn"]
    shared = params["forward_rnn"]["cell"]
    both = Bidirectional(GRU(H), GRU(H))
    expected = both.apply(
        {"params": {"forward_rnn": shared, "backward_rnn": shared}}, X
    )
    same(module.apply({"params": params}, X), expected)


def test_a_module_and_a_direct_call_may_share_a_cell():
    class Shared(nn.Module):
        @nn.compact
        def __call__(self, x, sequence_first):
            cell = GRUCell(H)
            parts = [RNN(cell), lambda x: cell(jnp.zeros((B, H)), x[:, 0])[1]]
            return [part(x) for part in (parts if sequence_first else parts[::-1])]

    for sequence_first in (True, False):
        outputs, variables = Shared().init_with_output(
            jax.random.key(0), X, sequence_first
        )
        assert list(variables["params"]) == ["GRUCell_0"]
        sequence, step = outputs if sequence_first else outputs[::-1]
        same(sequence[:, 0], step)


def test_combined_modules_refuse_what_does_not_fit():
    module = Stack([LSTM(H), GRU(5)])
    variables = variables_of(module)
    with pytest.raises(ValueError, match="1 carries for 2 layers"):
        module.apply(variables, X, initial_carry=[None])
    with pytest.raises(ValueError, match="merge_fn='mean'; choose 'concat', 'sum'"):
        Bidirectional(LSTM(H), GRU(H), merge_fn="mean").init(jax.random.key(0), X)
    module = Stack([Bidirectional(LSTM(H), GRU(H)), GRU(5)], return_carry=True)
    variables = variables_of(module)
    carry = module.initialize_carry(jax.random.key(0), (B, D))
    same(module.apply(variables, X, initial_carry=carry), module.apply(variables, X))
    with pytest.raises(TypeError, match="a Bidirectional layer has no single step"):
        module.apply(variables, carry, X[:, 0], method="step")


# Parameters, dtypes, sharding

PLAIN = {
    "kernel_init": nn.initializers.lecun_normal(),
    "recurrent_kernel_init": nn.initializers.orthogonal(),
    "bias_init": nn.initializers.zeros,
    "scale_init": nn.initializers.ones,
}


@each_kind
def test_parameters_have_their_functional_names(sequence, cell, functional_cell):
    params = sequence(H).init(jax.random.key(0), X)["params"]
    expected = functional_cell(H, "layer").init(jax.random.key(0), D)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, expected)
    learned = functional_cell(H, "layer", learned_carry=True)
    params = RNN(learned).init(jax.random.key(0), X)["params"]["cell"]
    expected = learned.init(jax.random.key(0), D)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, expected)


@each_kind
def test_options_of_the_module_reach_its_cell(sequence, cell, functional_cell):
    options = {"norm": "rms", "activation_fn": jax.nn.relu, **PLAIN}
    if functional_cell is not functional.SimpleCell:
        options["gate_fn"] = jax.nn.hard_sigmoid
    for make in (sequence, cell):
        assert make(np.int64(H), **options).functional_cell == functional_cell(
            H, **options
        )


MOVED = [
    ("LSTM", "peephole", "RNN(functional.LSTMCell("),
    ("LSTMCell", "norm_site", "FunctionalCell(functional.LSTMCell("),
    ("GRU", "blocks", "RNN(functional.GRUCell("),
    ("GRUCell", "wrap", "FunctionalCell(functional.zoneout(functional.GRUCell("),
    ("SimpleRNN", "learned_carry", "RNN(functional.SimpleCell("),
    ("SimpleCell", "deterministic", "FunctionalCell(cell, deterministic=...)"),
]


@pytest.mark.parametrize(("module", "option", "where"), MOVED)
def test_the_message_says_where_an_option_is(module, option, where):
    for package, arguments in ((linen, (H,)), (lnnx, (D, H))):
        with pytest.raises(TypeError, match=f"no argument '{option}'") as error:
            getattr(package, module)(*arguments, **{option: 1})
        assert where in str(error.value)
        assert "\n" not in str(error.value)


def test_the_norm_is_given_by_its_name():
    with pytest.raises(TypeError, match="LSTM: write norm='layer'"):
        LSTM(H, "layer")


@each_kind
def test_dtypes(sequence, cell, functional_cell):
    mixed = sequence(H, dtype=jnp.bfloat16, return_carry=True)
    variables = mixed.init(jax.random.key(0), X)
    assert all(p.dtype == jnp.float32 for p in jax.tree.leaves(variables))
    outputs = mixed.apply(variables, X)
    assert all(a.dtype == jnp.bfloat16 for a in jax.tree.leaves(outputs))
    narrow = sequence(H, param_dtype=jnp.float16)
    variables = narrow.init(jax.random.key(0), X.astype(jnp.float16))
    assert narrow.apply(variables, X.astype(jnp.float16)).dtype == jnp.float16
    with pytest.raises(TypeError, match="int32"):
        sequence(H).init(jax.random.key(0), jnp.ones((B, T, D), int))


PARTITIONED = {
    "kernel_init": (None, "model"),
    "recurrent_kernel_init": (None, "model"),
    "bias_init": ("model",),
    "scale_init": ("model",),
}


def partitioned(box):
    return {name: box(PLAIN[name], axes) for name, axes in PARTITIONED.items()}


@each_kind
@pytest.mark.parametrize("box", [nn.with_partitioning, nn.with_logical_partitioning])
def test_partitioned_initialisers(sequence, cell, functional_cell, box):
    key = jax.random.key(0)
    for make in (
        sequence,
        lambda *a, **k: RNN(cell(*a, **k)),
        lambda *a, **k: RNN(zoneout(functional_cell(*a, "layer", **k))),
    ):
        quiet = {"deterministic": True}
        variables = make(H, **partitioned(box)).init(key, X, **quiet)
        specs = nn.get_partition_spec(variables)["params"]
        specs = specs.get("cell", specs)
        assert specs["w_x"] == specs["w_h"] == PartitionSpec(None, "model")
        assert specs["bias"] == PartitionSpec("model")
        plain = make(H, **PLAIN).init(key, X, **quiet)
        same(nn.meta.unbox(variables), plain, 0)


@pytest.mark.slow
@pytest.mark.parametrize("make", [LSTM, lambda *a, **k: RNN(LSTMCell(*a, **k))])
def test_partitioned_initialisers_on_a_mesh(make):
    """As flax.linen.Dense: a mesh with Auto axes, without jit."""
    module = make(H, **partitioned(nn.with_partitioning))
    expected = nn.meta.unbox(module.init(jax.random.key(0), X))
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    with jax.set_mesh(mesh):
        boxed = module.init(jax.random.key(0), X)
        same(nn.meta.unbox(boxed), expected)
    kernel = boxed["params"].get("cell", boxed["params"])["w_x"]
    assert kernel.names == (None, "model")


@pytest.mark.slow
@each_kind
def test_model_sharded_parameters(sequence, cell, functional_cell):
    module = sequence(H, **partitioned(nn.with_partitioning))

    @jax.jit
    def run(variables, x):
        def loss(variables):
            return jnp.mean(jnp.square(module.apply(variables, x)))

        return jax.value_and_grad(loss)(variables)

    boxed = module.init(jax.random.key(0), X)
    specs = nn.get_partition_spec(boxed)
    variables = nn.meta.unbox(boxed)
    expected = run(variables, X)
    for axis_type in (AxisType.Explicit, AxisType.Auto):
        mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(axis_type,) * 2)
        with jax.set_mesh(mesh):
            place = functools.partial(jax.NamedSharding, mesh)
            sharded = jax.device_put(variables, jax.tree.map(place, specs))
            x = jax.device_put(X, place(PartitionSpec("data")))
            same(run(sharded, x), expected)


# What Flax does with modules


@pytest.mark.parametrize(
    "module", [LSTM(H), RNN(GRUCell(H)), Stack([LSTM(H), SimpleRNN(H)])], ids=repr
)
def test_tabulate_shows_the_calls_of_modules_alone(module):
    table = module.tabulate(
        jax.random.key(0), X, compute_flops=True, compute_vjp_flops=True
    )
    assert "w_h" in table
    assert "parameters" not in table.lower().split("total parameters")[0]


@pytest.mark.slow
def test_under_vmap_jit_and_remat():
    key = jax.random.key(0)
    module = GRU(H)
    many = nn.vmap(
        GRU,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=None,
        axis_size=2,
    )(H)
    variables = many.init(key, X)
    y = jax.jit(many.apply)(variables, X)
    for i in range(2):
        of_one = jax.tree.map(lambda a, i=i: a[i], variables)
        same(module.apply(of_one, X), y[i])
    same(nn.remat(GRU)(H).apply(of_one, X), y[1])


# Bad input


@pytest.mark.parametrize("module", [LSTM(H), RNN(LSTMCell(H))], ids=repr)
def test_parameters_of_another_shape_are_refused(module):
    variables = module.init(jax.random.key(0), X)
    narrow = variables["params"].get("cell", variables["params"])
    narrow["gain_x"] = jnp.ones(1)
    for given, x in ((variables, X), (variables, jnp.ones((B, T, D + 1)))):
        with pytest.raises(flax.errors.ScopeParamShapeError):
            module.apply(given, x)


def test_a_missing_parameter_of_a_stack_is_named():
    module = RNN(functional.stack(functional.GRUCell(H), functional.GRUCell(H)))
    variables = module.init(jax.random.key(0), X)
    del variables["params"]["cell"]["1"]["bias"]
    with pytest.raises(ValueError, match="have no 1/bias"):
        module.apply(variables, X)


LEARNED_STACK = functional.stack(functional.LSTMCell(H, learned_carry=True))


def test_what_cannot_work_is_refused_in_one_line():
    key = jax.random.key(0)
    for make, message in (
        (lambda: LSTM(H, norm="group").init(key, X), "norm='group'; choose one of"),
        (lambda: LSTM(0).init(key, X), "features=0; it must be a positive integer"),
        (lambda: RNN(nn.GRUCell(H)), "use flax.linen.RNN"),
        (
            lambda: FunctionalCell(LEARNED_STACK).initialize_carry(key, (2, D)),
            "learned carry",
        ),
        (lambda: RNN(LEARNED_STACK).initialize_carry(key, (2, D)), "learned carry"),
        (lambda: GRU(H, dtype=float).init(key, X + 1j), "complex64; they must be real"),
    ):
        with pytest.raises((TypeError, ValueError), match=message) as e:
            make()
        assert "\n" not in str(e.value)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        LSTM(H, layer_norm=True)
