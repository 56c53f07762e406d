"""The backward pass of `lnrepro.functional.scan`, which replays its steps.

For T steps and one product p_t = v_t W per step, the forward pass has kept the carry
before each step, and p_t:

    steps      for t = T-1 ... 0: replay step t with p_t read from memory, so that no
               product is computed again; take its derivative; write the gradient of
               p_t over p_t itself, since p_t is not needed any more; send the gradient
               of v_t = (gradient of p_t) W^T on to the replayed step; keep v_t, unless
               it is a part of the carry, such as h, or of x, which are kept already.
    after      the gradient of W as one large matrix product of v_t and the gradient of
               p_t over all T steps. Where v_t is made of x alone, its gradient is
               another.

It runs over chunks of steps, of each of which it first computes what was not kept:
`gradients_of`, `_missing`, `_replay`.

Shape letters: T time.
"""

import jax
import jax.numpy as jnp

from lnrepro.functional import products
from lnrepro.functional.arrays import floating, wide_dtype, with_floating
from lnrepro.functional.fast import in_place
from lnrepro.functional.products import NamedProducts
from lnrepro.functional.scan_options import over_chunks


def gradients_of(plan, arguments, kept, d_results):
    """Replay chunk after chunk, in the opposite order of the forward pass.

    Args:
      plan: the static part of the scan.
      arguments: those of the scan, with the carries before all steps [T, ...] in place
        of the first carry.
      kept: {name: product [T, ...]}.
      d_results: gradients of the results of the scan.

    Returns:
      The gradients of weights, params, the first carry, x, and the context. Those of
      params and the context are None where they are not floating point.
    """
    weights, params, before, x, context = arguments

    def one_chunk(state, inputs):
        d_carry, d_params, d_weights = state
        x, context, before, kept, d_outputs, d_aux = inputs
        steps = before, x, context
        known = kept | _missing(plan, weights, params, steps)
        chunk = known, (steps, (d_outputs, d_aux))
        (d_carry, d_params), (d_products, (d_steps, inputs_of_products)) = _replay(
            plan, weights, params, (d_carry, d_params), chunk
        )
        # One large product for each weight, over all steps of the chunk.
        of_chunk = {
            name: products.weight_gradient(inputs_of_products[name], d, weights[name])
            for name, d in d_products.items()
        }
        # A step need not use all weights.
        used = {name: d_weights[name] for name in of_chunk}
        return (d_carry, d_params, d_weights | _add(used, of_chunk)), d_steps

    # Gradients are summed over time in float32 at least.
    (d_carry, d_params, d_weights), (d_x, d_context) = over_chunks(
        one_chunk,
        (d_results.carry, _wide_zeros(floating(params)), _wide_zeros(weights)),
        (x, context, before, kept, d_results.outputs, d_results.aux),
        plan.form.backward_chunk,
        not plan.reverse,
    )
    d_weights, d_params = jax.tree.map(
        lambda d, like: d.astype(like.dtype),
        (d_weights, d_params),
        (weights, floating(params)),
    )
    return d_weights, d_params, d_carry, d_x, d_context


def _missing(plan, weights, params, steps):
    """Compute what was not kept of a chunk, by large products over all its steps."""
    if not plan.not_kept:
        return {}

    def products_of(*step):
        # Run the step for these products alone. XLA drops the rest. None of these needs
        # a product that was kept, since what follows from a kept one is kept too.
        record = NamedProducts(weights)
        plan.step(record.dot, params, *step)
        return {name: record.computed[name] for name in plan.not_kept}

    # The steps are independent, because the carry before each of them is kept. So
    # `vmap` turns the products of the chunk into one large product per weight.
    return jax.vmap(products_of)(*steps)


def _replay(plan, weights, params, state, chunk):
    """Replay the steps of a chunk backwards.

    Args:
      plan: the static part of the scan.
      weights, params: those of the scan.
      state: gradient of the carry after the chunk, and those of the parameters so far.
      chunk: ({name: product}, ((carry before, x, context), (gradient of the output,
        gradient of aux))), each [T, ...].

    Returns:
      (the state before the chunk, (gradients of the products, (gradients of x and of
      the context, inputs of the products))), the latter three [T, ...].
    """

    def one_step(state, inputs):
        d_carry, d_params = state
        known, ((before, x, context), (d_output, d_aux)) = inputs

        def replay(floats, carry, x, of_context, known):
            def read(name, v, weight):
                return products.replayed(v, weight, known[name])

            record = NamedProducts(weights, compute=read)
            new, aux = plan.step(
                record.dot,
                with_floating(params, floats),
                carry,
                x,
                with_floating(context, of_context),
            )
            inputs_of_products = {
                name: v.astype(weights[name].dtype) for name, v in record.inputs.items()
            }
            return (new, plan.output(new), aux), inputs_of_products

        # The gradient of a product leaves the replay as that of its known value.
        _, pull, inputs_of_products = jax.vjp(
            replay,
            floating(params),
            before,
            x,
            floating(context),
            known,
            has_aux=True,
        )
        # Backpropagate the gradients of the new carry, of what is shown of it and of
        # aux through the step.
        of_step, d_before, d_x, d_context, d_products = pull((d_carry, d_output, d_aux))
        state = d_before, _add(d_params, of_step)
        return state, (d_products, ((d_x, d_context), inputs_of_products))

    loop = in_place.scan if plan.form.in_place else plan.form.loop
    return loop(
        one_step,
        state,
        chunk,
        reverse=not plan.reverse,
        unroll=plan.options.unroll,
    )


def _wide_zeros(tree):
    """Zeros like the arrays of a tree, in float32 at least, for sums over time."""
    return jax.tree.map(lambda a: jnp.zeros_like(a, wide_dtype(a.dtype)), tree)


def _add(total, new):
    """Add two trees of gradients in the dtype of the first."""
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, new)
