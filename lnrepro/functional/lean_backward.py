"""The forward pass of a scan, and its memory-lean backward pass.

`lnrepro.functional.scan` explains both in a picture.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional import named_products
from lnrepro.functional.fast import platform, products
from lnrepro.functional.named_products import named_dot


class Plan(NamedTuple):
    """The static part of a scan: its functions, and its options with values chosen.

    Attributes:
      step, project, output: as given to `scan`.
      reverse: whether the scan runs from the last step to the first.
      save: "products", "recurrent" or "carries".
      hoist: whether `project` runs over a chunk before its steps.
      forward_chunk, backward_chunk: steps in a chunk, in either pass.
      unroll: steps per iteration of the loop.
      loop: runs a loop over steps, as `jax.lax.scan` does.
      all_in_loop: whether the loop adds up the gradients of the parameters. Otherwise
        they are added for all steps of a chunk at once.
      in_place: whether the loop of the backward pass is `jax.lax.scan`, and writes
        gradients over what it has read.
    """

    step: Callable
    project: Callable
    output: Callable
    reverse: bool
    save: str
    hoist: bool
    forward_chunk: int
    backward_chunk: int
    unroll: int
    loop: Callable
    all_in_loop: bool
    in_place: bool


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


def plain_scan(plans, weights, params, carry, x, context) -> ScanResult:
    """Run the scan for JAX's own derivatives.

    Args:
      plans: the static part of the scan for every platform.
      weights: {name: weight}, as given to `scan`.
      params: pytree that every step reads.
      carry: pytree, the carry before the first step.
      x: pytree of [T, ...], the inputs.
      context: pytree of [T, ...] that gets no gradient, or None.
    """

    def keep_output(before, after, step_products):
        return plans.default.output(after)

    forward = functools.partial(_forward, keep=keep_output)
    last, outputs, aux, _ = platform.choose(
        forward, plans, weights, params, carry, x, context
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
      (last carry, what was kept [T, ...], aux [T, ...], projections [T, ...]).
    """

    # `record` notes the product of every name, which `keep` may stack for the backward
    # pass.
    def one_step(carry, inputs):
        x, context = inputs
        x_proj = x if plan.hoist else plan.project(named_dot(weights), x)
        record = named_products.compute_products(weights)
        new, aux = plan.step(record.dot, params, carry, x_proj, context)
        # A hoisted projection lies in memory already and is not stacked again.
        x_proj = None if plan.hoist else x_proj
        return new, (keep(carry, new, record.outputs), aux, x_proj)

    # Where projections are hoisted, one product per weight covers all steps of the
    # chunk.
    def one_chunk(carry, inputs):
        x, context = inputs
        if plan.hoist:
            x = plan.project(named_dot(weights), x)
        last, (kept, aux, x_proj) = plan.loop(
            one_step, carry, (x, context), reverse=plan.reverse, unroll=plan.unroll
        )
        return last, (kept, aux, x if plan.hoist else x_proj)

    last, (kept, aux, x_proj) = _over_chunks(
        one_chunk, carry, (x, context), plan.forward_chunk, plan.reverse
    )
    return last, kept, aux, x_proj


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
    if not left_over:
        # [T, ...] -> [T / size, size, ...], and back below.
        split = jax.tree.map(lambda a: a.reshape(-1, size, *a.shape[1:]), inputs)
        state, stacked = jax.lax.scan(function, state, split, reverse=reverse)
        return state, _join_chunks(stacked)

    # The chunks are read from the whole arrays. A part of these, split into chunks,
    # would be a copy.
    def of_chunk(state, first, length):
        def read(a):
            return jax.lax.dynamic_slice_in_dim(a, first, length)

        return function(state, jax.tree.map(read, inputs))

    def of_rest(state):
        return of_chunk(state, steps - left_over, left_over)

    if reverse:
        state, rest = of_rest(state)
    state, stacked = jax.lax.scan(
        functools.partial(of_chunk, length=size),
        state,
        jnp.arange(0, steps - left_over, size),
        reverse=reverse,
    )
    if not reverse:
        state, rest = of_rest(state)
    outputs = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b]), _join_chunks(stacked), rest
    )
    return state, outputs


