"""How a kernel is laid out on a GPU: blocks, rows and registers."""

import math
from typing import NamedTuple

import jax

from lnrepro.functional.fast.gpu import driver, text
from lnrepro.functional.fast.gpu.fit import Layout, fits
from lnrepro.functional.fast.gpu.program import Program
from lnrepro.functional.fast.kernels import NoKernel

# Blocks of a cluster. XLA launches no larger ones.
CLUSTERS = (1, 2, 4, 8)
# Bytes of local memory that a kernel may take, which is outside of XLA's pool. The
# driver reserves it for all threads that the GPU holds, whatever a kernel starts: at
# LN-LSTM of 512 units 277 MB (H200).
LOCAL_MEMORY = 512 * 2**20
# Of the clusters that the multiprocessors would hold by their number, so many are not
# counted on where there is no driver to ask: an H200 holds 15 of 8 blocks, not 16.
SPARE_CLUSTERS = 2


class Device(NamedTuple):
    """What a layout depends on of a GPU. The defaults are an H100's."""

    cores: int = 132  # Multiprocessors; under MIG, those of a part.
    shared: int = 227 * 1024  # Bytes of shared memory of a block.
    has_clusters: bool = True
    l2: int = 50 * 2**20  # Bytes of the L2 cache.
    threads: int = 2048  # That a multiprocessor holds.

    def at_once(self, blocks: int) -> int:
        """Return how many clusters of so many blocks run at the same time."""
        if blocks == 1:
            return self.cores
        if not self.has_clusters:
            return 0
        if jax.default_backend() == "gpu":
            return driver.clusters(blocks, 32 * 8, self.shared)
        most = self.cores // blocks
        return min(most, max(1, most - SPARE_CLUSTERS))


class Kernel(NamedTuple):
    """A kernel for so many rows and steps."""

    source: str  # In CUDA.
    results: list  # Last carries [groups, B, ...], and outputs [groups, T, B, ...].
    clusters: int  # Of all groups.
    blocks: int  # Of all clusters.
    threads: int  # Of a block.
    shared: int  # Bytes of shared memory of a block.
    architecture: str  # Of NVRTC.
    behind_l2: int  # Bytes of weights that a block reads in every step.

    def __str__(self) -> str:
        return (
            f"{self.clusters} clusters of {self.blocks // self.clusters} blocks of "
            f"{self.threads} threads; a block reads {self.behind_l2} bytes of weights "
            "in every step"
        )


