"""A cell over time: one tick, or a whole sequence with masks, lengths, resets and either direction."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.cells import Carry, Cell, Params, Tick
from lnrepro.functional.lean import How, chunks_of, lean, plain, where

_NO_TICK = Tick()


def initial_carry(cell: Cell, params: Params, like: jax.Array) -> Carry:
    """The carry before the first step for inputs like (..., D): zeros, or the learned h0 and c0, with like's batch
    axes, sharding and dtype."""
    return cell.carry(params, like)


def step(cell: Cell, params: Params, carry: Carry, x: jax.Array, tick: Tick = _NO_TICK) -> tuple[Carry, jax.Array]:
    """One tick: (carry, x (..., D)) -> (carry, y (..., H)), equal to one step of `unroll`.

    `tick` may hold a key (zoneout, dropout), constants, a mask (...) or batch norm's statistics. In a loop of your
    own, prepare the kernels once with `kernels = cell.kernels(params)` and call `advance`.
    """
    if hasattr(cell, "layers"):
        return cell.step(params, carry, x, tick)
    x, params, _ = _typed(cell, params, x)
    carry = _checked_carry(cell, params, carry, x)
    (new, _), old = advance(cell, params, cell.kernels(params), carry, x, tick), carry
    new = where(tick.mask, new, old)
    return new, _zeroed(tick.mask, cell.output(new))


def advance(
    cell: Cell, params: Params, kernels: Any, carry: Carry, x: jax.Array, tick: Tick = _NO_TICK
) -> tuple[Carry, Any]:
    """One unmasked step with prepared kernels: (carry, aside); for scans written by hand, where `cell.output(carry)`
    is the output."""
    if cell.enters is not None:
        x = cell.enters(x, tick.constants)
    return cell.pointwise(cell.local(params), carry, x @ kernels.x, cell.reads(carry, tick) @ kernels.h, tick)


def unroll(
    cell: Cell,
    params: Params,
    x: jax.Array,
    *,
    carry: Carry | None = None,
    lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
    resets: jax.Array | None = None,
    reverse: bool = False,
    keep_order: bool = True,
    time_major: bool = False,
    all_carries: bool = False,
    key: jax.Array | None = None,
    constants: Any = None,
    statistics: Any = None,
    with_statistics: bool = False,
    backward: str = "lean",
    save: str = "projections",
    chunk: int | None = None,
    remat: bool = False,
    unroll: int = 1,
) -> tuple:
    """Run a cell over x (..., T, D): returns (last carry, y (..., T, H)), and the carries of all steps where
    `all_carries`.

    Args:
      cell: of lstm, gru, rnn, or a wrapped one, or a stack or bidirectional pair.
      params: its parameters; they and x are brought to one dtype.
      x: any number of leading batch axes, also none.
      carry: the carry before the first step; default `initial_carry`.
      lengths: (...) integers in [0, T]; steps at and beyond a length are padding. A sequence of length 0 returns its
        initial carry.
      mask: (..., T), False where a step is padding, anywhere (left padding, holes). Padded steps pass the carry on,
        and their y is zero.
      resets: (..., T), True where the carry starts anew before that step (packed segments).
      reverse: run from the end to the start; padding is skipped wherever it is.
      keep_order: with reverse, whether y stands in x's order, or in the order of processing (with `lengths`, each
        sequence's own, padding last).
      time_major: x is (T, ..., D), y (T, ..., H), mask and resets (T, ...).
      all_carries: return the carries as well, each leaf (..., T, H).
      key: for zoneout and dropout; None means test time.
      constants: what every step sees as `Tick.constants`, such as a text that a wrapped cell reads, in place of what
        `cell.sample` would draw; no gradient flows to it.
      statistics: batch norm's population statistics {site: (mean, var)}, each (T_max, n); step t uses row min(t, T_max
        - 1). None means the batch's own.
      with_statistics: return ({site: (mean, var)}, seen) last: the batch's statistics per step taken, each (T, n), and
        seen (T,), False at a step where every row was padding. See `track`.
      backward: "lean", or "autodiff" for plain differentiation, which forward mode needs (jvp, jacfwd; through an outer
        jit it is JAX that says "can't apply forward-mode autodiff (jvp) to a custom_vjp function"). Derivatives of the
        gradient, in either mode, work with both; in "lean", reverse mode of it takes time that grows with T squared. No
        gradient flows to or from batch norm's statistics in "lean".
      save: what the lean backward keeps beside the carries: both "projections" (the default), the "recurrent" ones, or
        nothing ("carries"). Each less takes less memory and one more product.
      chunk: steps per chunk, a divisor of T: one product projects a chunk's inputs, and what `save` did not keep is made
        again a chunk at a time. Default: as many as a large matrix product needs, and forwards on a CPU all steps, each
        projecting its own input.
      remat: with backward="autodiff", rematerialise chunk by chunk (jax.checkpoint).
      unroll: steps per loop iteration, as in jax.lax.scan.

    Raises:
      TypeError: integer inputs, a carry of another dtype. ValueError: a shape that does not fit, lengths outside [0,
        T] (where they are known), unknown options.
    """
    if backward not in ("lean", "autodiff"):
        raise ValueError(f"unroll: backward={backward!r}; choose 'lean' or 'autodiff'")
    if save not in ("projections", "recurrent", "carries"):
        raise ValueError(f"unroll: save={save!r}; choose 'projections', 'recurrent' or 'carries'")
    options = {k: v for k, v in locals().items() if k in ("backward", "save", "chunk", "remat", "unroll", "time_major")}
    if hasattr(cell, "layers"):
        if all_carries or statistics is not None or with_statistics or constants is not None:
            raise ValueError(
                "unroll: all_carries, constants and statistics are for single cells; unroll the layers one by one"
            )
        return cell.unroll(
            params,
            x,
            carry=carry,
            lengths=lengths,
            mask=mask,
            resets=resets,
            reverse=reverse,
            keep_order=keep_order,
            key=key,
            **options,
        )

    x, params, kernels = _typed(cell, params, x)
    if x.ndim < 2:
        raise ValueError(f"unroll: x has shape {x.shape}; it needs a time and a feature axis, (..., T, D)")
    x = x if time_major else jnp.moveaxis(x, -2, 0)
    steps, batch = x.shape[0], x.shape[1:-1]
    mask = _mask(x, lengths, mask, time_major)
    resets = _over_time("resets", resets, x, time_major)
    front = reverse and not keep_order and lengths is not None
    if (cell.sites or front) and reverse and lengths is not None:  # step t of every sequence at the same tick
        x, reverse, flipped = flip(x, lengths), False, True
        resets = None if resets is None else flip(resets, lengths)
    else:
        flipped = False
    if mask is not None:  # padding may hold anything, even NaN
        x = jnp.where(mask[..., None], x, jnp.zeros((), x.dtype))
    if key is not None:
        key, drawn = jax.random.split(key)
        if constants is None and cell.sample is not None:
            constants = cell.sample(drawn, x[0])
    constants = jax.lax.stop_gradient(constants)
    if cell.enters is not None:
        x = cell.enters(x, constants)
    like = x[0] if steps else x.sum(0)
    carry = cell.carry(params, like) if carry is None else _checked_carry(cell, params, carry, like)
    index = jnp.arange(steps)
    index = index[::-1] if reverse else index
    if statistics is not None:
        if not cell.sites:
            raise ValueError("unroll: statistics are for cells with norm='batch'")
        statistics = jax.tree.map(lambda s: s[jnp.minimum(index, s.shape[0] - 1)], statistics)
    ticks = Tick(index, mask, resets, None if key is None else jax.random.split(key, steps), None, None, statistics)
    x, kernels, local, carry = _varying_like(x, (x, kernels, cell.local(params), carry), params)
    how = How(cell, reverse, all_carries, save, chunks_of(x, chunk), unroll)
    if with_statistics and not cell.sites:
        raise ValueError("unroll: with_statistics is for cells with norm='batch'")
    if backward == "autodiff" or steps == 0:
        run = functools.partial(plain, how, remat)
    else:
        run = functools.partial(lean, how)
    try:
        last, ys, aside = run(local, kernels, carry, x, ticks, constants)
    except TypeError as error:
        if "forward-mode" in str(error):
            raise TypeError(
                "unroll: the memory-lean backward pass has no forward-mode derivative (jvp, jacfwd, hessian); "
                "pass backward='autodiff'"
            ) from error
        raise
    y = _zeroed(mask, cell.output(ys) if all_carries else ys)
    if flipped and keep_order:
        y, ys = flip(y, lengths), flip(ys, lengths) if all_carries else ys
    elif reverse and not keep_order:
        y, ys = jnp.flip(y, 0), jax.tree.map(lambda a: jnp.flip(a, 0), ys)
    back = (lambda a: a) if time_major else (lambda a: jnp.moveaxis(a, 0, len(batch)))
    out = (last, back(y)) + ((jax.tree.map(back, ys),) if all_carries else ())
    if not with_statistics:
        return out
    seen = jnp.ones((steps,), bool) if mask is None else mask.any(tuple(range(1, mask.ndim)))
    order = (lambda a: jnp.flip(a, 0)) if reverse else (lambda a: a)  # row t belongs to the t-th step taken
    return (*out, jax.tree.map(order, (aside, seen)))


def track(running: Any, batch: tuple[Any, jax.Array], momentum: float) -> Any:
    """Running batch-norm statistics {site: (mean, var)}, each (T_max, n), one batch on; `batch` is what
    `unroll(with_statistics=True)` returned.

    Steps beyond T_max, and steps where every row was padding, leave no trace; no gradient flows.
    """
    new, seen = batch

    def move(old, fresh):
        n = min(old.shape[0], fresh.shape[0])
        moved = momentum * old[:n] + (1 - momentum) * jax.lax.stop_gradient(fresh[:n]).astype(old.dtype)
        return old.at[:n].set(jnp.where(seen[:n, None], moved, old[:n]))

    return jax.tree.map(move, running, new)


def flip(sequences: Any, lengths: jax.Array | None) -> Any:
    """Reverse time-major sequences (T, ..., n), each within its own length (...), padding staying at the end; lengths
    None reverses all of time."""
    if lengths is None:
        return jax.tree.map(lambda a: jnp.flip(a, 0), sequences)

    def one(a):
        t = jnp.arange(a.shape[0]).reshape(-1, *[1] * jnp.ndim(lengths))
        t = jnp.where(t < lengths, lengths - 1 - t, t)
        t = t.reshape(t.shape + (1,) * (a.ndim - t.ndim))
        return jnp.take_along_axis(
            a, jnp.broadcast_to(t, t.shape[: 1 + jnp.ndim(lengths)] + a.shape[1 + jnp.ndim(lengths) :]), 0
        )

    return jax.tree.map(one, sequences)


def _zeroed(mask, y):
    return y if mask is None else jnp.where(mask[..., None], y, jnp.zeros((), y.dtype))


def _typed(cell, params, x):
    """x, params and kernels in one dtype; refuses integers and a feature size that is not the kernel's."""
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"recurrent cell: inputs have dtype {x.dtype}; they must be floating point (embed or convert them first)"
        )
    if "w_x" not in params:
        raise ValueError(
            f"recurrent cell: params has no 'w_x', only {sorted(params)}; make them with init(cell, key, features_in)"
        )
    if x.ndim < 1 or x.shape[-1] != params["w_x"].shape[0]:
        raise ValueError(
            f"recurrent cell: inputs {x.shape} have {x.shape[-1]} features, but w_x takes {params['w_x'].shape[0]}"
        )
    dtype = jnp.promote_types(x.dtype, params["w_x"].dtype)
    kernels = jax.tree.map(lambda a: a.astype(dtype), cell.kernels(params))  # prepared at the parameters' precision
    return x.astype(dtype), params, kernels


