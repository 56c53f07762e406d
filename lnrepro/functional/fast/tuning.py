"""What `ScanOptions(kernels="auto")` runs: a look-up of what `autotune` has measured.

    equations of a step, sizes, device, versions --> a record on disk --> kernel or scan

Nothing is compiled, started or written here. Without a record it is the scan.
"""

import contextlib
import contextvars
import functools
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core

from lnrepro.functional.fast import disk_cache, platform
from lnrepro.functional.fast.kernels import Implementation

# Platforms that have kernels.
PLATFORMS = ("gpu", "tpu")
NOT_MEASURED = "kernels are not measured here"


class Scan(NamedTuple):
    """A scan with `kernels="auto"`, while it is traced.

    Attributes:
      run: (implementation, *arguments) -> results.
      arguments: pytrees (weights, params, carry, x, context), which may be traced.
      equations: the closed jaxpr of a step.
      about: what else a program depends on, for people: cell, device, sizes, options.
      context: that of its call.
      reason: why it has no kernel, whatever was measured; "" where a record decides.
    """

    run: Callable
    arguments: tuple
    equations: Any
    about: dict
    context: platform.Context
    reason: str

    @property
    def name(self) -> str:
        """A digest of the scan, the kind of device and the reason."""
        # Functions are printed with their addresses.
        equations = re.sub(r" at 0x[0-9a-f]+", "", str(self.equations.jaxpr))
        return disk_cache.digest(equations, self.about, self.context, self.reason)

    @property
    def file(self) -> str:
        """The name of its record, which also depends on `machine`."""
        return disk_cache.digest(self.name, machine()) + ".measured"


def reason_against(equations: Any, arguments: Any, context: platform.Context) -> str:
    """Return the reason of a scan that is traced.

    Args:
      equations, arguments, context: those of the `Scan`.
    """
    places = {(device.process_index, device.device_kind) for device in jax.devices()}
    meshes = [jax.typeof(a).sharding.mesh for a in jax.tree.leaves(arguments)]
    if platform.is_forced() or jax.default_backend() != context.platform:
        return "it is a part of another scan, or is traced for another device"
    if len(places) > 1:
        return "there are several processes, or kinds of devices"
    if any(mesh.size > 1 and not mesh.are_all_axes_manual for mesh in meshes):
        return "only jax.shard_map tells the part of a device of a mesh"
    if any(isinstance(a, jax.core.Tracer) for a in equations.consts):
        return "a step reads traced arrays of what is around"
    return ""


def look_up(scan: Scan) -> Implementation:
    """Return what the record of a scan says."""
    # Without any record, nothing is printed or loaded to find its name.
    found = records()
    record = found.get(scan.file) if found else None
    if not record:
        return Implementation(kernel=False, reason=scan.reason or NOT_MEASURED)
    return Implementation(*map(record.get, Implementation._fields))


# (scan) -> how a scan with `kernels="auto"` runs, or None for the loop: the records, or
# what stands in their place.
choose = contextvars.ContextVar("choose", default=look_up)


def answering(answer: Callable) -> contextlib.AbstractContextManager:
    """Let a function of a scan answer in place of the records."""
    return platform.setting(choose, answer)


def kernel_where_it_can(scan: Scan) -> Implementation:
    """Answer with the usual kernel, for tests and `runs_as`."""
    return Implementation(kernel=True)


def records() -> dict[str, Any]:
    """Return {name: record}, the newest last.

    Each is a file, so that no process overwrites what another keeps at the same time.
    """
    found = {}
    for name in disk_cache.names("*.measured"):
        # A file that holds no record counts for none.
        with contextlib.suppress(ValueError):
            found[name] = json.loads(disk_cache.read(name) or "")
    return found


def measured_kernels(*, forget: bool = False) -> list[dict]:
    """Return what `autotune` has measured on this machine.

    Args:
      forget: whether to delete it.

    Returns:
      A record of each scan, the newest last: what it was measured on, "cell", "rows",
      "steps", whether it takes a "kernel", in which "layout" (blocks and rows of a
      cluster), the "reason" against one, milliseconds of a training step, and errors.

    >>> from lnrepro.functional import measured_kernels
    >>> isinstance(measured_kernels(), list)
    True
    """
    found = records()
    if forget:
        for name in found:
            disk_cache.remove(name)
    return list(found.values())


def machine() -> dict:
    """Return what a record depends on besides the scan."""
    # Only those who have a record wait until they are imported.
    from lnrepro.functional.fast.gpu import nvrtc

    return {
        "cuda": nvrtc.versions(),
        "jax": jax.__version__,
        "runtime": jax.local_devices()[0].client.platform_version,
        "code": _code(),
    }


@functools.cache
def _code():
    """A digest of the code that makes a kernel, or a loop, of equations."""
    here = pathlib.Path(__file__).parents[1]
    paths = sorted([*here.rglob("*.py"), *here.rglob("*.cuh")])
    return disk_cache.digest(*map(pathlib.Path.read_text, paths))
