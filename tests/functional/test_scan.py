"""The memory-lean scan with steps written by hand, against JAX's own derivatives."""

import collections
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental import checkify

from lnrepro.functional import (
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    named_dot,
    scan,
    scan_options,
    stack,
    unroll,
    variational_dropout,
    zoneout,
)

T, B, D, H = 6, 3, 4, 4
KINDS = ("dense", "blocks")
AUTODIFF = ScanOptions(backward="autodiff")


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def same(a, b, tolerance=1e-10):
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        a,
        b,
    )


def chained_step(dot, params, carry, x, context):
    """A step with a product of x, one of a function of x, two of the carry, and aux."""
    c, h = carry
    x_proj = dot("w_x", x["left"]) + jnp.sin(dot("w_v", jnp.cos(x["right"])))
    a = x_proj + dot("w_h", h) * context
    c = jnp.tanh(a[..., :H]) * c + params["bias"]
    query = dot("w_q", jnp.sin(c))
    h = jnp.tanh(query + params["gain"] * a[..., H:])
    aux = {"query": jnp.square(query), "norm": jnp.sum(h * c, -1)}
    return (c, h), aux


def show(carry):
    """The output of a step, some function of its carry."""
    c, h = carry
    return jnp.concatenate([h, jnp.cos(c)], -1)


def problem(kind="dense", steps=T):
    """Arguments (weights, params, carry, x) of a scan, and its context."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return 0.7 * rng.standard_normal(shape)

    def weight(features_in, features):
        if kind == "dense":
            return draw(features_in, features)
        return draw(2, features_in // 2, features // 2)

    weights = {
        "w_x": weight(D, 2 * H),
        "w_v": weight(D, 2 * H),
        "w_h": weight(H, 2 * H),
        "w_q": weight(H, H),
    }
    params = {"bias": draw(H), "gain": draw(H)}
    carry = (draw(B, H), draw(B, H))
    x = {"left": draw(steps, B, D), "right": draw(steps, B, D)}
    return (weights, params, carry, x), draw(steps, 1, 1)


def run(arguments, context, *, reverse=False, options=None):
    return scan(
        chained_step,
        *arguments,
        output=show,
        context=context,
        reverse=reverse,
        options=options,
    )


def value_and_gradients(arguments, context, **how):
    """All results of the scan, and the gradients of a loss of all of them."""

    def loss(*arguments):
        result = run(arguments, context, **how)
        leaves = jax.tree.leaves(result)
        total = sum(
            jnp.sum(jnp.sin(leaf) * jnp.cos(jnp.arange(leaf.size).reshape(leaf.shape)))
            for leaf in leaves
        )
        return total, result

    (_, result), gradients = jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True)(
        *arguments
    )
    return result, gradients


@functools.cache
def expected(kind, reverse):
    """The results of a loop in Python and JAX's own gradients of it."""
    arguments, context = problem(kind)

    def loss(*arguments):
        weights, params, carry, x = arguments
        outputs, aux = [None] * T, [None] * T
        for t in range(T)[::-1] if reverse else range(T):
            x_t = jax.tree.map(lambda a, t=t: a[t], x)
            carry, aux[t] = chained_step(
                named_dot(weights), params, carry, x_t, context[t]
            )
            outputs[t] = show(carry)
        stacked = jax.tree.map(lambda *a: jnp.stack(a), *aux)
        result = carry, jnp.stack(outputs), stacked
        total = sum(
            jnp.sum(jnp.sin(leaf) * jnp.cos(jnp.arange(leaf.size).reshape(leaf.shape)))
            for leaf in jax.tree.leaves(result)
        )
        return total, result

    grad = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True))
    (_, result), gradients = grad(*arguments)
    return result, gradients


OPTIONS = [
    ScanOptions(),
    AUTODIFF,
    ScanOptions(unroll=2),
    ScanOptions(save="recurrent"),
    ScanOptions(save="carries"),
    ScanOptions(chunk=2),
    ScanOptions(save="recurrent", chunk=3, platform="tpu"),
    ScanOptions(save="carries", chunk=2, platform="cpu"),
    ScanOptions(save="carries", chunk=1, unroll=2, platform="gpu"),
    ScanOptions(backward="autodiff", chunk=3, unroll=3, platform="gpu"),
]


