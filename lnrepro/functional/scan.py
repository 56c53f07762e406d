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
               p_t over all T steps. Where v_t is a part of x, its gradient is another.

This file tells it in the order of execution: `scan`, `_reads_of`, `_forward`,
`_outputs_after`, `_backward`, `_replay`.

The loop runs in two ways, chosen by the platform that a program is lowered for
(`scan_options.FORMS`). On a CPU it computes everything, step by step, so that few
arrays live. Elsewhere the products of x are computed before it, it computes only what
is sequential, and the rest is computed for many steps at once (see `fast.fission`). On
a TPU it may be one kernel instead (see `fast.pallas`).

Limits:
- No forward mode through the lean backward pass (jvp, jacfwd, linearize); use
  `ScanOptions(backward="autodiff")`. Derivatives of a gradient work in both modes.
- Reverse mode over a lean gradient takes time that grows with T squared.
- The replay computes the element-wise work of each step a second time.
- No gradient flows to `context`.

Sources: gradient checkpointing (Griewank and Walther 2000; Chen et al. 2016); storing
hidden states and replaying steps in recurrent networks (Gruslys et al. 2016,
"Memory-efficient backpropagation through time"); the structure of this file follows
the checkpointed loop of equinox in listing its sources and limits first.

Shape letters: T time, B any batch axes, D inputs and N outputs of a product, G blocks.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional import products
from lnrepro.functional.fast import platform
from lnrepro.functional.fast.loops import over_chunks, scan_in_place
from lnrepro.functional.norms import wide_dtype
from lnrepro.functional.products import NamedProducts, Weights
from lnrepro.functional.scan_options import Reads, ScanOptions, plans_for


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
      params: pytree of floating-point arrays that every step reads.
      carry: pytree of arrays, the carry before the first step. The lean backward pass
        asks for floating-point ones.
      x: pytree of floating-point arrays [T, ...], the inputs.
      output: (carry) -> what is returned of the carry after each step.
      context: pytree of arrays [T, ...] that get no gradient.
      reverse: run from the last step to the first.
      options: how to run; None takes `ScanOptions()`.

    Returns:
      ScanResult: the last carry, the outputs and aux of all steps [T, ...]. Both stand
      in the order of x, whichever way the scan ran.

    Raises:
      ValueError: `dot` got an unknown name or one name twice; a chunk where T is
        symbolic.
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
    options = ScanOptions() if options is None else options
    # x may be empty where the context gives the number of steps.
    steps = jax.tree.leaves((x, context))[0].shape[0]
    # With no steps there is nothing to keep or to replay.
    is_empty = steps == 0
    reads = Reads((), (), ())
    if not is_empty:
        reads = _reads_of(step, weights, params, carry, x, context)
    plans = plans_for(step, output, reverse, reads, x, steps, options)
    if options.backward == "autodiff" or is_empty:
        return _plain_scan(plans, weights, params, carry, x, context)
    try:
        return _lean_scan(plans, weights, params, carry, x, context)
    except TypeError as error:
        # JAX's own message speaks of custom_vjp functions, which users did not write.
        if "forward-mode" not in str(error):
            raise
        raise TypeError(
            "scan: the memory-lean backward pass has no forward-mode derivative (jvp, "
            "jacfwd, linearize); use ScanOptions(backward='autodiff')"
        ) from error


def _reads_of(step, weights, params, carry, x, context):
    """Trace one step, and note what its products read."""
    of_x, of_carry = {}, {}

    def one_step(x, copy, params, carry, context):
        # Tracers are compared by identity: `h` that is passed on unchanged is the same
        # object.
        leaf_of_x = {id(a): i for i, a in enumerate(jax.tree.leaves(x))}
        leaf_of_carry = {id(a): i for i, a in enumerate(jax.tree.leaves(carry))}
        copies = jax.tree.leaves(copy)

        def multiply(name, v, weight):
            if id(v) in leaf_of_x:
                of_x[name] = leaf_of_x[id(v)]
                # The copy is read here, so that x itself is read by the rest alone.
                v = copies[of_x[name]]
            elif id(v) in leaf_of_carry:
                of_carry[name] = leaf_of_carry[id(v)]
            return products.multiply(v, weight)

        record = NamedProducts(weights, compute=multiply)
        return step(record.dot, params, carry, x, context)

    first, first_context = jax.tree.map(lambda a: a[0], (x, context))
    jaxpr = jax.make_jaxpr(one_step)(first, first, params, carry, first_context).jaxpr
    read = {id(v) for e in jaxpr.eqns for v in e.invars}
    read |= {id(v) for v in jaxpr.outvars}
    leaves = range(len(jax.tree.leaves(x)))
    other = tuple(i for i in leaves if id(jaxpr.invars[i]) in read)
    return Reads(tuple(of_x.items()), tuple(of_carry.items()), other)


