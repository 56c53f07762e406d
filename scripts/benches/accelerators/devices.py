"""Devices that XLA compiles for on a machine that has none of them.

The sizes of their memories are those of the vendors' data sheets.
"""

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax.experimental import topologies

from lnrepro.errors import UserError

# What XLA's GPU compiler asks of a device.
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132
  fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84942979072
  shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


class Device(NamedTuple):
    """A kind of device.

    Attributes:
      platform: the platform that JAX lowers for.
      memory: bytes of its memory.
      topologies: {number of chips: name of a topology} of TPUs.
    """

    platform: str
    memory: float
    topologies: Mapping[int, str] = types.MappingProxyType({})


DEVICES = {
    "h100": Device("cuda", 80e9),
    "v4": Device("tpu", 32 * 2**30, {1: "v4:2x2x1", 4: "v4:2x2x1"}),
    "v5e": Device("tpu", 16 * 2**30, {1: "v5e:2x2", 4: "v5e:2x2", 8: "v5e:2x4"}),
    "v5p": Device("tpu", 95e9, {1: "v5p:2x2x1", 4: "v5p:2x2x1"}),
    "v6e": Device("tpu", 32 * 2**30, {1: "v6e:2x2", 4: "v6e:2x2", 8: "v6e:2x4"}),
}
# Without a device nothing is measured, and Triton or cuBLAS would be chosen by that.
# A product is one kernel either way.
_GPU_OPTIONS = {"xla_gpu_enable_triton_gemm": False}


@functools.cache
def described(name: str, count: int = 1) -> tuple[Any, ...]:
    """Return so many described devices, which `jax.sharding` takes like real ones.

    Raises:
      UserError: there is no topology of so many.
    """
    device = DEVICES[name]
    if device.platform == "cuda":
        options = {"topology_name": "", "target_config": _H100}
        options["topology"] = f"1x1x{count}"
    elif count in device.topologies:
        options = {"topology_name": device.topologies[count]}
    else:
        known = ", ".join(map(str, device.topologies))
        raise UserError(f"--devices {count}: there are topologies of {known} {name}")
    found = topologies.get_topology_desc(platform=device.platform, **options)
    return tuple(found.devices[:count])


def compile(name: str, function: Callable, *args: Any) -> Any:
    """Compile what jax.jit returned for shapes with shardings on described devices."""
    options = _GPU_OPTIONS if DEVICES[name].platform == "cuda" else None
    return function.lower(*args).compile(compiler_options=options)
