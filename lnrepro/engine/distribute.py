"""Placement of the training state and the batches on devices.

`jit` over a mesh of all devices is the default, `pmap` an option. The rows of a batch
are split over the devices. The state is on every device.

Shape letters: K stacked batches, B batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import make_array_from_process_local_data
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.errors import UserError

# The axis of the mesh.
AXIS = "data"
# By default, XLA orders a CPU's operations for concurrency. With jax 0.10, collectives
# of a step on several devices may then wait for each other until XLA aborts the
# process: at one of a few hundred steps of skip-thoughts, and at none of 7,000 in this
# order.
ORDERED = {"xla_cpu_enable_concurrency_optimized_scheduler": False}


class Placement(NamedTuple):
    """How a step is compiled, and how state and batches move.

    Attributes:
      compile: step -> compiled (state, batches) -> (state, metrics). `step` takes
        (state, batches, axis to average over or None). The state is donated and stays
        where it is.
      place: state on the host -> state on the devices.
      batch: arrays [K, B, ...] on the host, this process's rows -> on the devices.
      vars: state on the devices -> a single logical array each, for evaluation.
    """

    compile: Callable[[Callable], Callable]
    place: Callable[[Any], Any]
    batch: Callable[[Any], Any]
    vars: Callable[[Any], Any]

    def read(self, tree: Any) -> Any:
        """Return a state or the metrics of a step as NumPy copies."""
        # Without a copy, NumPy may share memory with a device buffer that the next step
        # reuses.
        return jax.tree.map(np.array, self.vars(tree))


def make(kind: str, batch_size: int) -> Placement:
    """Return a placement over all devices.

    Args:
      kind: "jit" or "pmap".
      batch_size: the global batch size, a multiple of the number of devices.

    Raises:
      UserError: values that do not fit together or do not fit the devices.
    """
    processes = jax.process_count()
    if kind == "pmap" and processes > 1:
        # Evaluations would count the rows of this process alone.
        raise UserError(f"{processes} processes need config.placement = 'jit'")
    count = jax.device_count()
    if batch_size % count:
        raise UserError(
            f"config.batch_size = {batch_size} does not divide over {count} devices; "
            f"take {batch_size + -batch_size % count}, or fewer devices"
        )
    return _pmap() if kind == "pmap" else _jit()


def check_kernels(kernels: str, kind: str) -> None:
    """Raise UserError where the devices cannot run `config.kernels`.

    Args:
      kernels: `config.kernels`.
      kind: "jit" or "pmap".
    """
    devices = jax.devices()
    platform = devices[0].platform
    if kernels == "on" and platform == "cpu":
        raise UserError(
            "config.kernels = 'on' needs a TPU or a GPU; the devices are CPUs"
        )
    is_split = platform == "tpu" and kind == "jit" and devices[1:]
    if kernels == "on" and is_split:
        raise UserError(
            "config.kernels = 'on': XLA does not split a TPU's kernel over the "
            f"{len(devices)} devices; take one device, or config.placement = 'pmap'"
        )


def _jit():
    """Place on a mesh: the rows of a batch are split, the state is replicated."""
    # Auto axes: XLA derives the shardings inside the step from those of its arguments.
    mesh = jax.make_mesh((jax.device_count(),), (AXIS,), axis_types=(AxisType.Auto,))
    replicated = NamedSharding(mesh, P())
    # Batches are [K, B, ...]. B is split.
    rows = NamedSharding(mesh, P(None, AXIS))
    is_split_cpu = mesh.size > 1 and mesh.devices.flat[0].platform == "cpu"

    def compile(step):
        return jax.jit(
            lambda state, batches: step(state, batches, None),
            donate_argnums=0,
            # XLA could choose another placement of the new state.
            out_shardings=replicated,
            compiler_options=ORDERED if is_split_cpu else None,
        )

    return Placement(
        compile,
        # Each process gives what its own devices hold.
        place=lambda tree: make_array_from_process_local_data(replicated, tree),
        batch=lambda tree: make_array_from_process_local_data(rows, tree),
        vars=lambda tree: tree,
    )


def _pmap():
    """Place by pmap: batch norm takes its statistics on each device by itself."""
    local = jax.local_device_count()

    def place(tree):
        # pmap maps over the first axis, so the state has a copy per local device.
        def copy_to_all(x):
            return np.broadcast_to(x, (local, *x.shape))

        return jax.tree.map(copy_to_all, tree)

    def batch(tree):
        # [K, B, ...] -> [local, K, B / local, ...]
        def split(x):
            # The rows of a batch are split evenly over the local devices.
            by_device = x.reshape(x.shape[0], local, -1, *x.shape[2:])
            return np.moveaxis(by_device, 1, 0)

        return jax.tree.map(split, tree)

    def compile(step):
        return jax.pmap(
            lambda state, batches: step(state, batches, AXIS),
            axis_name=AXIS,
            donate_argnums=0,
        )

    # All devices hold the same values.
    def vars(tree):
        def first(x):
            # A state that `place` has made and no step has taken is NumPy arrays.
            if isinstance(x, np.ndarray):
                return x[0]
            # The first shard. x[0] would gather the whole array on one device first.
            return x.addressable_data(0)[0]

        return jax.tree.map(first, tree)

    return Placement(compile, place, batch, vars)


def like(vars: Any, batch: Any) -> Any:
    """Put a batch of an evaluation on the devices of `vars`.

    Args:
      vars: parameters and other collections.
      batch: arrays [B, ...], this process's rows.

    Returns:
      The batch, split over the mesh of `vars`. It is replicated where its rows do not
      divide over the devices. Where `vars` have no mesh, it is returned as it is.

    Raises:
      UserError: the rows do not divide over the devices of several processes.
    """
    # All leaves of a state are on the same mesh, so one of them tells it.
    sharding = getattr(jax.tree.leaves(vars)[0], "sharding", None)
    if not isinstance(sharding, NamedSharding):
        return batch
    mesh, processes = sharding.mesh, jax.process_count()
    # Every process has the same number of rows, so this is the size of the whole batch.
    rows = len(jax.tree.leaves(batch)[0]) * processes
    divides = rows % mesh.size == 0
    if not divides and processes > 1:
        raise UserError(
            f"an evaluation batch of {rows} rows does not divide over {mesh.size} "
            f"devices of {processes} processes; set config.eval_batch_size to a "
            "multiple"
        )
    # P(AXIS) splits the rows, P() puts all of them on every device.
    place = NamedSharding(mesh, P(AXIS) if divides else P())
    return make_array_from_process_local_data(place, batch)