def kernel(
    program: Program,
    rows: int,
    steps: int,
    reverse: bool,
    layout: Layout,
    groups: int,
) -> Kernel:
    """Return the kernel of a program for B rows and T steps.

    Args:
      program: what a step computes.
      rows: B.
      steps: T.
      reverse: whether it runs from the last step to the first.
      layout: one of `candidates`.
      groups: how often there are B rows, with other weights or inputs.
    """
    shared = device().shared
    fitted = fits(program, layout, shared)
    sizes = {"stack": (groups, steps, rows)}
    results = [
        a.row.update(shape=sizes.get(a.what, (groups, rows)) + a.row.shape)
        for a in program.results
    ]
    numbers = {
        "C": layout.blocks,
        "R": layout.rows,
        "H": program.units,
        "REVERSE": int(reverse),
        "GROUPED": int(groups > 1),
        "SHARED": shared,
    }
    clusters = groups * -(-rows // layout.rows)
    return Kernel(
        text.source(program, numbers, fitted),
        results,
        clusters,
        clusters * layout.blocks,
        32 * layout.rows,
        shared,
        # What was made for a capability runs on all later ones.
        "compute_90" if layout.blocks > 1 else "compute_80",
        _behind_l2(fitted),
    )


def candidates(program: Program, rows: int, groups: int = 1) -> list[Layout]:
    """Return up to three layouts, of which a measurement may take the best.

    Args:
      program, rows, groups: as for `kernel`.

    Returns:
      The layout to take without a measurement, and others by their estimated time.
    """
    times = _estimates(program, rows, groups)
    *_, usual = _layouts(program, rows, groups)
    near = [one for one in times if times[one] <= 1.5 * min(times.values())]
    return sorted(near, key=lambda layout: (layout != usual, times[layout]))[:3]


def check(program: Program, rows: int, measured: Layout | None) -> None:
    """Check that there can be a kernel.

    Args:
      program, rows: as for `kernel`.
      measured: the layout that it is to have, if any.

    Raises:
      NoKernel: its weights are too large, or it cannot have the layout.
    """
    times = _estimates(program, rows, groups=1)
    if not times:
        raise NoKernel(f"{device().shared // 1024} KiB of shared memory are too few")
    if measured and measured not in times:
        raise NoKernel(f"it cannot have the layout {tuple(measured)}")
    if min(times.values()) == math.inf:
        raise NoKernel(
            "its weights: what is not on chip exceeds the L2 cache, or "
            f"{LOCAL_MEMORY // 2**20} MiB of local memory"
        )


def _layouts(program, rows, groups):
    """Yield the layouts that a GPU runs; of the last one are all measurements."""
    gpu = device()
    for blocks in [c for c in CLUSTERS if gpu.at_once(c) > 0]:
        # The last block has units too.
        if (blocks - 1) * Layout(blocks, 8).units(program) < program.units:
            yield Layout(blocks, 8)
            # More clusters than the GPU holds at once would wait for each other: at
            # B 128, H 256, a step takes 4.4 us in place of 2.2 (H200).
            if groups * -(-rows // 8) > gpu.at_once(blocks):
                yield Layout(blocks, 16)
        # These are the fewest blocks in which every lane has one unit.
        if program.units <= 32 * blocks:
            return


def _estimates(program, rows, groups):
    """{layout: microseconds of a step} of all layouts that fit on the GPU."""
    times = {}
    for layout in _layouts(program, rows, groups):
        if fitted := fits(program, layout, device().shared):
            clusters = groups * -(-rows // layout.rows)
            times[layout] = _microseconds(program, layout, fitted, clusters)
    return times


def _behind_l2(fitted):
    """Bytes of weights that a block reads in every step."""
    return sum(fit.groups[2] * fit.size for fit in fitted)


def _microseconds(program, layout, fitted, clusters):
    """Estimate a step of the forward pass.

    Measured: 2.1 us at H 240, 2.2 at H 256, 3.1 there with 16 rows, 5.4 at H 400, which
    is where the numbers are from (LN-LSTM, H200). Without the product, or without what
    travels between the blocks, the first takes 0.45 less.
    """
    gpu, height = device(), layout.rows / 8
    at_once = min(clusters, gpu.at_once(layout.blocks))
    step = 0.7 + 0.5 * height * layout.of_lane(program)
    if layout.blocks > 1:
        step += 0.28 + 0.02 * layout.blocks
    # Bytes a us that a block reads from L2, and all blocks together.
    rate = min(1e5, 4.5e6 / (at_once * layout.blocks))
    for fit in fitted:
        step += 0.45 * height * sum(fit.groups) * fit.size / 115e3
    # Every block has a copy of what it reads. From memory that would take longer than
    # the loop of XLA.
    read = _behind_l2(fitted)
    reserved = gpu.cores * gpu.threads * (read // (32 * layout.rows))
    if at_once * layout.blocks * read > gpu.l2 or reserved > LOCAL_MEMORY:
        return math.inf
    step += read / rate
    return step * -(-clusters // at_once)


def device() -> Device:
    """Return the GPU at hand, or an H100."""
    if jax.default_backend() != "gpu":
        return Device()
    return Device(
        driver.attribute(driver.MULTIPROCESSORS),
        driver.attribute(driver.SHARED_MEMORY_OF_BLOCK),
        driver.attribute(driver.MAJOR_COMPUTE_CAPABILITY) >= 9,
        driver.attribute(driver.L2_CACHE_SIZE),
        driver.attribute(driver.THREADS_OF_MULTIPROCESSOR),
    )