def _plain_scan(plans, weights, params, carry, x, context):
    """Run the scan for JAX's own derivatives."""

    def forward(plan, *arguments):
        def keep_output(before, after, computed):
            return plan.output(after)

        last, outputs, aux, _ = _forward(plan, *arguments, keep=keep_output)
        return ScanResult(last, outputs, aux)

    return platform.choose(forward, plans, weights, params, carry, x, context)


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
      (last carry, what was kept [T, ...], aux [T, ...], {name: product [T, ...]} of
      those that were computed before the loop).
    """

    def one_step(carry, inputs):
        x, context, known = inputs
        record = NamedProducts(weights, known)
        new, aux = plan.step(record.dot, params, carry, x, context)
        return new, (keep(carry, new, record.computed), aux)

    def one_chunk(carry, inputs):
        x, context = inputs
        known = _products_of_x(plan, weights, x) if plan.form.hoist else {}
        last, (kept, aux) = plan.form.loop(
            one_step,
            carry,
            (x, context, known),
            reverse=plan.reverse,
            unroll=plan.options.unroll,
        )
        return last, (kept, aux, known)

    last, (kept, aux, known) = over_chunks(
        one_chunk, carry, (x, context), plan.forward_chunk, plan.reverse
    )
    return last, kept, aux, known


def _products_of_x(plan, weights, x):
    """The products of x of all steps, one large product for each weight."""
    leaves = jax.tree.leaves(x)
    return {
        name: products.multiply(leaves[leaf], weights[name])
        for name, leaf in plan.reads.x
    }


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _lean_scan(plans, weights, params, carry, x, context):
    """Run the scan; its derivative keeps the carries and the products only."""
    return _plain_scan(plans, weights, params, carry, x, context)


def _lean_forward(plans, weights, params, carry, x, context):
    """Run the scan; return its result and what the backward pass reads."""
    for leaf in jax.tree.leaves(carry):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"scan: the carry has an array of dtype {leaf.dtype}, which the "
                "memory-lean backward pass cannot differentiate; make it floating "
                "point, or use ScanOptions(backward='autodiff')"
            )

    def forward(plan, *arguments):
        def keep(before, after, computed):
            return before, _without_what_is_computed_again(plan, computed)

        last, (before, kept), aux, known = _forward(plan, *arguments, keep=keep)
        kept |= _without_what_is_computed_again(plan, known)
        # The outputs are derived from the carries, which are kept anyway. A second
        # stack would cost as much memory again.
        outputs = _outputs_after(plan, before, last)
        return ScanResult(last, outputs, aux), (before, kept)

    result, kept = platform.choose(forward, plans, weights, params, carry, x, context)
    return result, (weights, params, x, context, kept)


def _without_what_is_computed_again(plan, computed):
    """The products among some {name: product} that the backward pass reads."""
    if plan.options.save == "products":
        return computed
    if plan.options.save == "carries":
        return {}
    of_x = dict(plan.reads.x)
    return {name: product for name, product in computed.items() if name not in of_x}


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


def _lean_backward(plans, saved, gradients: ScanResult):
    """Return the gradients of weights, params, carry and x."""
    # The last entry is that of `context`, which gets no gradient.
    return *platform.choose(_backward, plans, saved, gradients), None


_lean_scan.defvjp(_lean_forward, _lean_backward)


def _backward(plan, saved, gradients):
    """Replay chunk after chunk, in the opposite order of the forward pass."""
    weights, params, x, context, kept = saved

    def one_chunk(state, inputs):
        d_carry, d_params, d_weights = state
        x, context, kept, d_outputs, d_aux = inputs
        before, kept_products = kept
        known = _complete(plan, weights, params, x, context, before, kept_products)
        steps = (before, x, context, d_outputs, d_aux)
        d_carry, d_params, d_products, d_x, inputs_of_products = _replay(
            plan, weights, params, d_carry, d_params, known, steps
        )
        # One large product for each weight, over all steps of the chunk.
        of_chunk = {
            name: products.weight_gradient(inputs_of_products[name], d, weights[name])
            for name, d in d_products.items()
        }
        d_weights = d_weights | {
            name: _add(d_weights[name], d) for name, d in of_chunk.items()
        }
        return (d_carry, d_params, d_weights), d_x

    # Gradients are summed over time in float32 at least.
    (d_carry, d_params, d_weights), d_x = over_chunks(
        one_chunk,
        (gradients.carry, _wide_zeros(params), _wide_zeros(weights)),
        (x, context, kept, gradients.outputs, gradients.aux),
        plan.backward_chunk,
        not plan.reverse,
    )
    d_params = _cast_like(d_params, params)
    return _cast_like(d_weights, weights), d_params, d_carry, d_x


def _complete(plan, weights, params, x, context, before, known):
    """Compute what was not kept of a chunk, by large products over all its steps."""
    if plan.options.save != "products":
        known = known | _products_of_x(plan, weights, x)
    if plan.options.save != "carries":
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
    of_x, of_carry = dict(plan.reads.x), dict(plan.reads.carry)
    carries, (leaves, x_tree) = jax.tree.leaves(steps[0]), jax.tree.flatten(steps[1])

    def one_step(d_carry, inputs):
        kept_products, (before, x, context, d_output, d_aux) = inputs
        x_products = {n: p for n, p in kept_products.items() if n in of_x}
        others = {n: p for n, p in kept_products.items() if n not in of_x}
        x_leaves = jax.tree.leaves(x)
        read_otherwise = [x_leaves[i] for i in plan.reads.other]

        def replay(params, carry, read_otherwise, x_products, probes):
            def read(name, v, weight):
                return products.replayed(v, weight, others[name], probes[name])

            read_leaves = dict(zip(plan.reads.other, read_otherwise, strict=True))
            step_x = [read_leaves.get(i, a) for i, a in enumerate(x_leaves)]
            step_x = jax.tree.unflatten(x_tree, step_x)
            # A product of x is an input of the replay, whose gradient goes no further.
            record = NamedProducts(weights, x_products, read)
            new, aux = plan.step(record.dot, params, carry, step_x, context)
            stacked = {
                name: v.astype(weights[name].dtype)
                for name, v in record.inputs.items()
                if name not in of_x and name not in of_carry
            }
            return (new, plan.output(new), aux), stacked

        # The gradient of a product leaves the replay as the gradient of its probe,
        # whose value is not used.
        probes = jax.tree.map(jnp.zeros_like, others)
        _, pull, stacked = jax.vjp(
            replay, params, before, read_otherwise, x_products, probes, has_aux=True
        )
        # Backpropagate the gradients of the new carry, of what is shown of it and of
        # aux through the step.
        d_params, d_before, d_x, d_x_products, d_others = pull(
            (d_carry, d_output, d_aux)
        )
        return d_before, (d_x_products | d_others, d_params, (d_x, stacked))

    run = scan_in_place if plan.form.in_place else _scan_at_once
    d_carry, d_params, d_products, (d_read, inputs_of_products) = run(
        plan, one_step, d_carry, d_params, known, steps
    )
    # An input that is a part of the carry or of x is stacked there already.
    inputs_of_products |= {name: carries[leaf] for name, leaf in of_carry.items()}
    inputs_of_products |= {name: leaves[leaf] for name, leaf in of_x.items()}

    # One large product for each weight that multiplies x.
    d_x = dict(zip(plan.reads.other, d_read, strict=True))
    for name, leaf in of_x.items():
        d = products.plain_input_gradient(d_products[name], leaves[leaf], weights[name])
        d_x[leaf] = d_x[leaf] + d if leaf in d_x else d
    d_x = [d_x.get(i, jnp.zeros_like(a)) for i, a in enumerate(leaves)]
    d_x = jax.tree.unflatten(x_tree, d_x)
    return d_carry, d_params, d_products, d_x, inputs_of_products


def _scan_at_once(plan, one_step, carry, total, replaced, inputs):
    """Do what `scan_in_place` does, with new arrays for the values."""

    def one_iteration(state, inputs):
        carry, total = state
        carry, (values, terms, outputs) = one_step(carry, inputs)
        if plan.form.all_in_loop:
            total, terms = _add(total, terms), None
        return (carry, total), (values, terms, outputs)

    (carry, total), (values, terms, outputs) = plan.form.loop(
        one_iteration,
        (carry, total),
        (replaced, inputs),
        reverse=not plan.reverse,
        unroll=plan.options.unroll,
    )
    if not plan.form.all_in_loop:
        total = jax.tree.map(
            lambda a, new: a + jnp.sum(new.astype(a.dtype), 0), total, terms
        )
    return carry, total, values, outputs


def _wide_zeros(tree):
    """Zeros like the arrays of a tree, in float32 at least, for sums over time."""
    return jax.tree.map(lambda a: jnp.zeros_like(a, wide_dtype(a.dtype)), tree)


def _add(total, new):
    """Add two trees of gradients in the dtype of the first."""
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, new)


def _cast_like(tree, like):
    """Cast each array of a tree to the dtype of its counterpart."""
    return jax.tree.map(lambda a, b: a.astype(b.dtype), tree, like)