def options_id(options):
    changed = [
        f"{name}={getattr(options, name)}"
        for name in ("backward", "save", "chunk", "unroll", "platform")
        if getattr(options, name) != getattr(ScanOptions(), name)
    ]
    return ",".join(changed) or "default"


# Those that are not slow take each kind of weight and each direction several times.
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(OPTIONS)), ids=map(options_id, OPTIONS))
def test_values_and_gradients_equal_those_of_a_python_loop(double, number):
    kind, reverse = KINDS[number % 2], number % 4 in (1, 2)
    arguments, context = problem(kind)
    how = {"reverse": reverse, "options": OPTIONS[number]}
    result, gradients = jax.jit(
        lambda *arguments: value_and_gradients(arguments, context, **how)
    )(*arguments)
    wanted, wanted_gradients = expected(kind, reverse)
    same(tuple(result), wanted)
    same(gradients, wanted_gradients)


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
@pytest.mark.parametrize("save", ["products", "recurrent", "carries"])
def test_the_forms_of_accelerators(double, platform, save):
    arguments, context = problem("blocks")
    options = ScanOptions(save=save, platform=platform)
    how = {"reverse": save == "products", "options": options}
    result, gradients = jax.jit(
        lambda *arguments: value_and_gradients(arguments, context, **how)
    )(*arguments)
    wanted, wanted_gradients = expected("blocks", how["reverse"])
    same(tuple(result), wanted)
    same(gradients, wanted_gradients)


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_second_derivatives_in_the_forms_of_accelerators(double, platform):
    arguments, context = problem(steps=3)

    def length(arguments, options):
        _, gradients = value_and_gradients(arguments, context, options=options)
        return sum(jnp.sum(jnp.cos(leaf)) for leaf in jax.tree.leaves(gradients))

    options = ScanOptions(platform=platform)
    lean = jax.jit(jax.grad(lambda a: length(a, options)))(arguments)
    same(lean, jax.jit(jax.grad(lambda a: length(a, AUTODIFF)))(arguments))


def text_for(name, options=None):
    """The module of a gradient that is exported for a platform."""
    cell = LSTMCell(H, norm="layer")
    params = jax.eval_shape(lambda key: cell.init(key, D), jax.random.key(0))

    def loss(params, x):
        return jnp.sum(unroll(cell, params, x, options=options).outputs)

    x = jax.ShapeDtypeStruct((B, T, D), jnp.float32)
    gradient = jax.jit(jax.grad(loss))
    return export.export(gradient, platforms=[name])(params, x).mlir_module()


@pytest.mark.parametrize("name", ["cpu", "tpu", "cuda"])
def test_the_platform_of_the_lowering_chooses(name):
    forms = {
        form: signature(text_for(name, ScanOptions(platform=form)))
        for form in ("cpu", "tpu", "gpu")
    }
    # Chunks, barriers and what stands in the loops differ between the forms.
    assert signature(text_for(name)) == forms["gpu" if name == "cuda" else name]
    assert len(set(map(str, forms.values()))) == 3


def test_one_platform_is_traced_alone():
    cell = LSTMCell(H)
    params = cell.init(jax.random.key(0), D)

    def gradient(platform):
        options = ScanOptions(platform=platform)

        def loss(params):
            return unroll(cell, params, jnp.ones((T, D)), options=options).outputs.sum()

        return str(jax.make_jaxpr(jax.grad(loss))(params))

    assert "platform_index" in gradient(None)
    assert "platform_index" not in gradient("cpu")


def signature(text):
    """How often each operation occurs in a module, but for the choice of a platform."""
    counts = collections.Counter(re.findall(r"stablehlo\.\w+", text))
    for name in ("case", "return", "constant"):
        del counts[f"stablehlo.{name}"]
    return counts


def test_an_export_for_several_platforms_runs_on_this_one():
    cell = GRUCell(H, norm="layer")
    params = cell.init(jax.random.key(0), D)
    x = jax.random.normal(jax.random.key(1), (B, T, D))

    def loss(params, x):
        return jnp.sum(unroll(cell, params, x).outputs ** 2)

    gradient = jax.jit(jax.grad(loss))
    exported = export.export(gradient, platforms=["cpu", "cuda", "tpu"])(params, x)
    same(exported.call(params, x), gradient(params, x), 1e-5)


