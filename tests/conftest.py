"""Four CPU devices for every test, strict promotion nowhere loosened, real data only through LNREPRO_REAL_DATA.

Programs are compiled without LLVM's optimisations, since compiling is most of a test's time and they change rounding alone;
XLA_FLAGS=--xla_backend_optimization_level=3 tests the code that users run. What one worker compiled the others need not,
nor the next run of the tests.
"""

import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    )
if "xla_backend_optimization_level" not in os.environ["XLA_FLAGS"]:
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0"
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(pathlib.Path(__file__).parent.parent / ".pytest_cache" / "xla"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import pytest


@pytest.fixture
def real_data(request) -> pathlib.Path:
    """The folder that holds the official files, e.g. `mnist/`; the test is skipped where LNREPRO_REAL_DATA is not set."""
    root = os.environ.get("LNREPRO_REAL_DATA")
    if not root:
        pytest.skip("LNREPRO_REAL_DATA is not set: no official files to test on")
    return pathlib.Path(root)
