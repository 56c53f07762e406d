"""A scan over time with a memory-lean backward pass and named products.

A step of a recurrent network is a few matrix products and much cheap element-wise
work. Plain automatic differentiation keeps every element-wise intermediate of every
step: about thirty arrays a step for a layer-normalised LSTM. This scan keeps two kinds
of arrays only, the carries and the products. For that, a step multiplies by a weight
only through `dot(name, v)`, so that the scan sees each product by its name:

    def step(dot, params, carry, x, context):           # an LN-LSTM, eq. 20-22
        c, h = carry
        gates = layer_norm(dot("w_x", x), ...) + layer_norm(dot("w_h", h), ...) + ...
        ...
        return (c, h), None

How the backward pass works, for T steps and one product p_t = v_t W per step:

    forward    carry_0 --> step --> carry_1 --> step --> carry_2 --> ...
                            |                    |
                           p_0                  p_1           all of these are kept
    backward   for t = T-1 ... 0: replay step t with p_t read from memory, so that no
               product is computed again; take its derivative; write the gradient of
               p_t over p_t itself, since p_t is not needed any more; send the gradient
               of v_t = (gradient of p_t) W^T on to the replayed step; keep v_t, unless
               it is a part of the carry, such as h, or of x, which are kept already.
    after      the gradient of W as one large matrix product of v_t and the gradient of
               p_t over all T steps. Where v_t is made of x alone, its gradient is
               another.

This file tells it in the order of execution: `scan`, `_forward`, `_outputs_after`,
`_lean_backward`, `_replay`.

The loop runs in two ways, chosen by the platform (`scan_options.FORMS`). On a CPU it
computes everything, step by step, so that few arrays live, but for products that no
step needs (see `fast.in_place`). Elsewhere the products of x are computed before it, it
computes only what is sequential, and the rest is computed for many steps at once (see
`fast.fission`). On a TPU it may be one kernel instead (see `fast.tpu`). What is
sequential is read from the equations of a step (see `fast.parts`).

Limits:
- No forward mode through the lean backward pass (jvp, jacfwd, linearize); use
  `ScanOptions(backward="autodiff")`. Derivatives of a gradient work in both modes.
- Reverse mode over a lean gradient takes time that grows with T squared.
- The replay computes the element-wise work of each step a second time.
- A step that reads traced arrays of the function around it, and not as arguments, runs
  for JAX's own derivatives, which keep more. So does one that takes a product inside of
  a transformation, such as `jax.checkpoint`, or of a loop.

Sources: gradient checkpointing (Griewank and Walther 2000; Chen et al. 2016); storing
hidden states and replaying steps in recurrent networks (Gruslys et al. 2016,
"Memory-efficient backpropagation through time"); the structure of this file follows
the checkpointed loop of equinox in listing its sources and limits first.

Shape letters: T time, B any batch axes, D inputs and N outputs of a product, G blocks.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp

from lnrepro.functional import products
from lnrepro.functional.arrays import clone_keys, floating, wide_dtype, with_floating
from lnrepro.functional.fast import (
    equations,
    in_place,
    kernels,
    parts,
    platform,
    tuning,
)
from lnrepro.functional.fast.kernels import Way
from lnrepro.functional.products import NamedProducts, Weights
from lnrepro.functional.scan_options import DEFAULT, Form, ScanOptions, form_and_chunks


class ScanResult(NamedTuple):
    """The result of a scan.

    Attributes:
      carry: the carry after the last step.
      outputs: what `output` returned of the carry after each step, [T, ...].
      aux: what the steps returned beside the carry, [T, ...].
    """

    carry: Any
    outputs: Any
    aux: Any


class Plan(NamedTuple):
    """The static part of a scan: its functions, and how it runs.

    Attributes:
      step, output, reverse: as given to `scan`.
      not_kept: names of the products that the backward pass computes again.
      options: as given to `scan`.
      context: what the scan is traced for, as its backward pass is too.
      form: the form of the platform.
      forward_chunk, backward_chunk: steps in a chunk, in either pass.
    """

    step: Callable
    output: Callable
    reverse: bool
    not_kept: frozenset[str]
    options: ScanOptions
    context: platform.Context
    form: Form
    forward_chunk: int
    backward_chunk: int


def identity(carry: Any) -> Any:
    """Return the carry itself, as the output of a scan that returns all carries."""
    return carry


def scan(
    step: Callable,
    weights: Weights,
    params: Any,
    carry: Any,
    x: Any,
    *,
    output: Callable[[Any], Any] = identity,
    context: Any = None,
    reverse: bool = False,
    options: ScanOptions | None = None,
) -> ScanResult:
    """Run a step over time; the backward pass keeps the carries and products only.

    Args:
      step: (dot, params, carry, x, context) -> (carry, aux). It uses the weights only
        as dot(name, v [..., D]) -> [..., N], each name at most once. Products of x
        itself, as dot("w_x", x), are computed for many steps at once.
      weights: {name: [D, N], or block-diagonal [G, D / G, N / G] or, with its units in
        the order gate, block, unit, [G, D / G, gates, units]}.
      params: pytree of arrays that every step reads. Floating-point ones get gradients.
      carry: pytree of arrays, the carry before the first step. The lean backward pass
        asks for floating-point ones.
      x: pytree of floating-point arrays [T, ...], the inputs.
      output: (carry) -> what is returned of the carry after each step.
      context: pytree of arrays [T, ...], such as masks, keys and statistics. Those that
        are floating point get gradients.
      reverse: run from the last step to the first.
      options: how to run; None takes `ScanOptions()`.

    Returns:
      ScanResult: the last carry, the outputs and aux of all steps [T, ...]. Both stand
      in the order of x, whichever way the scan ran.

    Raises:
      ValueError: `dot` got an unknown name or one name twice.
      TypeError: forward-mode differentiation of the lean backward pass, or the
        derivative of a carry that is not floating point.

    >>> def step(dot, params, h, x, context):
    ...     return jnp.tanh(dot("w_x", x) + dot("w_h", h) + params["bias"]), None
    >>> weights = {"w_x": jnp.ones((3, 2)), "w_h": jnp.eye(2)}
    >>> params = {"bias": jnp.zeros((1, 2))}
    >>> h, x = jnp.zeros((4, 2)), jnp.ones((5, 4, 3))
    >>> scan(step, weights, params, h, x).outputs.shape
    (5, 4, 2)
    """
    options = options or DEFAULT
    # What may be differentiated of the context stands beside x, and gets its gradient.
    step, x = functools.partial(_with_context, step), (x, floating(context))
    run = functools.partial(_scan, step, output, reverse, options)
    return run(None, weights, params, carry, x, context)


def _with_context(step, dot, params, carry, x, context):
    """A step that gets what is floating point of its context beside x."""
    x, of_context = x
    return step(dot, params, carry, x, with_floating(context, of_context))


def _scan(
    step, output, reverse, options, way, weights, params, carry, x, context
) -> Any:
    """Run a scan in a way, which is chosen where it is None."""
    # x may be empty where the context gives the number of steps.
    steps = jax.tree.leaves((x, context))[0].shape[0]
    if not isinstance(steps, int):
        # The steps of an exported program, whose number is open, are one chunk.
        options = dataclasses.replace(options, chunk=None, unroll=1)
    # With no steps there is nothing to keep or to replay.
    is_empty = steps == 0
    traced, not_kept = _Trace(None, [], is_lean=False), frozenset()
    if not is_empty:
        traced = _trace(step, output, weights, params, carry, x, context)
    context_of_call = platform.context(options.platform)
    if way is None:
        way = Way(kernel=options.kernels == "on")
        has_kernels = context_of_call.platform in tuning.PLATFORMS
        if options.kernels == "auto" and has_kernels and not is_empty:
            h = jax.tree.leaves(carry)[0]
            arguments = weights, params, carry, x, context
            found = tuning.Scan(
                run=functools.partial(_scan, step, output, reverse, options),
                arguments=arguments,
                equations=traced.equations,
                about={
                    "cell": _name(step),
                    "rows": h.size // h.shape[-1],
                    "steps": steps,
                    "device": jax.local_devices()[0].device_kind,
                    "options": str(options),
                    "reverse": reverse,
                },
                context=context_of_call,
                reason=tuning.reason_against(
                    traced.equations, arguments, context_of_call
                ),
            )
            way = tuning.choose.get()(found) or way
            if not way.kernel:
                kernels.note(way.reason)
    if traced.is_lean:
        not_kept = _not_kept(traced, carry, options.save)
    form, forward_chunk, backward_chunk = form_and_chunks(
        context_of_call.platform, x, steps, weights, options, way
    )
    plan = Plan(
        step=step,
        output=output,
        reverse=reverse,
        not_kept=not_kept,
        options=options,
        context=context_of_call,
        form=form,
        forward_chunk=forward_chunk,
        backward_chunk=backward_chunk,
    )
    if options.backward == "autodiff" or not traced.is_lean:
        return _plain_scan(plan, weights, params, carry, x, context)
    return _lean_scan(plan, weights, params, carry, x, context)


class _Trace(NamedTuple):
    """One step, as it is traced.

    Attributes:
      equations: its closed jaxpr, whose first results are its products.
      products: their names.
      is_lean: whether the lean backward pass can run the step. It knows neither traced
        arrays of the function around the step, nor products inside of a transformation.
    """

    equations: Any
    products: list[str]
    is_lean: bool


def _trace(step, output, weights, params, carry, x, context):
    """Trace one step; arguments as given to `scan`."""
    records = []

    def one_step(carry, x, context, weights, params):
        record = NamedProducts(weights, compute=products.plain_product)
        records.append(record)
        # Keys are read here, so that the program around it reads them once.
        first_context = jax.tree.map(operator.itemgetter(0), context)
        new, aux = step(record.dot, params, carry, x, first_context)
        return record.computed, new, aux, output(new)

    first = jax.tree.map(operator.itemgetter(0), x)
    traced = jax.make_jaxpr(one_step)(carry, first, context, weights, params)
    outside = any(
        isinstance(a, jax.core.Tracer) and jnp.issubdtype(a.dtype, jnp.inexact)
        for a in traced.consts
    )
    is_lean = not (outside or records[0].is_inner)
    return _Trace(traced, sorted(records[0].computed), is_lean)


def _not_kept(traced, carry, save):
    """The names of the products that the backward pass computes again."""
    if save == "products":
        return frozenset()
    jaxpr = traced.equations.jaxpr
    # Some generators draw other bits for many steps at once.
    kept = [v for e in jaxpr.eqns if parts.must_stay(e) for v in e.outvars]
    if save == "recurrent":
        kept += jaxpr.invars[: len(jax.tree.leaves(carry))]
    sequential = equations.reached(jaxpr.eqns, kept)
    pairs = zip(traced.products, jaxpr.outvars, strict=False)
    return frozenset(name for name, v in pairs if v not in sequential)


def _name(step):
    """The name of a step, or of the cell that `unroll` gives it."""
    while isinstance(step, functools.partial):
        step = (*step.args, step.func)[0]
    return getattr(step, "__name__", type(step).__name__)


def _plain_scan(plan, weights, params, carry, x, context):
    """Run the scan for JAX's own derivatives."""

    def keep_output(before, after, computed):
        return plan.output(after)

    with platform.tracing_in(plan.context):
        last, outputs, aux = _forward(
            plan, weights, params, carry, x, context, keep_output
        )
    return ScanResult(last, outputs, aux)


