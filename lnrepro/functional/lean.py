"""A cell's scan over inputs that are checked and ready: forwards, by plain autodiff, and with the memory-lean backward pass.

That pass keeps the carries and projections, nothing else. It runs the sequence backwards with jax.vjp of the cell's
pointwise step, writes each step's gradients of the projections over the projections themselves, and then forms the
gradients of both kernels as one large matrix product each. Plain autodiff keeps about thirty arrays a step for a
layer-normalised LSTM.
"""

import functools
import math

import jax
import jax.numpy as jnp


class How(tuple):
    """Static options of one unrolling: (cell, reverse, all_carries, save, chunks, unroll)."""

    def __new__(cls, *fields):
        """The fields in that order; not a pytree, as plain tuples are."""
        return super().__new__(cls, fields)


def _product_gradients(kernel, x, d):
    """Gradients of the product x @ kernel for its cotangent d: with respect to the kernel, and to x."""
    if any(jax.typeof(x).sharding.spec):  # an Explicit mesh: JAX knows which axes it may merge
        return jax.vjp(jnp.matmul, x, kernel)[1](d)[::-1]
    rows = [a.reshape(-1, a.shape[-1]) for a in (x, d)]  # so written, XLA's CPU backend needs no transposed copies
    return jax.lax.dot_general(*rows, (((0,), (0,)), ((), ()))), d @ kernel.T


def _back(kernel, d):
    """d @ kernel.T, the gradient that a step's product sends to its input.

    XLA's CPU backend multiplies few rows with a large kernel up to a third faster when the kernel stands first; the
    barrier keeps it from writing the product the other way around again. Other backends choose for themselves.
    """
    if jax.default_backend() != "cpu" or any(jax.typeof(d).sharding.spec):
        return d @ kernel.T
    product = jax.lax.dot_general(kernel, d.reshape(-1, d.shape[-1]), (((1,), (1,)), ((), ())))
    return jax.lax.optimization_barrier(product).T.reshape(*d.shape[:-1], kernel.shape[0])


def _point(cell, local, start, prev, px, ph, tick):
    here = where(None if tick.reset is None else ~tick.reset, prev, start)
    new, aside = cell.pointwise(local, here, px, ph, tick)
    return where(tick.mask, new, here), aside


def _reads(cell, start, prev, tick):
    return cell.reads(where(None if tick.reset is None else ~tick.reset, prev, start), tick)


def _forward(how, keep, local, kernels, start, x, ticks, constants, wrap=lambda f: f):
    """Scan over chunks of steps; `keep(carry before, carry after, ph)` says what is stacked of every step.

    Returns (last carry, (what was kept, what the cell puts aside), the chunks' input projections).
    """
    cell, reverse, _, save, ((size, hoist), _), unroll = how

    def chunk(carry, xs):
        x, ticks = xs

        def one(prev, xs):
            x, tick = xs
            tick = tick._replace(constants=constants)
            px = x if hoist else x @ kernels.x
            ph = _reads(cell, start, prev, tick) @ kernels.h
            new, aside = _point(cell, local, start, prev, px, ph, tick)
            return new, (keep(prev, new, ph), aside, None if hoist or save != "projections" else px)

        x = x @ kernels.x if hoist else x
        last, (kept, aside, px) = jax.lax.scan(one, carry, (x, ticks), reverse=reverse, unroll=unroll)
        return last, ((kept, aside), x if hoist and save == "projections" else px)

    if size == x.shape[0]:
        last, (kept, px) = wrap(chunk)(start, (x, ticks))
    else:
        last, stacked = jax.lax.scan(wrap(chunk), start, _split((x, ticks), size), reverse=reverse)
        kept, px = _join(stacked)
    return last, kept, px


def plain(how, remat, *args):
    """(last carry, carries or outputs of all steps, what the cell puts aside), for JAX's own derivatives."""
    keep = (lambda prev, new, ph: new) if how[2] else (lambda prev, new, ph: how[0].output(new))
    forward, backward = how[4]
    chunks = ((backward, True) if remat else forward, backward)  # as the lean backward pass makes things again
    how = How(*how[:3], "carries", chunks, how[5])  # what is not returned here, JAX keeps as it likes
    last, (ys, aside), _ = _forward(how, keep, *args, wrap=jax.checkpoint if remat else lambda f: f)
    return last, ys, aside


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def lean(how, local, kernels, start, x, ticks, constants):
    """The same with the memory-lean backward pass."""
    return plain(how, False, local, kernels, start, x, ticks, constants)


def _lean_forward(how, local, kernels, start, x, ticks, constants):
    cell, reverse, all_carries, save, _, _ = how

    def keep(prev, new, ph):  # the carry before a step: what its backward pass reads, without a shifted copy
        return prev, None if save == "carries" else ph

    last, (kept, aside), px = _forward(how, keep, local, kernels, start, x, ticks, constants)
    shown = (lambda carry: carry) if all_carries else cell.output
    ys = _after(shown(kept[0]), shown(last), reverse)
    return (last, ys, aside), (local, kernels, start, x, ticks, constants, (*kept, px))


