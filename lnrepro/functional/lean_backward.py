"""The forward pass of a scan, and its memory-lean backward pass.

`lnrepro.functional.scan` explains both in a picture.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional import named_products
from lnrepro.functional.fast import products
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


class ScanResult(NamedTuple):
    """What a scan returns.

    Attributes:
      carry: the carry after the last step.
      outputs: what `output` returned of the carry after each step, [T, ...].
      aux: what the steps returned beside the carry, [T, ...].
    """

    carry: Any
    outputs: Any
    aux: Any


def plain_scan(plan, weights, params, carry, x, context) -> ScanResult:
    """Run the scan for JAX's own derivatives.

    Args:
      plan: the static part of the scan.
      weights: {name: weight}, as given to `scan`.
      params: pytree that every step reads.
      carry: pytree, the carry before the first step.
      x: pytree of [T, ...], the inputs.
      context: pytree of [T, ...] that gets no gradient, or None.
    """

    def keep_output(before, after, step_products):
        return plan.output(after)

    last, outputs, aux, _ = _forward(
        plan, keep_output, weights, params, carry, x, context
    )
    return ScanResult(last, outputs, aux)


def _forward(plan, keep, weights, params, carry, x, context):
    """Scan over chunks of steps.

    Args:
      plan: the static part of the scan.
      keep: (carry before, carry after, {name: product}) -> what is stacked of a step.
      weights: as for `plain_scan`, as are the other arguments.
      params: see `plain_scan`.
      carry: see `plain_scan`.
      x: see `plain_scan`.
      context: see `plain_scan`.

    Returns:
      (last carry, what was kept [T, ...], aux [T, ...], projections [T, ...]).
    """

    # `record` notes the product of every name, which `keep` may stack for the backward
    # pass.
    def one_step(carry, inputs):
        x, context = inputs
        x_proj = x if plan.hoist else plan.project(named_dot(weights), x)
        record = named_products.computed(weights)
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
        last, (kept, aux, x_proj) = jax.lax.scan(
            one_step, carry, (x, context), reverse=plan.reverse, unroll=plan.unroll
        )
        return last, (kept, aux, x if plan.hoist else x_proj)

    last, (kept, aux, x_proj) = _over_chunks(
        one_chunk, carry, (x, context), plan.forward_chunk, plan.reverse
    )
    return last, kept, aux, x_proj


def _over_chunks(function, state, inputs, size, reverse):
    """`jax.lax.scan` of a function of whole chunks of `size` steps.

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
    # [T, ...] -> [T / size, size, ...], and back below.
    split = jax.tree.map(lambda a: a.reshape(-1, size, *a.shape[1:]), inputs)
    state, stacked = jax.lax.scan(function, state, split, reverse=reverse)
    return state, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), stacked)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def lean_scan(plan, weights, params, carry, x, context) -> ScanResult:
    """Run the scan; its derivative keeps the carries and the products only.

    The arguments are those of `plain_scan`.
    """
    return plain_scan(plan, weights, params, carry, x, context)


class Kept(NamedTuple):
    """What the backward pass reads of every step, each [T, ...].

    Attributes:
      carry: the carry before the step.
      x_proj: the projections; None where they are computed again.
      products: the products of the step; None where they are computed again.
    """

    carry: Any
    x_proj: Any
    products: Any


def _lean_forward(plan, weights, params, carry, x, context):
    """Run the scan; return its result and what the backward pass reads."""
    for leaf in jax.tree.leaves(carry):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"scan: the carry has an array of dtype {leaf.dtype}, which the "
                "memory-lean backward pass cannot differentiate; make it floating "
                "point, or use ScanOptions(backward='autodiff')"
            )

    def keep_carry_and_products(before, after, step_products):
        return before, None if plan.save == "carries" else step_products

    last, (before, step_products), aux, x_proj = _forward(
        plan, keep_carry_and_products, weights, params, carry, x, context
    )
    kept = Kept(before, x_proj if plan.save == "products" else None, step_products)
    # The outputs are derived from the carries, which are kept anyway. A second stack
    # would cost as much memory again.
    outputs = _outputs_after(plan, before, last)
    # Everything that the backward pass reads, besides the gradients of the result.
    saved = (weights, params, last, x, context, kept)
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


class _State(NamedTuple):
    """The state of the backward loop over steps.

    Attributes:
      d_carry: gradient of the carry after the step.
      after: the carry after the step.
      d_params: gradient of the parameters, summed over the steps so far.
    """

    d_carry: Any
    after: Any
    d_params: Any


