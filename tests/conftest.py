"""Settings of every test: the CPU as four devices, and quick compilation.

Programs are compiled without LLVM's optimisations and by XLA's older compiler of
fusions, because compiling takes most of a test's time. They change nothing but
rounding. To test the code that users run, set
XLA_FLAGS=--xla_backend_optimization_level=3. Compiled programs are kept on disk, so
that the other workers and the next run need not compile them again.

Tests on the official data sets run only where LNREPRO_REAL_DATA names their folder.

With LNREPRO_SKIPS=listed, a test that is skipped for a reason that is not in
LISTED_SKIPS fails. The nightly job sets it, since it installs everything.
"""

import gc
import importlib.metadata
import itertools
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    )
if "xla_backend_optimization_level" not in os.environ["XLA_FLAGS"]:
    # Each program by one thread: the tests run in a process per core, and the parts of
    # a program that is split among threads take longer together.
    os.environ["XLA_FLAGS"] += (
        " --xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
    )
    # It halves the time to compile. An XLA without this flag refuses to start. There,
    # to leave out expensive passes of LLVM saves a tenth.
    if importlib.metadata.version("jaxlib").startswith("0.10."):
        os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
    else:
        os.environ["XLA_FLAGS"] += " --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    str(pathlib.Path(__file__).parent.parent / ".pytest_cache" / "xla"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import pytest

# Linux allows a process 65,530 mapped regions (`vm.max_map_count`); each compiled
# program needs several. A compiler that gets no more ends with a segmentation fault.
# A test needs 30 on average, so that twenty tests stay far below the limit.
MAPPED_REGIONS = 30_000
TESTS_BETWEEN_COUNTS = 20
_tests_run = itertools.count(1)

# Beginnings of reasons for which the nightly job may skip a test.
LISTED_SKIPS = (
    "LNREPRO_REAL_DATA is not set",
    "the compilers are not installed",
)


def pytest_collection_modifyitems(items):
    """Let -m "not slow" leave out the nightly tests too."""
    for item in items:
        if item.get_closest_marker("nightly"):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Let a skip whose reason is not listed fail, where that is asked for."""
    report = yield
    # Of an expected failure, the reason is no tuple.
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        wants_listed = os.environ.get("LNREPRO_SKIPS") == "listed"
        if wants_listed and not reason.startswith(LISTED_SKIPS):
            report.outcome = "failed"
    return report


# Of a whole file.
pytest_make_collect_report = pytest_runtest_makereport


def pytest_collection_finish():
    """Let the collector of cycles run rarely, and pass over what was imported.

    Tracing allocates many objects that live long. Without this, a tenth of the time of
    tests/functional goes to collections that free little.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_make_parametrize_id(val, argname):
    """Name bytes after their argument, numbered where there are several.

    Packed bytes hold the time at which they were packed. Workers that collect at
    different times would not agree on the names of the tests.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def free_compiled_programs():
    """Drop the compiled programs once they take many of the process's regions."""
    yield
    # To count 30,000 regions takes 32 ms.
    if next(_tests_run) % TESTS_BETWEEN_COUNTS:
        return
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAPPED_REGIONS:
        jax.clear_caches()


@pytest.fixture
def real_data() -> pathlib.Path:
    """The folder of the official files; a skip where LNREPRO_REAL_DATA is not set."""
    root = os.environ.get("LNREPRO_REAL_DATA")
    if not root:
        pytest.skip("LNREPRO_REAL_DATA is not set: no official files to test on")
    return pathlib.Path(root)


@pytest.fixture(scope="session")
def mnist_run(tmp_path_factory) -> pathlib.Path:
    """A finished run of configs/mnist.py:smoke, which no test changes.

    Its data set is in `mnist_run.parent / "data"`.
    """
    from tests import runs

    def make(folder):
        code, _, error = runs.run(folder.parent, runs.SMOKE, f"--workdir={folder}")
        assert code == 0, error

    return runs.once(tmp_path_factory, "mnist", make)
