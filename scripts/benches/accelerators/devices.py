"""Devices that XLA compiles for on a machine that has none of them."""

import functools
from collections.abc import Callable
from typing import Any

from jax.experimental import topologies

from lnrepro.functional.fast.platform import tracing_for

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


# {kind of TPU: name of a topology with four chips}.
TPUS = {"v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
DEVICES = ("h100", *TPUS)
# Without a device nothing is measured, and Triton or cuBLAS would be chosen by that.
# A product is one kernel either way.
_GPU_OPTIONS = {"xla_gpu_enable_triton_gemm": False}


@functools.cache
def described(name: str) -> tuple[Any, ...]:
    """Return described devices, which `jax.sharding` takes like real ones."""
    if name in TPUS:
        platform, options = "tpu", {"topology_name": TPUS[name]}
    else:
        platform, options = "cuda", {"topology_name": "", "target_config": _H100}
        options["topology"] = "1x1x1"
    return tuple(topologies.get_topology_desc(platform=platform, **options).devices)


def compile(name: str, function: Callable, *args: Any) -> Any:
    """Compile what jax.jit returned for shapes with shardings on described devices."""
    is_gpu = name not in TPUS
    with tracing_for("gpu" if is_gpu else "tpu"):
        lowered = function.lower(*args)
    return lowered.compile(compiler_options=_GPU_OPTIONS if is_gpu else None)