def _lean_backward(how, saved, cotangents):
    cell, reverse, all_carries, save, (_, size), unroll = how
    local, kernels, start, x, ticks, constants, (before, ph, px) = saved
    dlast, dys, _ = cotangents
    wide = functools.partial(jax.tree.map, lambda a: jnp.zeros_like(a, jnp.promote_types(a.dtype, jnp.float32)))
    add = functools.partial(jax.tree.map, lambda total, new: total + new.astype(total.dtype))

    # Of few rows, one more pass at every step to sum the gradients of gains and biases over them costs more than to add
    # them up row by row and to sum once.
    batch = x.shape[1:-1]
    known = all(isinstance(n, int) for n in batch) and not any(jax.typeof(x).sharding.spec)
    batch = batch if cell.rowwise and known and math.prod(batch) <= 16 else ()
    by_row = functools.partial(jax.tree.map, lambda a: jnp.broadcast_to(a, batch + a.shape) if a.ndim == 1 else a)

    toward = 1 if reverse else -1  # where the next step of this pass lies

    def chunk(state, piece):
        dcarry, dstart, dlocal, dkernels = state
        x, ticks, before, ph, px, dys = piece
        h = _reads(cell, start, before, ticks._replace(constants=constants))
        px = x @ kernels.x if px is None else px
        ph = h @ kernels.h if ph is None else ph

        def one(state, xs):
            t, dcarry, dstart, dlocal, stacks, here = state
            prev, dy, tick = xs
            tick = tick._replace(constants=constants)
            dcarry = add(dcarry, dy if all_carries else jax.vjp(cell.output, prev)[1](dy)[0])
            back = jax.vjp(lambda *a: _point(cell, *a, tick)[0], by_row(local), start, prev, *here)[1]
            dl, ds, dprev, *d = back(dcarry)
            dh = _back(kernels.h, d[1])
            more_start, more_prev = jax.vjp(lambda *a: _reads(cell, *a, tick), start, prev)[1](dh)
            dstart = dstart if tick.reset is None else add(add(dstart, ds), more_start)
            # The next step's projections are read from the stacks after this step has written to them: in any other
            # order XLA may copy both stacks whole at every step.
            stacks = jax.tree.map(
                lambda a, new: jax.lax.dynamic_update_index_in_dim(a, new, t, 0, allow_negative_indices=False),
                stacks,
                tuple(d),
            )
            t = t + toward
            return (t, add(dprev, more_prev), dstart, add(dlocal, dl), stacks, _at(stacks, t)), None

        t = jnp.asarray(0 if reverse else x.shape[0] - 1)
        begin = (t, dcarry, dstart, dlocal, (px, ph), _at((px, ph), t))
        (_, dcarry, dstart, dlocal, (dpx, dph), _), _ = jax.lax.scan(
            one, begin, (before, dys, ticks), reverse=not reverse, unroll=unroll
        )
        dk_x, dx = _product_gradients(kernels.x, x, dpx)
        dk_h, _ = _product_gradients(kernels.h, h, dph)
        dk = kernels._replace(x=dk_x, h=dk_h)
        return (dcarry, dstart, dlocal, add(dkernels, dk)), dx

    state = (dlast, wide(start), wide(by_row(local)), wide(kernels))
    if size == x.shape[0] or save == "projections":  # a chunk bounds what is made again, and nothing is
        (dcarry, dstart, dlocal, dkernels), dx = chunk(state, (x, ticks, before, ph, px, dys))
    else:
        pieces = _split((x, ticks, before, ph, px, dys), size)
        (dcarry, dstart, dlocal, dkernels), dx = jax.lax.scan(chunk, state, pieces, reverse=not reverse)
        dx = _join(dx)
    dlocal = jax.tree.map(lambda d, a: d.sum(tuple(range(d.ndim - a.ndim))), dlocal, local)
    like = functools.partial(jax.tree.map, lambda a, b: a.astype(b.dtype))
    return like(dlocal, local), like(dkernels, kernels), like(add(dstart, dcarry), start), dx, None, None


lean.defvjp(_lean_forward, _lean_backward)


def _at(tree, t):
    return jax.tree.map(
        lambda a: jax.lax.dynamic_index_in_dim(a, t, keepdims=False, allow_negative_indices=False), tree
    )


def _after(before, last, reverse):
    """The carries after each step, from those before it and the one after the last."""
    if reverse:
        return jax.tree.map(lambda b, a: jnp.concatenate([a[None], b[:-1]]), before, last)
    return jax.tree.map(lambda b, a: jnp.concatenate([b[1:], a[None]]), before, last)


def _split(tree, size):
    return jax.tree.map(lambda a: a.reshape(a.shape[0] // size, size, *a.shape[1:]), tree)


def _join(tree):
    return jax.tree.map(lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:]), tree)


def chunks_of(x, asked):
    """((steps per chunk forwards, whether one product projects a chunk's inputs before its steps), steps per chunk
    backwards).

    Forwards, on a CPU, it is faster to take all steps as one chunk and to project each step's input in that step
    (experiments/results/cells.md). Elsewhere, and where the backward pass makes projections again, a chunk has enough
    rows for a product with the kernels to run at full speed, and few enough that what it makes stays small.
    """
    steps = x.shape[0]
    if asked is not None:
        if asked < 1 or not isinstance(steps, int) or steps % asked:
            raise ValueError(f"unroll: chunk={asked} must divide the number of steps, {steps}")
        return (asked, True), asked
    size = steps
    if all(isinstance(n, int) for n in x.shape) and steps:  # not the symbolic sizes of jax.export
        rows = math.prod(x.shape[1:-1])
        enough = [k for k in range(1, steps + 1) if steps % k == 0 and k * rows >= 512 and k >= min(steps, 4)]
        size = enough[0] if enough and enough[0] * 2 <= steps else steps
    return ((steps, False) if jax.default_backend() == "cpu" else (size, True)), size


def where(keep, new, old):
    """Trees chosen by booleans (...) that lack their last axes; keep None is True everywhere."""
    if keep is None:
        return new
    return jax.tree.map(lambda n, o: jnp.where(keep.reshape(keep.shape + (1,) * (n.ndim - keep.ndim)), n, o), new, old)
