"""The loop of a kernel as a primitive of JAX.

    NVIDIA GPU                       one kernel, or on several devices one for the rows
                                     of each
    other platforms, jax.export      the loop of XLA

So a program that is traced in a process with a GPU runs elsewhere too.
"""

import functools
import hashlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

# No public name says that a rule reads the devices of a program.
from jax._src.dispatch import prim_requires_devices_during_lowering as needs_devices
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    SdyShardingRule,
    custom_partitioning,
)
from jax.extend import core
from jax.interpreters import batching, mlir
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.functional.fast import fission, kernels
from lnrepro.functional.fast.gpu import kernel as layout
from lnrepro.functional.fast.gpu import nvrtc
from lnrepro.functional.fast.gpu.kernel import Kernel
from lnrepro.functional.fast.gpu.program import trace

# Tests add "cpu".
PLATFORMS = ["cuda"]


class Loop:
    """What a launch runs, for any number of rows.

    Attributes:
      program: what a step computes.
      parts: the body of the loop, with no values of constants, which may be tracers.
      reverse: whether it runs from the last step to the first.
      number: that of its layout; where there are fewer, it has the last one.
      row_axes: for each argument the axis of the batch, or None where it has none.
      is_read: for each argument, whether the kernel reads it.
    """

    def __init__(self, parts: fission.Parts, reverse: bool, number: int = 0):
        """Trace the step, and compile the kernel.

        Raises:
          NoKernel: there is none for these equations.
        """
        self.program = trace(parts)
        self.parts = parts._replace(constants=dict.fromkeys(parts.constants))
        self.reverse, self.number = reverse, number
        names = [*parts.constants, *parts.carry, *parts.to_loop]
        axes = {
            a.how.argument.number: int(a.how.argument.what == "stack")
            for a in self.program.inputs
            if a.how.has_row
        }
        read = {a.number for a in self.program.arguments}
        self.row_axes = [axes.get(i) for i in range(len(names))]
        self.is_read = [i in read for i in range(len(names))]
        source = self.kernel(self.program.rows).source
        nvrtc.ptx(source)
        # Equal loops are one program of XLA, also where each is traced anew.
        sizes = self.program.rows, parts.steps, number
        self._key = source, *sizes, tuple(self.row_axes)

    def __eq__(self, other):
        """Whether it computes the same from equal arguments."""
        return isinstance(other, Loop) and self._key == other._key

    def __hash__(self):
        """Hash of what `__eq__` compares."""
        return hash(self._key)

    def __repr__(self):
        """Name it in a jaxpr."""
        return f"Loop(units={self.program.units})"

    def kernel(self, rows: int) -> Kernel:
        """Return the kernel of so many rows."""
        steps = self.parts.steps
        found = layout.candidates(self.program, rows, steps)
        kernels.note_layouts(len(found))
        chosen = found[min(self.number, len(found) - 1)]
        return layout.kernel(self.program, rows, steps, self.reverse, chosen)

    def in_xla(self, rows: int, arguments: Sequence) -> list:
        """Run the loop of XLA.

        Args:
          rows: B, a multiple of the rows for which the step was traced.
          arguments: values of constants, carry and `to_loop`.
        """
        groups = rows // self.program.rows
        if groups == 1:
            return self._in_xla(*arguments)
        folded = [
            a if axis is None else _split_axis(a, axis, groups)
            for a, axis in zip(arguments, self.row_axes, strict=True)
        ]
        axes = [self.row_axes, [axis for axis, _ in self.results(rows)]]
        results = jax.vmap(self._in_xla, *axes)(*folded)
        return [
            _join_axis(a, axis)
            for a, (axis, _) in zip(results, self.results(rows), strict=True)
        ]

    def _in_xla(self, *arguments):
        parts, values = self.parts, list(arguments)
        first = len(parts.constants)
        second = first + len(parts.carry)
        last, made = fission.in_xla(
            parts,
            values[:first],
            values[first:second],
            values[second:],
            self.reverse,
        )
        return [*(last[i] for i in self.program.carries), *made]

    def results(self, rows: int) -> list[tuple[int, jax.ShapeDtypeStruct]]:
        """Return the axis of the batch, and shape and dtype, of each result."""
        count = len(self.program.carries)
        types = self.kernel(rows).results
        return [(int(i >= count), a) for i, a in enumerate(types)]


def _split_axis(a, axis, groups):
    return a.reshape(*a.shape[:axis], groups, -1, *a.shape[axis + 1 :])


def _join_axis(a, axis):
    return a.reshape(*a.shape[:axis], -1, *a.shape[axis + 2 :])


recurrence_p = core.Primitive("recurrence_kernel")
recurrence_p.multiple_results = True
needs_devices.add(recurrence_p)


def run(loop: Loop, arguments: Sequence[jax.Array]) -> list[jax.Array]:
    """Run a loop.

    Args:
      loop: the loop.
      arguments: values of constants, carry and `to_loop`, which vary over the same
        axes of `jax.shard_map`.

    Returns:
      The carries that change, and what is stacked.
    """
    return recurrence_p.bind(*arguments, loop=loop, rows=loop.program.rows)


@recurrence_p.def_abstract_eval
def _types(*arguments, loop, rows):
    # Inside shard_map, a result varies over the axes of the arguments, on their mesh.
    like = functools.partial(arguments[0].update, weak_type=False)
    mesh = arguments[0].sharding.mesh
    types = [a for _, a in loop.results(rows)]
    places = [NamedSharding(mesh, P(*[None] * len(a.shape))) for a in types]
    return [
        like(shape=a.shape, dtype=a.dtype, sharding=place)
        for a, place in zip(types, places, strict=True)
    ]