def _checked_carry(cell, params, carry, like):
    want = jax.eval_shape(cell.carry, params, like)
    if jax.tree.structure(want) != jax.tree.structure(carry):
        raise ValueError(
            f"recurrent cell: carry is {jax.tree.structure(carry)}, "
            f"but this cell's is {jax.tree.structure(want)}: (c, h) for an LSTM, else h"
        )
    for given, leaf in zip(jax.tree.leaves(carry), jax.tree.leaves(want), strict=True):
        if jnp.shape(given) != leaf.shape:
            raise ValueError(
                f"recurrent cell: carry has shape {jnp.shape(given)}, but inputs {like.shape} ask for {leaf.shape}"
            )
        if jnp.result_type(given) != leaf.dtype:
            raise TypeError(
                f"recurrent cell: carry has dtype {jnp.result_type(given)}, "
                f"but the computation runs in {leaf.dtype}; cast it"
            )
    return jax.tree.map(jnp.asarray, carry)


def _over_time(name, value, x, time_major):
    """A (..., T) array as booleans (T, ...), its shape checked against x (T, ..., D)."""
    if value is None:
        return None
    value = jnp.asarray(value)
    want = x.shape[:-1] if time_major else (*x.shape[1:-1], x.shape[0])
    if value.shape != want:
        raise ValueError(f"unroll: {name} has shape {value.shape}; these inputs ask for {want}")
    value = value if value.dtype == bool else value != 0
    return value if time_major else jnp.moveaxis(value, -1, 0)