@pytest.mark.parametrize(
    "options",
    [
        ScanOptions(),
        ScanOptions(save="carries"),
        ScanOptions(platform="gpu"),
        ScanOptions(chunk=2),
        AUTODIFF,
    ],
    ids=options_id,
)
def test_no_steps(options):
    arguments, context = problem(steps=0)
    result, gradients = value_and_gradients(arguments, context, options=options)
    same(result.carry, arguments[2], 1e-6)
    assert result.outputs.shape == (0, B, 2 * H)
    assert result.aux["norm"].shape == (0, B)
    d_weights, d_params, d_carry, d_x = gradients
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((d_weights, d_params)))
    assert all(np.all(leaf != 0) for leaf in jax.tree.leaves(d_carry))
    assert d_x["left"].shape == (0, B, D)


def test_one_step():
    arguments, context = problem(steps=1)
    result, gradients = value_and_gradients(arguments, context)
    plain, plain_gradients = value_and_gradients(arguments, context, options=AUTODIFF)
    same(tuple(result), tuple(plain), 1e-5)
    same(gradients, plain_gradients, 1e-5)


def test_a_product_that_is_not_used_has_a_zero_gradient():
    def step(dot, params, h, x_proj, context):
        return jnp.tanh(x_proj + dot("w_h", h)), None

    weights = {"w_h": jnp.eye(H), "w_other": jnp.ones((H, H))}
    x = jnp.ones((T, B, H))

    def loss(weights):
        return scan(step, weights, None, jnp.zeros((B, H)), x).outputs.sum()

    gradient = jax.grad(loss)(weights)
    assert (gradient["w_other"] == 0).all()
    assert (gradient["w_h"] != 0).all()


def test_a_step_without_products():
    def step(dot, params, h, x_proj, context):
        return jnp.tanh(x_proj + params * h), None

    x = jax.random.normal(jax.random.key(0), (T, B, H))

    def gradients(options):
        def loss(params, h, x):
            return scan(step, {}, params, h, x, options=options).outputs.sum()

        return jax.grad(loss, (0, 1, 2))(jnp.ones(H), jnp.zeros((B, H)), x)

    same(gradients(ScanOptions()), gradients(AUTODIFF), 1e-5)


def test_context_gets_no_gradient():
    arguments, context = problem()
    gradient = jax.grad(lambda context: jnp.sum(run(arguments, context).outputs))(
        jnp.asarray(context, jnp.float32)
    )
    assert not np.any(gradient)


def test_an_unknown_product_lists_the_names():
    def step(dot, params, h, x_proj, context):
        return dot("w_z", h), None

    weights = {"w_x": jnp.eye(H), "w_h": jnp.eye(H)}
    for options in (ScanOptions(), AUTODIFF):
        with pytest.raises(ValueError, match=r"no weight 'w_z'.* are w_h, w_x"):
            scan(
                step,
                weights,
                None,
                jnp.zeros((B, H)),
                jnp.ones((T, B, H)),
                options=options,
            )
    with pytest.raises(ValueError, match="no weight 'w_z'"):
        named_dot(weights)("w_z", jnp.ones(H))


def test_a_product_used_twice_is_refused():
    def step(dot, params, h, x_proj, context):
        return dot("w_h", jnp.tanh(dot("w_h", h))), None

    for options in (ScanOptions(), AUTODIFF):
        with pytest.raises(ValueError, match="'w_h' is used twice in one step"):
            scan(
                step,
                {"w_h": jnp.eye(H)},
                None,
                jnp.zeros((B, H)),
                jnp.ones((T, B, H)),
                options=options,
            )


def test_a_symbolic_number_of_steps_has_no_chunks():
    (steps,) = export.symbolic_shape("t")
    x = jax.ShapeDtypeStruct((steps, B, D), jnp.float32)

    def outputs(x):
        cell = LSTMCell(H, "none")
        params = cell.init(jax.random.key(0), D)
        options = ScanOptions(chunk=2)
        return unroll(cell, params, x, time_major=True, options=options).outputs

    with pytest.raises(ValueError, match="chunk=2 needs a known number of steps"):
        export.export(jax.jit(outputs))(x)