@functools.cache
def _jitted(loop, rows):
    return jax.jit(functools.partial(recurrence_p.bind, loop=loop, rows=rows))


@recurrence_p.def_impl
def _(*arguments, loop, rows):
    return _jitted(loop, rows)(*arguments)


def _batch(arguments, axes, *, loop, rows):
    """Under `jax.vmap`, it is a kernel of more rows."""
    mapped = [axis is not None for axis in axes]
    described = list(zip(arguments, axes, loop.row_axes, loop.is_read, strict=True))
    size = next(a.shape[axis] for a, axis, *_ in described if axis is not None)
    if any(
        axis is not None and row is None and is_read
        for _, axis, row, is_read in described
    ):
        # With other weights for each: one kernel after the other.
        def one(values):
            values = iter(values)
            given = [
                next(values) if m else a for a, m in zip(arguments, mapped, strict=True)
            ]
            return recurrence_p.bind(*given, loop=loop, rows=rows)

        moved = [
            jnp.moveaxis(a, axis, 0) for a, axis, *_ in described if axis is not None
        ]
        results = jax.lax.map(one, moved)
        return results, [0] * len(results)

    def fold(a, axis, row, is_read):
        if not is_read:
            return a if axis is None else jax.lax.index_in_dim(a, 0, axis, False)
        if row is None:
            return a
        if axis is None:
            a, axis = jnp.broadcast_to(a, (size, *a.shape)), 0
        return _join_axis(jnp.moveaxis(a, axis, row), row)

    folded = [fold(*one) for one in described]
    results = recurrence_p.bind(*folded, loop=loop, rows=size * rows)
    places = [axis for axis, _ in loop.results(rows)]
    results = [_split_axis(a, i, size) for a, i in zip(results, places, strict=True)]
    return results, places


batching.primitive_batchers[recurrence_p] = _batch


def _lower(ctx, *values, loop, rows):
    """Choose what runs, when it is known where."""
    context = ctx.module_context
    in_kernel = all(platform in PLATFORMS for platform in context.platforms)
    if context.lowering_parameters.for_export or not in_kernel:

        def function(*arguments):
            return loop.in_xla(rows, arguments)

    elif getattr(context.axis_context, "num_devices", 2) == 1:
        function = functools.partial(_in_kernel, loop, rows)
    else:
        function = functools.partial(_on_devices, loop, rows)
    return mlir.lower_fun(function, multiple_results=True)(ctx, *values)


mlir.register_lowering(recurrence_p, _lower)


def _in_kernel(loop, rows, *arguments):
    read = [a for a, is_read in zip(arguments, loop.is_read, strict=True) if is_read]
    # Numbers of the program, and no constant array, which no partition could have.
    sizes = [jnp.full(1, n, jnp.int32) for n in (rows, loop.parts.steps)]
    return call(loop.kernel(rows), [*read, jnp.concatenate(sizes)])


def _on_devices(loop, rows, *arguments):
    """Run a kernel on each device, for its rows."""
    digest = hashlib.sha256(nvrtc.ptx(loop.kernel(rows).source).encode()).digest()

    # JAX's cache of programs knows no function that is called here. The digest, which
    # nothing reads, tells two of them apart.
    @custom_partitioning
    def function(digest, *arguments):
        return tuple(_in_kernel(loop, rows, *arguments))

    def placed(mesh, axes, row):
        return NamedSharding(mesh, P(*[None] * row, axes) if row is not None else P())

    first = next(i for i, row in enumerate(loop.row_axes) if row is not None)

    def partition(mesh, arguments, results):
        spec = results[0].sharding.spec
        axes = spec[0] if spec else None

        def of_device(digest, *arguments):
            rows = arguments[first].shape[loop.row_axes[first]]
            return tuple(_in_kernel(loop, rows, *arguments))

        put = functools.partial(placed, mesh, axes)
        of_results = tuple(put(row) for row, _ in loop.results(rows))
        return mesh, of_device, of_results, (put(None), *map(put, loop.row_axes))

    def infer(mesh, arguments, results):
        row = loop.row_axes[first]
        spec = (*arguments[1 + first].sharding.spec, *[None] * (row + 1))
        return tuple(placed(mesh, spec[row], row) for row, _ in loop.results(rows))

    function.def_partition(
        partition,
        infer_sharding_from_operands=infer,
        sharding_rule=_sharding_rule(loop, rows, arguments),
    )
    return function(np.frombuffer(digest, np.int32), *arguments)


def _sharding_rule(loop, rows, arguments):
    """Rows may be split, and nothing else."""
    others = []

    def factors(a, row):
        names = []
        for axis in range(len(a.shape)):
            if axis != row:
                others.append(f"f{len(others)}")
            names.append("rows" if axis == row else others[-1])
        return ArrayMapping(*names)

    digest = jax.ShapeDtypeStruct((8,), jnp.int32)
    operands = tuple(map(factors, (digest, *arguments), (None, *loop.row_axes)))
    results = tuple(factors(a, row) for row, a in loop.results(rows))
    return SdyShardingRule(operands, results, need_replication_factors=tuple(others))


def call(kernel: Kernel, arguments: Sequence[jax.Array]) -> list[jax.Array]:
    """Run a kernel in an XLA program for a GPU; return its results."""
    sizes = dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1)
    sizes |= {"grid_x": kernel.blocks, "block_x": kernel.threads}
    sizes |= {"shared_mem_bytes": layout.SHARED_MEMORY}
    results = jax.ffi.ffi_call("__gpu$xla.gpu.ptx", kernel.results)(
        *arguments,
        name="recurrence",
        kernel_type="ptx",
        kernel_data=nvrtc.ptx(kernel.source),
        # XLA reads these numbers as 64 bits.
        **{name: np.int64(size) for name, size in sizes.items()},
    )
    return list(results)