def _mask(x, lengths, mask, time_major):
    mask = _over_time("mask", mask, x, time_major)
    if lengths is None:
        return mask
    lengths = jnp.asarray(lengths)
    if lengths.shape != x.shape[1:-1]:
        raise ValueError(
            f"unroll: lengths have shape {lengths.shape}; these inputs ask for {x.shape[1:-1]}, one per sequence"
        )
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise TypeError(f"unroll: lengths have dtype {lengths.dtype}; they must be integers")
    if not isinstance(lengths, jax.core.Tracer) and isinstance(x.shape[0], int) and lengths.size:
        with jax.ensure_compile_time_eval():
            least, most = int(lengths.min()), int(lengths.max())
        if least < 0 or most > x.shape[0]:
            raise ValueError(f"unroll: lengths {least}..{most} must lie in 0..{x.shape[0]}, the number of steps")
    valid = jnp.arange(x.shape[0]).reshape(-1, *[1] * lengths.ndim) < lengths
    return valid if mask is None else valid & mask


def _varying(a):
    """The manual axes of shard_map over which an array varies."""
    kind = jax.typeof(a)
    return kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma


def _varying_like(x, tree, params):
    """Inside shard_map: everything varies over the axes that x or a parameter varies over, so that the loop's carry
    keeps one type and gradients are summed over devices once, not at every step.
    """
    axes = frozenset().union(*map(_varying, (x, *jax.tree.leaves(params), *jax.tree.leaves(tree))))

    def vary(a):
        missing = tuple(axes - _varying(a))
        return jax.lax.pcast(a, missing, to="varying") if missing else a

    return jax.tree.map(vary, tree) if axes else tree
