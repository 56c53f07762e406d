"""`jax.lax.scan` as one Pallas kernel for TPUs.

XLA runs a loop on a TPU operation by operation. Each of them reads its arguments from
the main memory and writes its results back. Here the whole loop is one kernel. The
weights, which the body reads in every step, and the carry stay in the vector memory
(VMEM). The grid is time. Inputs and outputs of the steps are streamed.

A training step of an LN-LSTM of 256 units with 128 rows and 64 steps takes 0.70 million
cycles on a v5e by the compiler's estimate, and 6.20 million with XLA's loops. The
kernels' schedules have 1,543 bundles a step forward, and 5,200 backward:
`python scripts/bench.py compiled --device v5e --shapes draw`. No kernel has run on a
TPU yet, and none does unless `autotune` has measured it there.

Only the products that do not depend on the carry, and the gradients of the weights, are
left to XLA, as large products over all steps. Norms and the gradients of their gains
and biases are computed in the kernel, although they could be taken out of it: what is
in the vector memory already costs less there than to read and write it again.

The body may be any function, so both passes of `lnrepro.functional.scan` run around the
unchanged `Cell.step`. `fast.tpu.mosaic` brings its equations into forms that Mosaic,
the compiler of Pallas' kernels, knows.

Limits:
- Weights, carry and two blocks of every input and output of a step fit into VMEM.
- Mosaic knows the operations of the body. What Pallas refuses is found while the body
  is traced. What Mosaic itself refuses is an error of the compiler.
- The batch is not sharded by itself: call it inside `jax.shard_map(check_vma=False)`.
- `jax.vmap` adds a parallel axis to the grid. Groups of rows are made so: [B, ...] as
  [groups, rows, ...] under vmap takes less VMEM. Batch norm then has statistics of
  each group.
- A derivative of the kernel, for second derivatives, is that of `jax.lax.scan`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from lnrepro.functional.fast import equations, fission
from lnrepro.functional.fast.kernels import NoKernel, with_derivative
from lnrepro.functional.fast.parts import take_products_apart
from lnrepro.functional.fast.tpu import mosaic

# What differs in the form of a scan whose loop is this kernel: what is in the vector
# memory already is added up there.
FORM = {"adds_in_loop": True}
# Tests set it to True, or to `pltpu.InterpretParams()`, to run kernels on a CPU.
INTERPRET: Any = False
# Bytes of the vector memory, where no TPU is at hand to ask: those of a v5e and a v6e.
VECTOR_MEMORY = 128 * 2**20


def scan(
    body: Callable, carry: Any, xs: Any, *, reverse: bool = False
) -> tuple[Any, Any]:
    """Compute what `jax.lax.scan` does, by one kernel.

    Args:
      body: (carry, inputs of a step) -> (carry, outputs of a step).
      carry: pytree of arrays, the carry before the first step.
      xs: pytree of arrays [T, ...], the inputs.
      reverse: run from the last step to the first.

    Returns:
      (carry after the last step, outputs [T, ...]).

    Raises:
      NoKernel: a condition of the kernel does not hold.
    """
    shapes = [a.shape for a in jax.tree.leaves((carry, xs))]
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        raise NoKernel("a size is symbolic")
    parts = mosaic.hoist(take_products_apart(body, carry, xs))
    kernel = functools.partial(_kernel, parts, reverse)
    needed, available = _memory_of(parts) / 2**20, _vector_memory() / 2**20
    if needed > available:
        raise NoKernel(
            f"weights, carry and blocks take {needed:.0f} MiB of vector memory, "
            f"and there are {available:.0f}; take narrower weights, or groups of "
            "rows by jax.vmap"
        )
    if not INTERPRET:
        _lower(parts, kernel)
    in_xla = functools.partial(fission.in_xla, parts, reverse=reverse)
    return fission.around(parts, with_derivative(kernel, in_xla), carry, xs)


def _constants_of(parts):
    """The constants that the loop reads."""
    read = equations.variables_read(parts.loop, parts.new_carry + parts.to_after)
    return [v for v in parts.constants if v in read]


def _memory_of(parts):
    """Bytes of VMEM: whole arrays once, and two blocks of all that is streamed."""
    whole = _constants_of(parts) + parts.carry + parts.carry
    streamed = parts.to_loop + parts.to_after
    return sum(map(_bytes, whole)) + 2 * sum(map(_bytes, streamed))


def _lower(parts, kernel):
    """Raise NoKernel with the first line of what Pallas says against equations."""
    constants, carry = (
        list(map(_type, part)) for part in (parts.constants, parts.carry)
    )
    xs = [_type(v, parts.steps) for v in parts.to_loop]
    try:
        # Lowering needs neither a TPU nor its compiler.
        jax.jit(kernel).trace(constants, carry, xs).lower(lowering_platforms=("tpu",))
    except Exception as error:  # Pallas raises many kinds.
        line = str(error).strip().splitlines()[0][:200]
        raise NoKernel(f"Pallas: {line}") from None


def _kernel(parts, reverse, constants, carry, xs):
    """Run the loop as one kernel."""
    values = dict(zip(parts.constants, constants, strict=True))
    constants = _constants_of(parts)
    whole = [_pack(values[v]) for v in constants]
    start = list(map(_pack, carry))
    streamed = [jax.vmap(_pack)(a) for a in xs]
    names = constants + parts.carry + parts.to_loop
    last = [_packed_type(v) for v in parts.carry]
    stacks = [_packed_type(v, parts.steps) for v in parts.to_after]

    def one_step(constant_refs, start_refs, x_refs, carry_refs, y_refs):
        # All steps share the block of the last carry, in which the carry stands.
        @pl.when(pl.program_id(0) == 0)
        def _():
            for ref, first in zip(carry_refs, start_refs, strict=True):
                ref[...] = first[...]

        values = [ref[...] for ref in (*constant_refs, *carry_refs)]
        values += [ref[0] for ref in x_refs]
        pairs = zip(values, names, strict=True)
        arguments = [_unpack(value, v.aval, as_number=True) for value, v in pairs]
        # First the new carry, and then what is stacked.
        results = iter(mosaic.evaluate(parts, names, arguments))
        for ref in carry_refs:
            ref[...] = _pack(next(results))
        for ref in y_refs:
            ref[0] = _pack(next(results))

    def block_of_step(a):
        def index(t):
            t = parts.steps - 1 - t if reverse else t
            return (t, *(0,) * (a.ndim - 1))

        return pl.BlockSpec((1, *a.shape[1:]), index)

    def whole_block(a):
        return pl.BlockSpec(a.shape, lambda t: (0,) * a.ndim)

    # As much vector memory again for intermediates.
    limit = min(max(2 * _memory_of(parts), 16 * 2**20), _vector_memory())
    # "arbitrary": the steps of the grid run in order, on one core.
    # Inside shard_map, the results vary over the axes that an argument varies over.
    last, ys = pl.pallas_call(
        one_step,
        grid=(parts.steps,),
        in_specs=[
            list(map(whole_block, whole)),
            list(map(whole_block, start)),
            list(map(block_of_step, streamed)),
        ],
        out_specs=[list(map(whole_block, last)), list(map(block_of_step, stacks))],
        out_shape=[last, stacks],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",),
            vmem_limit_bytes=limit,
        ),
        interpret=INTERPRET,
        name="recurrence",
    )(whole, start, streamed)
    stacked = [_type(v, parts.steps) for v in parts.to_after]
    last = list(map(_unpack, last, map(_type, parts.carry)))
    return last, list(map(_unpack, ys, stacked))


def _pack(a):
    """An array as it lies in VMEM: of two axes at least, booleans as integers."""
    a = jnp.asarray(a)
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a = jax.random.key_data(a)
    a = mosaic.without_booleans(a)
    return a.reshape((1,) * (2 - a.ndim) + a.shape)


def _unpack(a, like, as_number=False):
    """Undo `_pack`, but for booleans that shall stay integers."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        a = a.reshape(*like.shape, *like.dtype._impl.key_shape)
        return jax.random.wrap_key_data(a, impl=like.dtype._impl.name)
    a = a.reshape(like.shape)
    return a != 0 if like.dtype == bool and not as_number else a


def _type(v, *leading):
    """Shape and dtype of a variable, stacked along the leading axes."""
    return jax.ShapeDtypeStruct((*leading, *v.aval.shape), v.aval.dtype)


def _packed_type(v, *leading):
    """Shape and dtype of a packed variable, stacked along the leading axes."""
    a = jax.eval_shape(_pack, _type(v))
    return jax.ShapeDtypeStruct((*leading, *a.shape), a.dtype)


def _bytes(variable):
    """Bytes of a packed array in VMEM, whose tiles are of 4 KiB."""
    a = _packed_type(variable)
    size = a.dtype.itemsize
    rows, lanes = -(-a.shape[-2] * size // 32) * 32, -(-a.shape[-1] // 128) * 128
    return math.prod(a.shape[:-2]) * rows * lanes


def _vector_memory():
    """Bytes of the VMEM of the TPU at hand."""
    if jax.devices()[0].platform != "tpu":
        return VECTOR_MEMORY
    return pltpu.get_tpu_info().vmem_capacity_bytes
