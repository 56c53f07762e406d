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

    carry_0 --> step --> carry_1 --> step --> carry_2 --> ...
                  |                    |
                 p_0                  p_1           all of these are kept

This file tells the forward pass in the order of execution: `scan`, `_trace`,
`_forward`, `_outputs_after`. The backward pass stands in `backward`.

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

from lnrepro.functional import backward, products
from lnrepro.functional.arrays import clone_keys
from lnrepro.functional.fast import equations, kernels, parts, platform, tuning
from lnrepro.functional.fast.kernels import Implementation
from lnrepro.functional.products import NamedProducts, Weights
from lnrepro.functional.scan_options import (
    Form,
    ScanOptions,
    form_for,
    over_chunks,
)


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


class Arguments(NamedTuple):
    """What a scan reads; its fields are described at `scan`."""

    weights: Weights
    params: Any
    carry: Any
    x: Any
    context: Any


class Plan(NamedTuple):
    """The static part of a scan: its functions, and how it runs.

    Attributes:
      step, output, reverse, options: as given to `scan`.
      not_kept: names of the products that the backward pass computes again.
      context: what the scan is traced for, as its backward pass is too.
      form: the form of the platform.
    """

    step: Callable
    output: Callable
    reverse: bool
    options: ScanOptions
    not_kept: frozenset[str]
    context: platform.Context
    form: Form


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
      carry: pytree of arrays, the carry before the first step.
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
      TypeError: forward-mode differentiation of the lean backward pass.

    >>> def step(dot, params, h, x, context):
    ...     return jnp.tanh(dot("w_x", x) + dot("w_h", h) + params["bias"]), None
    >>> weights = {"w_x": jnp.ones((3, 2)), "w_h": jnp.eye(2)}
    >>> params = {"bias": jnp.zeros((1, 2))}
    >>> h, x = jnp.zeros((4, 2)), jnp.ones((5, 4, 3))
    >>> scan(step, weights, params, h, x).outputs.shape
    (5, 4, 2)
    """
    run = functools.partial(_scan, step, output, reverse, options or ScanOptions())
    return run(None, weights, params, carry, x, context)


def _scan(step, output, reverse, options, implementation, *arguments) -> Any:
    """Run a scan by an implementation, which is chosen where it is None."""
    arguments = Arguments(*arguments)
    # x may be empty where the context gives the number of steps.
    steps = jax.tree.leaves((arguments.x, arguments.context))[0].shape[0]
    if not isinstance(steps, int):
        # The steps of an exported program, whose number is open, are one chunk.
        options = dataclasses.replace(options, chunk=None, unroll=1)
    # With no steps there is nothing to keep or to replay.
    traced = _Trace(None, is_lean=False, not_kept=frozenset())
    if steps != 0:
        traced = _trace(step, output, options.save, arguments)
    context = platform.context(options.platform)
    if implementation is None:
        implementation = Implementation(kernel=options.kernels == "on")
        has_kernels = context.platform in tuning.PLATFORMS
        if options.kernels == "auto" and has_kernels and traced.equations:
            h = jax.tree.leaves(arguments.carry)[0]
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
                context=context,
                reason=tuning.reason_against(traced.equations, arguments, context),
            )
            implementation = tuning.choose.get()(found) or implementation
            if not implementation.kernel:
                kernels.note(implementation.reason)
    plan = Plan(
        step=step,
        output=output,
        reverse=reverse,
        options=options,
        not_kept=traced.not_kept,
        context=context,
        form=form_for(
            context.platform,
            arguments.x,
            steps,
            arguments.weights,
            options,
            implementation,
        ),
    )
    is_lean = options.backward == "lean" and traced.is_lean
    return (_lean_scan if is_lean else _plain_scan)(plan, arguments)


class _Trace(NamedTuple):
    """What is known of a step that is traced.

    Attributes:
      equations: its closed jaxpr, whose first results are its products.
      is_lean: whether the lean backward pass can run the step. It knows neither traced
        arrays of the function around the step, nor products inside of a transformation.
      not_kept: names of the products that the backward pass computes again.
    """

    equations: Any
    is_lean: bool
    not_kept: frozenset[str]


def _trace(step, output, save, arguments):
    """Trace one step; arguments as given to `scan`."""
    records = []

    def one_step(carry, x, context, weights, params):
        record = NamedProducts(weights, compute=products.plain_product)
        records.append(record)
        # Keys are read here, so that the program around it reads them once.
        first_context = jax.tree.map(operator.itemgetter(0), context)
        new, aux = step(record.dot, params, carry, x, first_context)
        return record.computed, new, aux, output(new)

    weights, params, carry, x, context = arguments
    first = jax.tree.map(operator.itemgetter(0), x)
    traced = jax.make_jaxpr(one_step)(carry, first, context, weights, params)
    outside = any(
        isinstance(a, jax.core.Tracer) and jnp.issubdtype(a.dtype, jnp.inexact)
        for a in traced.consts
    )
    is_lean = not (outside or records[0].is_inner)
    not_kept = frozenset()
    if save != "products":
        # Some generators draw other bits for many steps at once.
        start = [v for e in traced.eqns if parts.must_stay(e) for v in e.outvars]
        if save == "recurrent":
            start += traced.jaxpr.invars[: len(jax.tree.leaves(carry))]
        kept = equations.reached(traced.eqns, start)
        pairs = zip(sorted(records[0].computed), traced.jaxpr.outvars, strict=False)
        not_kept = frozenset(name for name, v in pairs if v not in kept)
    return _Trace(traced, is_lean, not_kept)


def _name(step):
    """The name of a step, or of the cell that `unroll` gives it."""
    # That of `unroll` is a partial function, whose first argument is the cell.
    cell, *_ = *getattr(step, "args", ()), step
    return getattr(cell, "__name__", type(cell).__name__)


def _plain_scan(plan, arguments):
    """Run the scan for JAX's own derivatives."""

    def keep(before, after, computed):
        return plan.output(after)

    with platform.tracing_in(plan.context):
        return ScanResult(*_forward(plan, arguments, keep))


def _forward(plan, arguments, keep):
    """Scan over chunks of steps.

    Args:
      plan: the static part of the scan.
      arguments: as given to `scan`.
      keep: (carry before, carry after, {name: product}) -> what is stacked of a step.

    Returns:
      (last carry, what was kept [T, ...], aux [T, ...]).
    """
    weights, params, carry, x, context = arguments
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
    last, (kept, aux) = over_chunks(
        one_chunk, carry, (x, context), plan.form.forward_chunk, plan.reverse
    )
    return last, kept, aux


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _lean_scan(plan, arguments):
    """Run the scan; its derivative keeps the carries and the products only."""
    return _plain_scan(plan, arguments)


def _lean_forward(plan, arguments):
    """Run the scan; return its result and what the backward pass reads."""

    def keep(before, after, computed):
        return before, {n: computed[n] for n in computed.keys() - plan.not_kept}

    with platform.tracing_in(plan.context):
        last, (before, kept), aux = _forward(plan, arguments, keep)
        # The outputs are derived from the carries, which are kept anyway. A second
        # stack would cost as much memory again.
        outputs = _outputs_after(plan, before, last)
    context = clone_keys(arguments.context)
    saved = arguments._replace(carry=before, context=context), kept
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


def _lean_backward(plan, saved, gradients):
    """Return the gradients of the arguments."""
    arguments, kept = saved
    with platform.tracing_in(plan.context):
        found = backward.gradients_of(plan, arguments, kept, gradients)
    return (Arguments(*found),)


_lean_scan.defvjp(_lean_forward, _lean_backward)