def _forward(plan, weights, params, carry, x, context, keep):
    """Scan over chunks of steps.

    Args:
      plan: the static part of the scan.
      weights: {name: weight}.
      params: pytree that every step reads.
      carry: the carry before the first step.
      x: pytree of [T, ...], the inputs.
      context: pytree of [T, ...], or None.
      keep: (carry before, carry after, {name: product}) -> what is stacked of a step.

    Returns:
      (last carry, what was kept [T, ...], aux [T, ...]).
    """
    # What JAX differentiates needs a product with a derivative rule.
    compute = None
    if plan.options.backward == "lean":
        compute = products.plain_product

    def one_step(carry, inputs):
        x, context = inputs
        record = NamedProducts(weights, compute=compute)
        new, aux = plan.step(record.dot, params, carry, x, context)
        return new, (keep(carry, new, record.computed), aux)

    one_chunk = functools.partial(
        plan.form.loop, one_step, reverse=plan.reverse, unroll=plan.options.unroll
    )
    last, (kept, aux) = _over_chunks(
        one_chunk, carry, (x, context), plan.forward_chunk, plan.reverse
    )
    return last, kept, aux


def _over_chunks(function, state, inputs, size, reverse):
    """`jax.lax.scan` of a function of chunks of `size` steps; the last may be shorter.

    Args:
      function: (state, inputs of a chunk [size, ...]) -> (state, outputs of a chunk).
      state: the state before the first chunk.
      inputs: pytree of [T, ...].
      size: steps per chunk. With one chunk there is no loop around it.
      reverse: take the chunks from the last to the first.

    Returns:
      (last state, outputs [T, ...]).
    """
    steps = jax.tree.leaves(inputs)[0].shape[0]
    if steps == size:
        return function(state, inputs)
    left_over = steps % size

    def of_chunk(state, first, length=size):
        # Chunks are read from the whole arrays. These split into chunks, without what
        # is left over, would be a copy.
        def read(a):
            return jax.lax.dynamic_slice_in_dim(a, first, length)

        return function(state, jax.tree.map(read, inputs))

    if left_over and reverse:
        state, rest = of_chunk(state, steps - left_over, left_over)
    starts = jnp.arange(0, steps - left_over, size)
    state, stacked = jax.lax.scan(of_chunk, state, starts, reverse=reverse)
    # Without a copy: [chunks, size, ...] -> [chunks * size, ...].
    outputs = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), stacked)
    if not left_over:
        return state, outputs
    if not reverse:
        state, rest = of_chunk(state, steps - left_over, left_over)
    return state, jax.tree.map(lambda *a: jnp.concatenate(a), outputs, rest)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _lean_scan(plan, weights, params, carry, x, context):
    """Run the scan; its derivative keeps the carries and the products only."""
    return _plain_scan(plan, weights, params, carry, x, context)


