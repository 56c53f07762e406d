"""Where the training state and the batches live: `jit` over a one-axis mesh (the default) or `pmap`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.errors import UserError

AXIS = "data"


class Placement(NamedTuple):
    """How to compile a step and move state and batches; `jit` and `pmap` give the same six functions."""

    compile: Callable[[Callable], Callable]
    """step(state, batches, axis to reduce over or None) -> compiled (state, batches) -> (state, metrics); state donated"""
    place: Callable[[Any], Any]
    """host state -> state on the devices, replicated"""
    batch: Callable[[Any], Any]
    """host arrays (K, B, ...) of K stacked batches, this process's rows of each -> arrays on the devices"""
    vars: Callable[[Any], Any]
    """(part of the) state -> as a single logical array each, for evaluation"""
    host: Callable[[Any], Any]
    """(part of the) state -> numpy copies"""
    metrics: Callable[[Any], Any]
    """compiled step's metrics -> numpy (K,)"""


def initialize(coordinator: str | None, num_processes: int | None, process_id: int | None, timeout_s: int) -> None:
    """Join the other processes through `jax.distributed`; with all None it finds them by itself (TPU, SLURM).

    Raises UserError if they cannot be found within `timeout_s` seconds.
    """
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id, initialization_timeout=timeout_s)
    except (RuntimeError, ValueError) as e:
        first = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        where = f" at {coordinator}" if coordinator else ""
        raise UserError(f"could not join the other processes{where} within {timeout_s} s: {first}") from None


def make(kind: str, batch_size: int) -> Placement:
    """The placement `kind` over all devices; `batch_size` is the global one and must divide over them."""
    if kind not in ("jit", "pmap"):
        raise UserError(f"config.placement = {kind!r}: choose jit or pmap")
    n = jax.device_count()
    if batch_size % n:
        near = [b for b in (batch_size // n * n, (batch_size // n + 1) * n) if b]
        raise UserError(
            f"config.batch_size = {batch_size} does not divide over {n} devices; "
            f"take {' or '.join(map(str, near))}, or fewer devices"
        )
    return _jit() if kind == "jit" else _pmap()


def _copy(x):
    # A copy, because numpy may otherwise share memory with a device buffer that the next step reuses.
    return np.array(x)


def _jit() -> Placement:
    mesh = jax.make_mesh((jax.device_count(),), (AXIS,), axis_types=(AxisType.Auto,))
    replicated, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, AXIS))

    def place(tree):
        return jax.tree.map(lambda x: jax.make_array_from_process_local_data(replicated, np.asarray(x)), tree)

    def batch(tree):
        if jax.process_count() == 1:
            return jax.device_put(tree, rows)
        return jax.tree.map(lambda x: jax.make_array_from_process_local_data(rows, x), tree)

    def compile(step):
        return jax.jit(lambda state, batches: step(state, batches, None), donate_argnums=0, out_shardings=replicated)

    host = lambda tree: jax.tree.map(_copy, tree)  # noqa: E731
    return Placement(compile, place, batch, lambda tree: tree, host, host)


def _pmap() -> Placement:
    """Every device normalises its own rows: with batch norm the statistics are per device, unlike under `jit`."""
    local = jax.local_device_count()

    def place(tree):
        return jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (local, *np.shape(x))), tree)

    def batch(tree):  # (K, B, ...) -> (local, K, B / local, ...)
        split = lambda x: np.moveaxis(x.reshape(x.shape[0], local, -1, *x.shape[2:]), 1, 0)  # noqa: E731
        return jax.tree.map(split, tree)

    def compile(step):
        return jax.pmap(lambda state, batches: step(state, batches, AXIS), axis_name=AXIS, donate_argnums=0)

    def vars(tree):
        # The first shard, not x[0]: indexing gathers the whole array to one device first.
        return jax.tree.map(lambda x: x.addressable_data(0)[0], tree)

    host = lambda tree: jax.tree.map(_copy, vars(tree))  # noqa: E731
    return Placement(compile, place, batch, vars, host, host)


def like(vars: Any, batch: Any) -> Any:
    """Put this process's rows `batch` of an evaluation batch on the mesh that `vars` live on, split over its devices.

    Where the rows do not divide over the devices they are replicated instead; where `vars` have no mesh (pmap, or arrays
    a user made), the batch is returned as it is.
    """
    leaf = jax.tree.leaves(vars)[0]
    if not isinstance(getattr(leaf, "sharding", None), NamedSharding):
        return batch
    mesh = leaf.sharding.mesh
    if AXIS not in mesh.axis_names:
        return batch

    def put(x):
        whole = x.shape[0] * jax.process_count()
        spec = P(AXIS) if whole % mesh.shape[AXIS] == 0 else P()
        if spec == P() and jax.process_count() > 1:
            raise UserError(
                f"an evaluation batch of {whole} rows does not divide over {mesh.shape[AXIS]} devices of "
                f"{jax.process_count()} processes; set config.eval_batch_size to a multiple"
            )
        return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), np.asarray(x))

    return jax.tree.map(put, batch)
