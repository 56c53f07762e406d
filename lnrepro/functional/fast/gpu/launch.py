"""The loop of a kernel as a primitive of JAX.

    NVIDIA GPU                       one kernel, or on several devices one for the rows
                                     of each
    other platforms, jax.export      the loop of XLA

So a program that is traced in a process with a GPU runs elsewhere too.
"""

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

# No public name says that a rule reads the devices of a program, or runs a primitive.
from jax._src.dispatch import apply_primitive
from jax._src.dispatch import prim_requires_devices_during_lowering as needs_devices
from jax.extend import core
from jax.interpreters import batching, mlir
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.functional.fast import fission, kernels
from lnrepro.functional.fast.gpu import kernel as layout
from lnrepro.functional.fast.gpu import nvrtc, partition
from lnrepro.functional.fast.gpu.program import trace
from lnrepro.functional.fast.parts import Parts

# Tests add "cpu".
PLATFORMS = ["cuda"]


class Loop:
    """What a launch runs, for any number of rows.

    Attributes:
      program: what a step computes.
      rows: B for which it was traced.
      parts: the body of the loop, with no values of constants, which may be tracers.
      reverse: whether it runs from the last step to the first.
      layout: the layout that was measured for these rows on one device, where other
        rows have the loop of XLA. None takes the usual one of any number of rows.
      numbers: those of the arguments that the kernel reads, among constants, carry and
        `to_loop`.
      row_axes: for each of them the axis of the batch, or None where it has none.
      result_axes: for each result the axis of the batch, behind that of the groups.
    """

    def __init__(
        self, parts: Parts, reverse: bool, measured: tuple[int, int] | None = None
    ):
        """Trace the step.

        Raises:
          NoKernel: there is none for these equations.
        """
        # What is the same in every step has been computed, and is a constant.
        names = dict.fromkeys(parts.constants)
        known = names.keys()
        loop = [e for e in parts.loop if e.effects or not known >= {*e.outvars}]
        self.parts = parts._replace(constants=names, loop=loop)
        self.program = trace(self.parts)
        self.reverse, self.layout = reverse, measured and layout.Layout(*measured)
        self.numbers = [a.number for a, *_ in self.program.arguments]
        self.row_axes = [
            int(a.what == "stack") if has_row else None
            for a, has_row, *_ in self.program.arguments
        ]
        self.result_axes = [1 + (a.what == "stack") for a in self.program.results]
        self.rows = math.prod(self.program.batch)
        layout.check(self.program, self.rows, self.layout)
        kernels.note_layouts(layout.candidates(self.program, self.rows))
        # Equal loops are one program of XLA, also where each is traced anew.
        sizes = self.program.batch, parts.steps, self.layout
        self._key = self.kernel(self.rows).source, *sizes

    def __eq__(self, other):
        """Whether it computes the same from equal arguments."""
        return isinstance(other, Loop) and self._key == other._key

    def __hash__(self):
        """Hash of what `__eq__` compares."""
        return hash(self._key)

    def kernel(self, rows: int, groups: int = 1) -> layout.Kernel:
        """Return the kernel of so many groups of rows."""
        chosen = self.layout or layout.candidates(self.program, rows, groups)[0]
        steps, reverse = self.parts.steps, self.reverse
        return layout.kernel(self.program, rows, steps, reverse, chosen, groups)

    def flat(self, a: jax.Array, axis: int | None) -> jax.Array:
        """Return an array with one batch axis in place of those of the equations."""
        if axis is None:
            return a
        behind = a.shape[axis + len(self.program.batch) :]
        return a.reshape(*a.shape[:axis], self.rows, *behind)

    def in_xla(
        self, rows: int, groups: int, own: Sequence[bool], *arguments: jax.Array
    ) -> list:
        """Run the loop of XLA.

        Args:
          rows: B, a multiple of the rows for which the step was traced.
          groups: how often there are B rows.
          own: for each argument, whether each group has its own.
          arguments: those that the kernel reads.
        """
        count = rows // self.rows
        folded = [
            a if axis is None else _split_axis(a, axis + is_own, count)
            for a, axis, is_own in zip(arguments, self.row_axes, own, strict=True)
        ]
        places = [axis - 1 for axis in self.result_axes]

        def in_xla(*arguments):
            return list(map(self.flat, self._in_xla(*arguments), places))

        one = jax.vmap(in_xla, self.row_axes, places, axis_size=count)
        of_groups = [0 if is_own else None for is_own in own]
        results = jax.vmap(one, of_groups, axis_size=groups)(*folded)
        return list(map(_join_axis, results, self.result_axes))

    def _in_xla(self, *arguments):
        parts, given = self.parts, dict(zip(self.numbers, arguments, strict=True))
        first = len(parts.constants)
        second, values = first + len(parts.carry), []
        for i, v in enumerate([*parts.constants, *parts.carry, *parts.to_loop]):
            # No result depends on what the kernel does not read.
            shape = (parts.steps,) * (i >= second) + v.aval.shape
            a = given[i] if i in given else jnp.zeros(shape, v.aval.dtype)
            values.append(a.reshape(shape))
        last, made = fission.in_xla(
            parts,
            values[:first],
            values[first:second],
            values[second:],
            self.reverse,
        )
        return [*(last[i] for i in self.program.carries), *made]


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
      arguments: those that the kernel reads, which vary over the same axes of
        `jax.shard_map`.

    Returns:
      The carries that change, what is added up, and what is stacked.
    """
    arguments = list(map(loop.flat, arguments, loop.row_axes))
    own = (False,) * len(arguments)
    results = recurrence_p.bind(
        *arguments, loop=loop, rows=loop.rows, groups=1, own=own
    )
    return [
        a.reshape(*a.shape[1:axis], *loop.program.batch, *a.shape[axis + 1 :])
        for a, axis in zip(results, loop.result_axes, strict=True)
    ]


@recurrence_p.def_abstract_eval
def _types(*arguments, loop, rows, groups, own):
    # Inside shard_map, a result varies over the axes of the arguments, on their mesh.
    like = functools.partial(arguments[0].update, weak_type=False)
    place = functools.partial(NamedSharding, arguments[0].sharding.mesh)
    return [
        like(shape=a.shape, dtype=a.dtype, sharding=place(P(*[None] * len(a.shape))))
        for a in loop.kernel(rows, groups).results
    ]


recurrence_p.def_impl(functools.partial(apply_primitive, recurrence_p))


def _batch(arguments, axes, *, loop, rows, groups, own):
    """Under `jax.vmap`, it is a kernel of more rows, or of more groups of rows."""
    described = list(zip(arguments, axes, loop.row_axes, own, strict=True))
    size = next(a.shape[axis] for a, axis, *_ in described if axis is not None)

    def group(a, axis, is_own):
        if axis is None and not is_own:
            return a
        a = batching.bdim_at_front(a, axis, size)
        if not is_own:
            a = jnp.broadcast_to(a[:, None], (size, groups, *a.shape[1:]))
        return _join_axis(a, 0)

    def fold(a, axis, row, is_own):
        if row is None:
            return a
        a = batching.bdim_at_front(a, axis, size)
        return _join_axis(jnp.moveaxis(a, 0, row + is_own), row + is_own)

    if any(axis is not None and row is None for _, axis, row, _ in described):
        # With other weights for each.
        own = tuple(axis is not None or is_own for _, axis, _, is_own in described)
        arguments = [group(a, axis, is_own) for a, axis, _, is_own in described]
        groups *= size
        places = [0] * len(loop.result_axes)
    else:
        arguments = [fold(*one) for one in described]
        rows *= size
        places = loop.result_axes
    results = recurrence_p.bind(
        *arguments, loop=loop, rows=rows, groups=groups, own=own
    )
    results = [_split_axis(a, i, size) for a, i in zip(results, places, strict=True)]
    return results, places


batching.primitive_batchers[recurrence_p] = _batch


def _has_one_part(context):
    """Whether the rows of a program are those of each of its devices."""
    if not hasattr(context, "mesh"):
        return context.num_devices == 1
    sizes = context.mesh.shape.items()
    return all(n == 1 or name in context.manual_axes for name, n in sizes)


def _lower(ctx, *values, loop, rows, groups, own):
    """Choose what runs, when it is known where."""
    context = ctx.module_context
    run = _in_kernel if _has_one_part(context.axis_context) else _on_devices
    in_xla = context.lowering_parameters.for_export
    in_xla |= not {*PLATFORMS}.issuperset(context.platforms)
    if loop.layout:
        in_xla |= run is _on_devices or (rows, groups) != (loop.rows, 1)
    function = functools.partial(
        Loop.in_xla if in_xla else run, loop, rows, groups, own
    )
    return mlir.lower_fun(function, multiple_results=True)(ctx, *values)


mlir.register_lowering(recurrence_p, _lower)


def _in_kernel(loop, rows, groups, own, *arguments):
    # Numbers of the program, and no constant array, which no partition could have.
    numbers = rows, loop.parts.steps, *own
    sizes = jnp.concatenate([jnp.full(1, n, jnp.int32) for n in numbers])
    kernel = loop.kernel(rows, groups)
    kernels.note_layout(str(kernel))
    return call(kernel, [*arguments, sizes])


def _on_devices(loop, rows, groups, own, *arguments):
    """Run a kernel on each device, for its rows."""
    pairs = zip(loop.row_axes, own, strict=True)
    axes = [row if row is None else row + is_own for row, is_own in pairs]

    def of_device(*arguments):
        places = zip(arguments, axes, strict=True)
        rows = next(a.shape[axis] for a, axis in places if axis is not None)
        return tuple(_in_kernel(loop, rows, groups, own, *arguments))

    kernel = loop.kernel(rows, groups)
    return partition.over_rows(
        of_device,
        arguments,
        axes,
        kernel.results,
        loop.result_axes,
        name=nvrtc.ptx(kernel.source, kernel.architecture),
    )


def call(kernel: layout.Kernel, arguments: Sequence[jax.Array]) -> list[jax.Array]:
    """Run a kernel in an XLA program for a GPU; return its results."""
    sizes = {
        "grid_x": kernel.blocks,
        "grid_y": 1,
        "grid_z": 1,
        "block_x": kernel.threads,
        "block_y": 1,
        "block_z": 1,
        "shared_mem_bytes": kernel.shared,
    }
    run = jax.ffi.ffi_call("__gpu$xla.gpu.ptx", kernel.results)
    results = run(
        *arguments,
        name="recurrence",
        kernel_type="ptx",
        kernel_data=nvrtc.ptx(kernel.source, kernel.architecture),
        # XLA reads these numbers as 64 bits.
        **{name: np.int64(size) for name, size in sizes.items()},
    )
    return list(results)