def _lean_forward(plan, weights, params, carry, x, context):
    """Run the scan; return its result and what the backward pass reads."""
    for leaf in jax.tree.leaves(carry):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"scan: the carry has an array of dtype {leaf.dtype}, which the "
                "memory-lean backward pass cannot differentiate; make it floating "
                "point, or use ScanOptions(backward='autodiff')"
            )

    def keep(before, after, computed):
        return before, {n: computed[n] for n in computed.keys() - plan.not_kept}

    with platform.tracing_in(plan.context):
        last, (before, kept), aux = _forward(
            plan, weights, params, carry, x, context, keep
        )
        # The outputs are derived from the carries, which are kept anyway. A second
        # stack would cost as much memory again.
        outputs = _outputs_after(plan, before, last)
    saved = (weights, params, x, clone_keys(context), before, kept)
    return ScanResult(last, outputs, aux), saved


def _outputs_after(plan, before, last):
    """Outputs after the steps, from the carries before them and the last carry."""
    # The output after a step is a function of the carry before the next step, so the
    # outputs are those of `before` shifted by one step. The last carry, as [1, ...],
    # fills the end.
    first = plan.output(jax.tree.map(lambda a: a[None], last))
    others = plan.output(before)

    def shift(others, first):
        # In a reversed scan, step 0 runs last.
        if plan.reverse:
            return jnp.concatenate([first, others[:-1]])
        return jnp.concatenate([others[1:], first])

    return jax.tree.map(shift, others, first)


