"""Where the training state and the batches live: `jit` over a mesh of devices (the default) or `pmap`.

The mesh has two axes: batches are split over "data"; over "model" only what `config.mesh.shard` names, such as the
matrices that are as large as the vocabulary, while everything else is on every device.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.engine.errors import UserError

AXIS, MODEL = "data", "model"


class Placement(NamedTuple):
    """How to compile a step and move state and batches; `jit` and `pmap` give the same six functions."""

    compile: Callable[[Callable, Any], Callable]
    """step(state, batches, axis to reduce over or None), and the placed state it will begin with -> compiled (state,
    batches) -> (state, metrics); state donated, and left where it was"""
    place: Callable[[Any], Any]
    """host state -> state on the devices"""
    batch: Callable[[Any], Any]
    """host arrays (K, B, ...) of K stacked batches, this process's rows of each -> arrays on the devices"""
    vars: Callable[[Any], Any]
    """(part of the) state -> as a single logical array each, for evaluation"""
    host: Callable[[Any], Any]
    """(part of the) state -> numpy copies"""
    metrics: Callable[[Any], Any]
    """compiled step's metrics -> numpy (K,)"""


def make(
    kind: str,
    batch_size: int,
    seeds: int = 1,
    model: int = 1,
    shard: Sequence[tuple[str, int]] = (),
) -> Placement:
    """The placement `kind` over all devices; `batch_size` is the global one and must divide over the data axis.

    With several seeds, batches are (K, seeds, B, ...). `model` devices share each array of the state whose path ends in
    one of the names of `shard`, cut along the axis that stands beside the name: ("embedding", 0). Raises UserError.
    """
    if kind not in ("jit", "pmap"):
        raise UserError(f"config.placement = {kind!r}: choose jit or pmap")
    if kind == "pmap" and seeds > 1:
        raise UserError(f"config.seeds = {seeds} needs config.placement = 'jit'")
    if kind == "pmap" and model > 1:
        raise UserError(f"config.mesh.model = {model} needs config.placement = 'jit'")
    if model < 1 or jax.device_count() % model:
        raise UserError(
            f"config.mesh.model = {model} does not divide the {jax.device_count()} devices"
        )
    if model > 1 and not shard:
        raise UserError(
            f"config.mesh.model = {model}, but config.mesh.shard names nothing to share"
        )
    n = jax.device_count() // model
    if batch_size % n:
        near = [b for b in (batch_size // n * n, (batch_size // n + 1) * n) if b]
        raise UserError(
            f"config.batch_size = {batch_size} does not divide over {n} devices; "
            f"take {' or '.join(map(str, near))}, or fewer devices"
        )
    return _jit(seeds, model, shard) if kind == "jit" else _pmap()


def _copy(x):
    # A copy, because numpy may otherwise share memory with a device buffer that the next step reuses.
    if isinstance(x, jax.Array) and not (
        x.is_fully_addressable or x.is_fully_replicated
    ):
        from jax.experimental import multihost_utils

        return np.array(multihost_utils.process_allgather(x, tiled=True))
    return np.array(x)


def _jit(seeds: int, model: int, shard: Sequence[tuple[str, int]]) -> Placement:
    mesh = jax.make_mesh(
        (jax.device_count() // model, model),
        (AXIS, MODEL),
        axis_types=(AxisType.Auto,) * 2,
    )
    replicated, rows = (
        NamedSharding(mesh, P()),
        NamedSharding(mesh, P(None, AXIS) if seeds == 1 else P(None, None, AXIS)),
    )

    def sharding(path, x):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        axis = (
            next((axis for end, axis in shard if f"/{name}".endswith(f"/{end}")), None)
            if model > 1
            else None
        )
        if axis is None:
            return replicated
        axis += seeds > 1  # the first axis is that of the seeds
        if np.ndim(x) <= axis or np.shape(x)[axis] % model:
            raise UserError(
                f"config.mesh.shard: axis {axis} of {name} {np.shape(x)} does not divide over config.mesh.model = {model}"
            )
        return NamedSharding(mesh, P(*[None] * axis, MODEL))

    def place(tree):
        def put(path, x):
            x = np.asarray(x)
            return jax.make_array_from_callback(
                x.shape, sharding(path, x), lambda index: x[index]
            )

        return jax.tree.map_with_path(put, tree)

    def batch(tree):
        if jax.process_count() == 1:
            return jax.device_put(tree, rows)
        return jax.tree.map(
            lambda x: jax.make_array_from_process_local_data(rows, x), tree
        )

    def compile(step, state):
        where = (jax.tree.map(lambda x: x.sharding, state), replicated)
        return jax.jit(
            lambda state, batches: step(state, batches, None),
            donate_argnums=0,
            out_shardings=where,
        )

    host = lambda tree: jax.tree.map(_copy, tree)  # noqa: E731
    return Placement(compile, place, batch, lambda tree: tree, host, host)


def _pmap() -> Placement:
    """Every device normalises its own rows: with batch norm the statistics are per device, unlike under `jit`."""
    local = jax.local_device_count()

    def place(tree):
        return jax.tree.map(
            lambda x: np.broadcast_to(np.asarray(x), (local, *np.shape(x))), tree
        )

    def batch(tree):  # (K, B, ...) -> (local, K, B / local, ...)
        def split(x):
            by_device = x.reshape(x.shape[0], local, -1, *x.shape[2:])
            return np.moveaxis(by_device, 1, 0)

        return jax.tree.map(split, tree)

    def compile(step, state):
        return jax.pmap(
            lambda state, batches: step(state, batches, AXIS),
            axis_name=AXIS,
            donate_argnums=0,
        )

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
        return jax.make_array_from_process_local_data(
            NamedSharding(mesh, spec), np.asarray(x)
        )

    return jax.tree.map(put, batch)