def _lean_backward(plan, saved, gradients: ScanResult):
    """Return the gradients of weights, params, carry and x."""
    weights, params, last, x, context, kept = saved

    # The weights enter as arguments, so that the vjp below also returns their
    # gradients.
    def project(weights, x):
        record = named_products.with_own_derivative(weights)
        return plan.project(record.dot, x)

    def one_chunk(state, inputs):
        state, d_weights = state
        x, context, kept, d_outputs, d_aux = inputs
        kept = _complete(plan, weights, params, x, context, kept)
        state, d_x_proj, d_products, inputs_of_products = _replay_steps(
            plan, weights, params, kept, context, d_outputs, d_aux, state
        )
        # One large product for each weight, over all steps of the chunk.
        of_step = {
            name: products.weight_gradient(inputs_of_products[name], d, weights[name])
            for name, d in d_products.items()
        }
        # The projections do not depend on the carry, so their gradients need no loop.
        _, pull_projection = jax.vjp(project, weights, x)
        of_projection, d_x = pull_projection(d_x_proj)
        d_weights = _add_named(_add(d_weights, of_projection), of_step)
        return (state, d_weights), d_x

    # The backward pass starts from the carry after the last step and takes the chunks
    # in the opposite order. Gradients are summed over time in float32 at least.
    state = _State(gradients.carry, last, _wide_zeros(params))
    inputs = (x, context, kept, gradients.outputs, gradients.aux)
    (state, d_weights), d_x = _over_chunks(
        one_chunk,
        (state, _wide_zeros(weights)),
        inputs,
        plan.backward_chunk,
        not plan.reverse,
    )
    d_params = _cast_like(state.d_params, params)
    # The last entry is that of `context`, which gets no gradient.
    return _cast_like(d_weights, weights), d_params, state.d_carry, d_x, None


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
            record = named_products.computed(weights)
            plan.step(record.dot, params, carry, x_proj, context)
            return record.outputs

        # The steps are independent, because the carry before each of them is kept. So
        # `vmap` turns the products of the chunk into one large product per weight.
        outputs = jax.vmap(products_of)(kept.carry, x_proj, context)
    return Kept(kept.carry, x_proj, outputs)


def _replay_steps(plan, weights, params, kept, context, d_outputs, d_aux, state):
    """Replay the steps of a chunk backwards.

    Returns:
      (state, gradients of x_proj, gradients of the products, inputs of the products),
      the latter three [T, ...]. Gradients are written over x_proj and the products.
    """
    # {product: number of the leaf of the carry that is its input}
    leaf_of_input: dict[str, int] = {}
    steps = jax.tree.leaves(kept.carry)[0].shape[0]
    # The replay runs against the direction of the forward pass.
    first = 0 if plan.reverse else steps - 1
    toward = 1 if plan.reverse else -1

    def one_step(loop, inputs):
        # `here` holds x_proj and the products of step t, which were read before this
        # iteration.
        t, state, stacks, here = loop
        before, context, d_output, d_aux = inputs
        x_proj, kept_products = here

        def replay(params, carry, x_proj, probes):
            record = named_products.replayed(weights, kept_products, probes)
            result = plan.step(record.dot, params, carry, x_proj, context)
            # An input that is a leaf of the carry, such as h in W_h h, is read from the
            # kept carries later. The loop stacks the others.
            leaf_of_input.update(_leaves_among(record.inputs, carry))
            stacked = {n: v for n, v in record.inputs.items() if n not in leaf_of_input}
            return result, stacked

        # The gradient of the carry after this step, and through it of the step.
        _, pull_output = jax.vjp(plan.output, state.after)
        d_carry = _add(state.d_carry, pull_output(d_output)[0])
        # The gradient of a product leaves the replay as the gradient of its probe,
        # whose value is not used.
        probes = jax.tree.map(jnp.zeros_like, kept_products)
        _, pull, stacked_inputs = jax.vjp(
            replay, params, before, x_proj, probes, has_aux=True
        )
        # Backpropagate the gradients of the new carry and of aux through the step.
        d_params, d_carry, d_x_proj, d_products = pull((d_carry, d_aux))
        # The products of the next step are read from the stacks after this step has
        # written to them. In any other order XLA's CPU backend copies both stacks
        # whole at every step.
        stacks = _write(stacks, (d_x_proj, d_products), t)
        # After the last step the index stays inside the stacks.
        t = jnp.clip(t + toward, 0, steps - 1)
        state = _State(d_carry, before, _add(state.d_params, d_params))
        # The carry before this step is the carry after the step that is replayed next.
        return (t, state, stacks, _read(stacks, t)), stacked_inputs

    # The loop carries the stacks and writes each step's gradients over its products, so
    # that gradients need no memory of their own.
    stacks = (kept.x_proj, kept.products)
    t = jnp.asarray(first)
    loop = (t, state, stacks, _read(stacks, t))
    inputs = (kept.carry, context, d_outputs, d_aux)
    (_, state, (d_x_proj, d_products), _), stacked_inputs = jax.lax.scan(
        one_step, loop, inputs, reverse=not plan.reverse, unroll=plan.unroll
    )
    # Such an input is already stacked over time [T, ...] in the kept carries.
    leaves = jax.tree.leaves(kept.carry)
    in_carry = {name: leaves[leaf] for name, leaf in leaf_of_input.items()}
    return state, d_x_proj, d_products, stacked_inputs | in_carry


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