def _lean_backward(plan, saved, gradients: ScanResult):
    """Replay chunk after chunk, in the opposite order of the forward pass.

    Returns:
      The gradients of weights, params, carry and x; None for the context.
    """
    weights, params, x, context, before, kept = saved

    def one_chunk(state, inputs):
        d_carry, d_params, d_weights = state
        x, context, before, kept, d_outputs, d_aux = inputs
        known = _complete(plan, weights, params, x, context, before, kept)
        steps = (before, x, context, d_outputs, d_aux)
        d_carry, d_params, d_products, d_x, inputs_of_products = _replay(
            plan, weights, params, d_carry, d_params, known, steps
        )
        # One large product for each weight, over all steps of the chunk.
        of_chunk = {
            name: products.weight_gradient(inputs_of_products[name], d, weights[name])
            for name, d in d_products.items()
        }
        used = {name: d_weights[name] for name in of_chunk}
        return (d_carry, d_params, d_weights | _add(used, of_chunk)), d_x

    with platform.tracing_in(plan.context):
        # Gradients are summed over time in float32 at least.
        (d_carry, d_params, d_weights), d_x = _over_chunks(
            one_chunk,
            (gradients.carry, _wide_zeros(floating(params)), _wide_zeros(weights)),
            (x, context, before, kept, gradients.outputs, gradients.aux),
            plan.backward_chunk,
            not plan.reverse,
        )
        d_weights, d_params = jax.tree.map(
            lambda d, like: d.astype(like.dtype),
            (d_weights, d_params),
            (weights, floating(params)),
        )
    return d_weights, d_params, d_carry, d_x, None