@pytest.mark.parametrize(("save", "reverse"), [("products", True), ("carries", False)])
def test_the_last_chunk_may_be_shorter(double, save, reverse):
    arguments, context = problem(steps=5)
    found = []
    for chunk in (2, 5):
        how = {"reverse": reverse, "options": ScanOptions(save=save, chunk=chunk)}
        run_chunks = jax.jit(lambda *a, how=how: value_and_gradients(a, context, **how))
        found.append(run_chunks(*arguments))
    same(*found)


@pytest.mark.parametrize(
    ("steps", "chunk"),
    # The shapes of the benchmarks, prime numbers, and one chunk where two are too few.
    [(64, 16), (300, 20), (1024, 16), (1009, 16), (106, 16), (31, 31), (5, 5)],
)
def test_chunks_bound_what_is_computed_at_once(steps, chunk):
    x = jax.ShapeDtypeStruct((steps, 32, 7), jnp.float32)
    assert scan_options._chunk(x, steps, least_steps=4) == chunk


def test_the_memory_of_a_prime_number_of_steps_is_bounded():
    """As that of a number of steps with many divisors."""
    cell = LSTMCell(8, "layer")
    params = jax.eval_shape(lambda key: cell.init(key, 8), jax.random.key(0))

    def memory(steps, chunk=None):
        def loss(params, x):
            options = ScanOptions(chunk=chunk, platform="gpu")
            return unroll(
                cell, params, x, time_major=True, options=options
            ).outputs.sum()

        x = jax.ShapeDtypeStruct((steps, 32, 8), jnp.float32)
        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(params, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes / steps

    prime = memory(1009)
    assert prime < 1.1 * memory(1008)
    assert prime < 0.7 * memory(1009, chunk=1009)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backward": "fast"}, "backward='fast'; choose one of lean, autodiff"),
        ({"save": "all"}, "save='all'; choose one of products, recurrent, carries"),
        ({"chunk": 0}, "chunk=0 must be a positive integer"),
        ({"chunk": 2.5}, "chunk=2.5 must be a positive integer"),
        ({"unroll": 0}, "unroll=0 must be a positive integer"),
        ({"kernels": True}, "kernels=True; choose one of off, auto, on"),
        ({"platform": "cuda"}, "platform='cuda'; choose one of None, cpu, gpu, tpu"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ScanOptions(**options)


def test_options_are_hashable_and_equal():
    assert ScanOptions(chunk=2) == ScanOptions(chunk=2)
    assert hash(ScanOptions(chunk=2)) == hash(ScanOptions(chunk=2))
    with pytest.raises(TypeError, match="unexpected keyword"):
        ScanOptions(remat=True)
    with pytest.raises(TypeError, match="ScanOptions has no 'pallas'; use kernels="):
        ScanOptions(pallas=True)


def test_a_carry_of_integers_has_a_derivative_by_autodiff_only():
    def step(dot, params, carry, x_proj, context):
        h, count = carry
        return (jnp.tanh(x_proj + dot("w_h", h)), count + 1), None

    def loss(h, options):
        weights = {"w_h": jnp.eye(2)}
        carry = (h, jnp.zeros((), jnp.int32))
        result = scan(step, weights, {}, carry, jnp.ones((3, 2)), options=options)
        return jnp.sum(result.carry[0])

    h = jnp.ones(2)
    assert loss(h, ScanOptions()) == loss(h, AUTODIFF)
    with pytest.raises(TypeError, match=r"dtype int32.*backward='autodiff'"):
        jax.grad(loss)(h, ScanOptions())
    assert jax.grad(loss)(h, AUTODIFF).all()


def test_forward_mode_names_the_option_that_allows_it(double):
    arguments, context = problem()

    def output(x, options):
        return run((*arguments[:3], x), context, options=options).outputs

    x = arguments[3]
    tangent = jax.tree.map(jnp.ones_like, x)
    with pytest.raises(TypeError, match=r"ScanOptions\(backward='autodiff'\)"):
        jax.jvp(lambda x: output(x, ScanOptions()), (x,), (tangent,))
    _, forward = jax.jvp(lambda x: output(x, AUTODIFF), (x,), (tangent,))
    y, pull = jax.vjp(lambda x: output(x, ScanOptions()), x)
    (backward,) = pull(jnp.ones_like(y))
    same(jnp.sum(forward), sum(jnp.sum(leaf) for leaf in jax.tree.leaves(backward)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["dense", pytest.param("blocks", marks=pytest.mark.slow)]
)
def test_second_derivatives(double, kind):
    arguments, context = problem(kind, steps=4)

    def loss(options, *arguments):
        return jnp.sum(jnp.sin(run(arguments, context, options=options).outputs))

    def reverse_over_reverse(options):
        def length(*arguments):
            gradient = jax.grad(functools.partial(loss, options), (0, 1, 2, 3))
            leaves = jax.tree.leaves(gradient(*arguments))
            return sum(jnp.sum(jnp.cos(leaf)) for leaf in leaves)

        return jax.grad(length, (0, 1, 2, 3))(*arguments)

    def forward_over_reverse(options):
        gradient = jax.grad(functools.partial(loss, options), (0, 1, 2, 3))
        tangents = jax.tree.map(jnp.cos, arguments)
        return jax.jvp(gradient, arguments, tangents)[1]

    for derivative in (reverse_over_reverse, forward_over_reverse):
        lean = jax.jit(functools.partial(derivative, ScanOptions()))()
        plain = jax.jit(functools.partial(derivative, AUTODIFF))()
        same(lean, plain, 1e-9)


def test_index_checks_report_nothing():
    arguments, context = problem()
    cell = LSTMCell(H, "layer")
    params = cell.init(jax.random.key(0), D)
    lengths = jnp.array([6, 0, 2])
    x = jnp.ones((B, T, D))

    def of_scan():
        return value_and_gradients(arguments, context)[1]

    def of_cell():
        return jax.grad(
            lambda p: unroll(cell, p, x, seq_lengths=lengths).outputs.sum()
        )(params)

    for gradient in (of_scan, of_cell):
        checked = checkify.checkify(gradient, errors=checkify.index_checks)
        error, _ = jax.jit(checked)()
        assert error.get() is None


CELLS = [
    *[
        LSTMCell(H, norm, peephole=True, inner_bias=True, learned_carry=True)
        for norm in LSTMCell.norm_names
    ],
    *[
        GRUCell(H, norm, reset=reset, learned_carry=True)
        for norm in GRUCell.norm_names
        for reset in ("after", "before")
    ],
    GRUCell(H, "none", recurrent_bias=True),
    GRUCell(H, "none", recurrent_bias=True, reset="before"),
    *[SimpleCell(H, norm, learned_carry=True) for norm in SimpleCell.norm_names],
    LSTMCell(H, "layer", gradient_clip=1.0, recurrent_dropout=0.2),
    zoneout(LSTMCell(H, "layer"), 0.2, 0.2),
    variational_dropout(GRUCell(H, "layer"), 0.2, 0.2),
    *[
        stack(LSTMCell(H, "none"), GRUCell(H, "none"), skip=skip)
        for skip in ("none", "graves", "residual")
    ],
]


@pytest.mark.slow
@pytest.mark.parametrize("options", [ScanOptions(), AUTODIFF], ids=options_id)
def test_no_implicit_rank_promotion(options):
    x = jnp.ones((B, T, D))
    with jax.numpy_rank_promotion("raise"):
        for cell in CELLS:
            params = cell.init(jax.random.key(0), D)

            def loss(params, x, cell=cell):
                result = unroll(
                    cell,
                    params,
                    x,
                    seq_lengths=jnp.array([6, 0, 2]),
                    mask=jnp.ones((B, T), bool),
                    resets=jnp.zeros((B, T), bool),
                    reverse=True,
                    key=jax.random.key(1),
                    options=options,
                )
                carry = jax.tree.leaves(result.carry)
                return result.outputs.sum() + sum(leaf.sum() for leaf in carry)

            # Ranks are checked while tracing; nothing needs to run.
            jax.eval_shape(jax.grad(loss, (0, 1)), params, x)


@pytest.mark.slow
def test_what_is_not_kept_takes_no_memory():
    cell, x = LSTMCell(32, "layer"), jnp.ones((2, 1024, 8))
    params = cell.init(jax.random.key(0), 8)

    def memory(**options):
        options = ScanOptions(**options)

        def loss(params):
            return unroll(cell, params, x, options=options).outputs.sum()

        compiled = jax.jit(jax.grad(loss)).lower(params).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    everything = memory(backward="autodiff")
    carries = memory(save="carries")
    recurrent = memory(save="recurrent")
    products = memory(save="products")
    # `scripts/bench.py cells` measures how much.
    assert carries < recurrent < products < everything
