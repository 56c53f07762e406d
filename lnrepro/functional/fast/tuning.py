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

from lnrepro.functional.fast import kept, platform
from lnrepro.functional.fast.kernels import Way

# Platforms that have kernels.
PLATFORMS = ("gpu", "tpu")
NOT_MEASURED = "kernels are not measured here"


class Scan(NamedTuple):
    """A scan with `kernels="auto"`, while it is traced.

    Attributes:
      cell: its name, for people.
      run: (way, *arguments) -> results.
      arguments: pytrees (weights, params, carry, x, context), which may be traced.
      equations: the closed jaxpr of a step.
      sizes: "rows" and "steps".
      settings: others of its program, such as the direction.
      context: that of its call.
    """

    cell: str
    run: Callable
    arguments: tuple
    equations: Any
    sizes: dict
    settings: tuple
    context: platform.Context

    @property
    def name(self) -> str:
        """A digest of the scan and the kind of device."""
        # Functions are printed with their addresses.
        equations = re.sub(r" at 0x[0-9a-f]+", "", str(self.equations.jaxpr))
        kind = jax.local_devices()[0].device_kind
        return kept.digest(equations, self.sizes, self.settings, self.context, kind)

    @property
    def file(self) -> str:
        """The name of its record, which also depends on `machine`."""
        return f"{kept.digest(self.name, machine())}.json"

    def reason(self) -> str:
        """Say why it is the scan whatever was measured; "" where a record decides."""
        kinds = {device.device_kind for device in jax.local_devices()}
        meshes = [jax.typeof(a).sharding.mesh for a in jax.tree.leaves(self.arguments)]
        if platform.is_forced() or jax.default_backend() != self.context.platform:
            return "it is a part of another scan, or is traced for another device"
        if jax.process_count() > 1 or len(kinds) > 1:
            return "there are several processes, or kinds of devices"
        if any(mesh.size > 1 and not mesh.are_all_axes_manual for mesh in meshes):
            return "only jax.shard_map tells the part of a device of a mesh"
        if any(isinstance(a, jax.core.Tracer) for a in self.equations.consts):
            return "a step reads traced arrays of what is around"
        return ""


def look_up(scan: Scan) -> Way:
    """Return what the record of a scan says."""
    reason, record = scan.reason(), None
    # Without any record, nothing is printed or loaded to find a name.
    if not reason and kept.names(".json"):
        record = read(scan.file)
    if record is None:
        return Way(kernel=False, reason=reason or NOT_MEASURED)
    return Way(*map(record.get, Way._fields))


# (scan) -> how a scan with `kernels="auto"` runs: the records, or what stands in their
# place.
choose = contextvars.ContextVar("choose", default=look_up)


def answering(answer: Callable) -> contextlib.AbstractContextManager:
    """Let a function (scan) -> way answer in place of the records."""
    return platform.setting(choose, answer)


def kernel_where_it_can(scan: Scan) -> Way:
    """Answer with the usual kernel, for tests and `runs_as`."""
    return Way(kernel=True)


def read(name: str) -> Any:
    """Return the record of a file; None where there is none that can be read."""
    with contextlib.suppress(ValueError):
        return json.loads(kept.read(name) or "")
    return None


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
    names = kept.names(".json")
    found = [read(name) for name in names]
    for name in names if forget else ():
        kept.remove(name)
    return [record for record in found if record]


def machine() -> dict:
    """Return what a record depends on besides the scan."""
    # Only those who have a record wait until they are imported.
    from lnrepro.functional.fast.gpu import driver, nvrtc

    device: Any = jax.local_devices()[0]
    return {
        "device": device.device_kind,
        "cores": getattr(device, "core_count", None),
        "driver": driver.version(),
        "nvrtc": nvrtc.version(),
        "jax": jax.__version__,
        "runtime": device.client.platform_version,
        "code": _code(),
    }


@functools.cache
def _code():
    """A digest of the code that makes a kernel, or a loop, of equations."""
    here = pathlib.Path(__file__).parents[1]
    paths = sorted([*here.rglob("*.py"), *here.rglob("*.cuh")])
    return kept.digest(*(path.read_text() for path in paths))