_lean_scan.defvjp(_lean_forward, _lean_backward)


def _complete(plan, weights, params, x, context, before, known):
    """Compute what was not kept of a chunk, by large products over all its steps."""
    if not plan.not_kept:
        return known

    def other_products(carry, x, context, known):
        # Run the step for its products alone. XLA drops the rest.
        record = NamedProducts(weights, known)
        plan.step(record.dot, params, carry, x, context)
        return record.computed

    # The steps are independent, because the carry before each of them is kept. So
    # `vmap` turns the products of the chunk into one large product per weight.
    return known | jax.vmap(other_products)(before, x, context, known)


def _replay(plan, weights, params, d_carry, d_params, known, steps):
    """Replay the steps of a chunk backwards.

    Args:
      plan, weights, params: as for `_forward`.
      d_carry: gradient of the carry after the chunk.
      d_params: gradients of the parameters so far.
      known: {name: product [T, ...]}, all products of the chunk.
      steps: (carry before, x, context, gradient of the output, gradient of aux), each
        [T, ...].

    Returns:
      (gradient of the carry before the chunk, sum of the gradients of the parameters,
      gradients of the products, gradient of x, inputs of the products), the latter
      three [T, ...].
    """

    def one_step(state, inputs):
        d_carry, total = state
        known, (before, x, context, d_output, d_aux) = inputs

        def replay(floats, carry, x, probes):
            def read(name, v, weight):
                return products.replayed(v, weight, known[name], probes[name])

            record = NamedProducts(weights, compute=read)
            every_param = with_floating(params, floats)
            new, aux = plan.step(record.dot, every_param, carry, x, context)
            inputs_of_products = {
                name: v.astype(weights[name].dtype) for name, v in record.inputs.items()
            }
            return (new, plan.output(new), aux), inputs_of_products

        # The gradient of a product leaves the replay as the gradient of its probe,
        # whose value is not used.
        probes = jax.tree.map(jnp.zeros_like, known)
        _, pull, inputs_of_products = jax.vjp(
            replay, floating(params), before, x, probes, has_aux=True
        )
        # Backpropagate the gradients of the new carry, of what is shown of it and of
        # aux through the step.
        d_params, d_before, d_x, d_products = pull((d_carry, d_output, d_aux))
        state = d_before, _add(total, d_params)
        return state, (d_products, (d_x, inputs_of_products))

    loop = in_place.scan if plan.form.in_place else plan.form.loop
    (d_carry, d_params), (d_products, (d_x, inputs_of_products)) = loop(
        one_step,
        (d_carry, d_params),
        (known, steps),
        reverse=not plan.reverse,
        unroll=plan.options.unroll,
    )
    return d_carry, d_params, d_products, d_x, inputs_of_products


def _wide_zeros(tree):
    """Zeros like the arrays of a tree, in float32 at least, for sums over time."""
    return jax.tree.map(lambda a: jnp.zeros_like(a, wide_dtype(a.dtype)), tree)


def _add(total, new):
    """Add two trees of gradients in the dtype of the first."""
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, new)
