"""Placement of the training state and the batches on devices.

`jit` over a mesh of devices is the default, `pmap` an option. The mesh has two axes.
Batches are split over "data". Over "model" only the arrays are split that
`config.mesh.shard` names, such as matrices as large as the vocabulary. Everything else
is on every device.

Shape letters: K stacked batches, S seeds, B batch.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.errors import UserError

AXIS, MODEL = "data", "model"


class Placement(NamedTuple):
    """How a step is compiled, and how state and batches move.

    Attributes:
      compile: (step, state) -> compiled (state, batches) -> (state, metrics). `step`
        takes (state, batches, axis to average over or None). `state` is the placed
        state that it will start with. The state is donated and stays where it is.
      place: state on the host -> state on the devices.
      batch: arrays [K, B, ...] on the host, this process's rows -> on the devices.
      vars: state on the devices -> a single logical array each, for evaluation.
    """

    compile: Callable[[Callable, Any], Callable]
    place: Callable[[Any], Any]
    batch: Callable[[Any], Any]
    vars: Callable[[Any], Any]

    def read(self, tree: Any) -> Any:
        """Return a state or the metrics of a step as NumPy copies."""
        return jax.tree.map(_copy, self.vars(tree))


def make(
    kind: str,
    batch_size: int,
    seeds: int = 1,
    model: int = 1,
    shard: Sequence[tuple[str, int]] = (),
) -> Placement:
    """Return a placement over all devices.

    Args:
      kind: "jit" or "pmap".
      batch_size: the global batch size, a multiple of the size of the data axis.
      seeds: number of seeds trained together. With several, batches are [K, S, B, ...].
      model: number of devices that share each array that `shard` names.
      shard: (name, axis) pairs. An array of the state whose path ends in the name is
        split along the axis.

    Raises:
      UserError: values that do not fit together or do not fit the devices.
    """
    if kind not in ("jit", "pmap"):
        raise UserError(f"config.placement = {kind!r}: choose jit or pmap")
    if kind == "pmap":
        # With several processes, evaluations would count the rows of this one alone.
        for field, number in (
            ("config.seeds", seeds),
            ("config.mesh.model", model),
            ("the number of processes", jax.process_count()),
        ):
            if number > 1:
                raise UserError(f"{field} = {number} needs config.placement = 'jit'")
    # Every row of devices along "model" holds one whole copy of the state, and every
    # such row reads its own part of the batch.
    count = jax.device_count()
    if count % model:
        raise UserError(
            f"config.mesh.model = {model} does not divide the {count} devices"
        )
    if model > 1 and not shard:
        raise UserError(
            f"config.mesh.model = {model}, but config.mesh.shard names nothing to share"
        )
    data = count // model
    if batch_size % data:
        raise UserError(
            f"config.batch_size = {batch_size} does not divide over {data} devices; "
            f"take {batch_size + -batch_size % data}, or fewer devices"
        )
    if kind == "pmap":
        return _pmap()
    # Auto axes: XLA derives the shardings inside the step from those of its arguments.
    mesh = jax.make_mesh((data, model), (AXIS, MODEL), axis_types=(AxisType.Auto,) * 2)
    return _jit(mesh, seeds > 1, shard)


def check_pallas(pallas: bool | None, kind: str) -> None:
    """Raise UserError where the devices cannot run `config.pallas`.

    Args:
      pallas: `config.pallas`.
      kind: "jit" or "pmap".
    """
    devices = jax.devices()
    platform = devices[0].platform
    if pallas and platform != "tpu":
        raise UserError(f"config.pallas = True needs a TPU; the devices are {platform}")
    if pallas is not False and platform == "tpu" and kind == "jit" and devices[1:]:
        raise UserError(
            f"config.pallas = {pallas}: XLA does not split a kernel over the "
            f"{len(devices)} devices; take one device, or config.placement = 'pmap'"
        )


def _copy(x):
    # np.array copies. Without a copy, NumPy may share memory with a device buffer that
    # the next step reuses.
    if isinstance(x, jax.Array) and not (
        x.is_fully_addressable or x.is_fully_replicated
    ):
        # An array that is split over processes is gathered from all of them first.
        from jax.experimental import multihost_utils

        return np.array(multihost_utils.process_allgather(x, tiled=True))
    return np.array(x)


def _jit(mesh, has_seeds, shard):
    """Place on a mesh: batches split over "data", `shard` over "model"."""
    replicated = NamedSharding(mesh, P())
    # Batches are [K, B, ...], or [K, S, B, ...] with several seeds. B is split.
    rows = NamedSharding(mesh, P(None, None, AXIS) if has_seeds else P(None, AXIS))

    def axis_to_split(name):
        # The slashes make "w" match ".../w" and not ".../new_w". Optimiser moments have
        # paths that end as those of their parameters do, so they are split alike.
        for end, axis in shard if mesh.shape[MODEL] > 1 else ():
            if f"/{name}".endswith(f"/{end}"):
                # The first axis may be that of the seeds.
                return axis + has_seeds
        return None

    def sharding_of(path, x):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        axis = axis_to_split(name)
        if axis is None:
            return replicated
        if np.ndim(x) <= axis or np.shape(x)[axis] % mesh.shape[MODEL]:
            raise UserError(
                f"config.mesh.shard: axis {axis} of {name} {np.shape(x)} does not "
                f"divide over config.mesh.model = {mesh.shape[MODEL]}"
            )
        return NamedSharding(mesh, P(*[None] * axis, MODEL))

    def place(tree):
        def put(path, x):
            x = np.asarray(x)
            # Each process passes only the parts that its own devices hold.
            return jax.make_array_from_callback(
                x.shape, sharding_of(path, x), lambda index: x[index]
            )

        return jax.tree.map_with_path(put, tree)

    def batch(tree):
        if jax.process_count() == 1:
            return jax.device_put(tree, rows)
        return jax.tree.map(
            lambda x: jax.make_array_from_process_local_data(rows, x), tree
        )

    def compile(step, state):
        # The new state must be placed as the old one is, whose memory it takes over.
        # Without this XLA could choose another placement.
        shardings = jax.tree.map(lambda x: x.sharding, state)
        return jax.jit(
            lambda state, batches: step(state, batches, None),
            donate_argnums=0,
            out_shardings=(shardings, replicated),
        )

    return Placement(compile, place, batch, lambda tree: tree)


def _pmap():
    """Place by pmap: batch norm takes its statistics on each device by itself."""
    local = jax.local_device_count()

    def place(tree):
        # pmap maps over the first axis, so the state has a copy per local device.
        def copy_to_all(x):
            return np.broadcast_to(np.asarray(x), (local, *np.shape(x)))

        return jax.tree.map(copy_to_all, tree)

    def batch(tree):
        # [K, B, ...] -> [local, K, B / local, ...]
        def split(x):
            # The rows of a batch are split evenly over the local devices.
            by_device = x.reshape(x.shape[0], local, -1, *x.shape[2:])
            return np.moveaxis(by_device, 1, 0)

        return jax.tree.map(split, tree)

    def compile(step, state):
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
    leaf = jax.tree.leaves(vars)[0]
    if not isinstance(getattr(leaf, "sharding", None), NamedSharding):
        return batch
    mesh = leaf.sharding.mesh
    if AXIS not in mesh.axis_names:
        return batch

    def put(x):
        # Every process has the same number of rows, so this is the size of the whole
        # batch.
        rows = x.shape[0] * jax.process_count()
        divides = rows % mesh.shape[AXIS] == 0
        if not divides and jax.process_count() > 1:
            raise UserError(
                f"an evaluation batch of {rows} rows does not divide over "
                f"{mesh.shape[AXIS]} devices of {jax.process_count()} processes; set "
                "config.eval_batch_size to a multiple"
            )
        # P(AXIS) splits the rows, P() puts all of them on every device.
        sharding = NamedSharding(mesh, P(AXIS) if divides else P())
        return jax.make_array_from_process_local_data(sharding, np.asarray(x))

    return jax.tree.map(put, batch)