def _join_chunks(tree):
    """Arrays [chunks, steps, ...] as [chunks * steps, ...]."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def lean_scan(plans, weights, params, carry, x, context) -> ScanResult:
    """Run the scan; its derivative keeps the carries and the products only.

    The arguments are those of `plain_scan`.
    """
    return plain_scan(plans, weights, params, carry, x, context)


class Residuals(NamedTuple):
    """Values of every step that the backward pass reads, each [T, ...].

    Attributes:
      carry: the carry before the step.
      x_proj: the projections; None where they are computed again.
      products: the products of the step; None where they are computed again.
    """

    carry: Any
    x_proj: Any
    products: Any


def _lean_forward(plans, weights, params, carry, x, context):
    """Run the scan; return its result and what the backward pass reads."""
    for leaf in jax.tree.leaves(carry):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"scan: the carry has an array of dtype {leaf.dtype}, which the "
                "memory-lean backward pass cannot differentiate; make it floating "
                "point, or use ScanOptions(backward='autodiff')"
            )

    # The plans differ in how the scan runs, and not in what it keeps.
    plan = plans.default

    def keep_carry_and_products(before, after, step_products):
        return before, None if plan.save == "carries" else step_products

    forward = functools.partial(_forward, keep=keep_carry_and_products)
    last, (before, step_products), aux, x_proj = platform.choose(
        forward, plans, weights, params, carry, x, context
    )
    kept = Residuals(before, x_proj if plan.save == "products" else None, step_products)
    # The outputs are derived from the carries, which are kept anyway. A second stack
    # would cost as much memory again.
    outputs = _outputs_after(plan, before, last)
    # Everything that the backward pass reads, besides the gradients of the result.
    saved = (weights, params, x, context, kept)
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


def _lean_backward(plans, saved, gradients: ScanResult):
    """Return the gradients of weights, params, carry and x."""
    # The last entry is that of `context`, which gets no gradient.
    return *platform.choose(_gradients, plans, saved, gradients), None


def _gradients(plan, saved, gradients):
    weights, params, x, context, kept = saved

    # The weights enter as arguments, so that the vjp below also returns their
    # gradients.
    def project(weights, x):
        record = named_products.differentiable_products(weights)
        return plan.project(record.dot, x)

    def one_chunk(state, inputs):
        d_carry, d_params, d_weights = state
        x, context, kept, d_outputs, d_aux = inputs
        kept = _complete(plan, weights, params, x, context, kept)
        d_carry, d_params, d_x_proj, d_products, inputs_of_products = _replay_steps(
            plan, weights, params, kept, context, d_outputs, d_aux, d_carry, d_params
        )
        # One large product for each weight, over all steps of the chunk.
        of_step = {
            name: products.weight_gradient(
                inputs_of_products[name].astype(d.dtype), d, weights[name]
            )
            for name, d in d_products.items()
        }
        # The projections do not depend on the carry, so their gradients need no loop.
        _, pull_projection = jax.vjp(project, weights, x)
        of_projection, d_x = pull_projection(d_x_proj)
        d_weights = _add_named(_add(d_weights, of_projection), of_step)
        return (d_carry, d_params, d_weights), d_x

    # The backward pass takes the chunks in the opposite order. Gradients are summed
    # over time in float32 at least.
    inputs = (x, context, kept, gradients.outputs, gradients.aux)
    (d_carry, d_params, d_weights), d_x = _over_chunks(
        one_chunk,
        (gradients.carry, _wide_zeros(params), _wide_zeros(weights)),
        inputs,
        plan.backward_chunk,
        not plan.reverse,
    )
    d_params = _cast_like(d_params, params)
    return _cast_like(d_weights, weights), d_params, d_carry, d_x


lean_scan.defvjp(_lean_forward, _lean_backward)


def _complete(plan, weights, params, x, context, kept):
    """Compute what was not kept of a chunk, by large products over all its steps."""
    x_proj = kept.x_proj
    if x_proj is None:
        x_proj = plan.project(named_dot(weights), x)
    outputs = kept.products
    if outputs is None:

        def products_of(carry, x_proj, context):
            # Run the step for its products alone. XLA drops the rest.
            record = named_products.compute_products(weights)
            plan.step(record.dot, params, carry, x_proj, context)
            return record.outputs

        # The steps are independent, because the carry before each of them is kept. So
        # `vmap` turns the products of the chunk into one large product per weight.
        outputs = jax.vmap(products_of)(kept.carry, x_proj, context)
    return Residuals(kept.carry, x_proj, outputs)


def _replay_steps(
    plan, weights, params, kept, context, d_outputs, d_aux, d_carry, d_params
):
    """Replay the steps of a chunk backwards.

    Returns:
      (gradient of the carry before the chunk, sum of the gradients of the parameters,
      gradients of x_proj, gradients of the products, inputs of the products), the
      latter three [T, ...].
    """
    # {product: number of the leaf of the carry that is its input}
    leaf_of_input: dict[str, int] = {}

    def one_step(d_carry, inputs):
        (x_proj, kept_products), (before, context, d_output, d_aux) = inputs

        def replay(params, carry, x_proj, probes):
            record = named_products.replay_products(weights, kept_products, probes)
            new, aux = plan.step(record.dot, params, carry, x_proj, context)
            # An input that is a leaf of the carry, such as h in W_h h, is read from the
            # kept carries later. The others are stacked.
            leaf_of_input.update(_leaves_among(record.inputs, carry))
            stacked = {
                name: v.astype(weights[name].dtype)
                for name, v in record.inputs.items()
                if name not in leaf_of_input
            }
            return (new, plan.output(new), aux), stacked

        # The gradient of a product leaves the replay as the gradient of its probe,
        # whose value is not used.
        probes = jax.tree.map(jnp.zeros_like, kept_products)
        _, pull, stacked_inputs = jax.vjp(
            replay, params, before, x_proj, probes, has_aux=True
        )
        # Backpropagate the gradients of the new carry, of what is shown of it and of
        # aux through the step.
        d_params, d_before, d_x_proj, d_products = pull((d_carry, d_output, d_aux))
        return d_before, ((d_x_proj, d_products), d_params, stacked_inputs)

    replaced = (kept.x_proj, kept.products)
    inputs = (kept.carry, context, d_outputs, d_aux)
    run = _in_place if plan.in_place else _at_once
    d_carry, d_params, (d_x_proj, d_products), stacked_inputs = run(
        plan, one_step, d_carry, d_params, replaced, inputs
    )
    # Such an input is already stacked over time [T, ...] in the kept carries.
    leaves = jax.tree.leaves(kept.carry)
    in_carry = {name: leaves[leaf] for name, leaf in leaf_of_input.items()}
    return d_carry, d_params, d_x_proj, d_products, stacked_inputs | in_carry


def _at_once(plan, one_step, carry, total, replaced, inputs):
    """Scan one_step against the direction of the forward pass.

    Args:
      plan: the static part of the scan.
      one_step: (carry, (values to replace, inputs)) -> (carry, (values in their place,
        what is added to the total, outputs)), each of one step.
      carry: the carry before the first step.
      total: pytree of sums so far.
      replaced: pytree of [T, ...].
      inputs: pytree of [T, ...].

    Returns:
      (last carry, total, values in place of `replaced` [T, ...], outputs [T, ...]).
    """

    def one_iteration(state, inputs):
        carry, total = state
        carry, (values, terms, outputs) = one_step(carry, inputs)
        if plan.all_in_loop:
            total, terms = _add(total, terms), None
        return (carry, total), (values, terms, outputs)

    (carry, total), (values, terms, outputs) = plan.loop(
        one_iteration,
        (carry, total),
        (replaced, inputs),
        reverse=not plan.reverse,
        unroll=plan.unroll,
    )
    if not plan.all_in_loop:
        total = jax.tree.map(
            lambda a, new: a + jnp.sum(new.astype(a.dtype), 0), total, terms
        )
    return carry, total, values, outputs


def _in_place(plan, one_step, carry, total, replaced, inputs):
    """Do as `_at_once` does, in one loop that writes the values over `replaced`."""
    reverse = not plan.reverse
    steps = jax.tree.leaves(inputs)[0].shape[0]
    first = steps - 1 if reverse else 0
    toward = -1 if reverse else 1

    def one_iteration(loop, inputs):
        # `here` holds the values of step t, which were read before this iteration.
        t, carry, total, stacks, here = loop
        carry, (values, terms, outputs) = one_step(carry, (here, inputs))
        # The values of the next step are read from the stacks after this step has
        # written to them. In any other order XLA's CPU backend copies whole stacks at
        # every step.
        stacks = _write(stacks, values, t)
        # After the last step the index stays inside the stacks.
        t = jnp.clip(t + toward, 0, steps - 1)
        return (t, carry, _add(total, terms), stacks, _read(stacks, t)), outputs

    t = jnp.asarray(first)
    (_, carry, total, stacks, _), outputs = plan.loop(
        one_iteration,
        (t, carry, total, replaced, _read(replaced, t)),
        inputs,
        reverse=reverse,
        unroll=plan.unroll,
    )
    return carry, total, stacks, outputs


def _leaves_among(inputs, carry):
    """{product: leaf} for the inputs of products that are leaves of the carry."""
    # Tracers are compared by identity: `h` that is passed on unchanged is the same
    # object.
    leaf_of = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(carry))}
    return {name: leaf_of[id(v)] for name, v in inputs.items() if id(v) in leaf_of}


def _read(tree, t):
    """The entries of step t of stacks [T, ...]."""

    def read(a):
        return jax.lax.dynamic_index_in_dim(
            a, t, keepdims=False, allow_negative_indices=False
        )

    return jax.tree.map(read, tree)


def _write(tree, values, t):
    """Write the values of step t to stacks [T, ...]."""

    def write(a, value):
        return jax.lax.dynamic_update_index_in_dim(
            a, value, t, 0, allow_negative_indices=False
        )

    return jax.tree.map(write, tree, values)


def _wide_zeros(tree):
    """Zeros like the arrays of a tree, in float32 at least, for sums over time."""
    return jax.tree.map(
        lambda a: jnp.zeros_like(a, jnp.promote_types(a.dtype, jnp.float32)), tree
    )


def _add(total, new):
    """Add two trees of gradients in the dtype of the first."""
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, new)


def _add_named(totals, new):
    """Add gradients of some names to the gradients of all names."""
    return totals | {name: _add(totals[name], d) for name, d in new.items()}


def _cast_like(tree, like):
    """Cast each array of a tree to the dtype of its counterpart."""
    return jax.tree.map(lambda a, b: a.astype(b.dtype), tree, like)
