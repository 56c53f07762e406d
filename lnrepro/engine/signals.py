"""SIGTERM and SIGINT: collected while a run must not die, agreed on among its processes, raised once all is saved."""

import contextlib
import signal
import time
from collections.abc import Iterator

import jax
import numpy as np

REPEAT_S = 2.0  # a signal that comes again after so long is meant


class Stopped(Exception):
    """SIGTERM or SIGINT arrived; the state is saved. The exit code is 128 plus the signal's number."""

    def __init__(self, signum: int, step: int):
        super().__init__(
            f"stopped by {signal.Signals(signum).name} at step {step}; saved, the same command resumes"
        )
        self.exit_code = 128 + signum


class Caught(list[int]):
    """Signals that have arrived, oldest first."""

    saved: int | None = None  # the last step, once nothing is left to save

    def agreed(self, step: int, log_every: int) -> int:
        """The signal to stop for, 0 for none. Several processes ask one another at log points, so that all stop at one
        step."""
        mine = self[0] if self else 0
        if jax.process_count() == 1:
            return mine
        if step % log_every:
            return 0
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.array(mine)).max())

    @contextlib.contextmanager
    def at_once(self, step: int) -> Iterator[None]:
        """Within, the first signal raises Stopped where it arrives, as does one that had arrived before."""
        self.saved = step
        try:
            if self:
                raise Stopped(self[0], step)
            yield
        finally:
            self.saved = None


@contextlib.contextmanager
def collect() -> Iterator[Caught]:
    """Collect SIGTERM and SIGINT in what is yielded instead of dying; a second one of the same kind acts at once.

    It must come REPEAT_S after the first: SLURM, when it preempts, sends two within milliseconds, and means one.
    """
    caught = Caught()
    first: dict[int, float] = {}

    def note(signum, frame):
        caught.append(signum)
        if time.monotonic() - first.setdefault(signum, time.monotonic()) > REPEAT_S:
            signal.signal(signum, previous[signum])
            signal.raise_signal(signum)
        if caught.saved is not None:
            step, caught.saved = caught.saved, None
            raise Stopped(signum, step)

    try:
        previous = {s: signal.signal(s, note) for s in (signal.SIGTERM, signal.SIGINT)}
    except (
        ValueError
    ):  # not in the main thread: somebody embeds us and keeps the signals
        yield caught
        return
    try:
        yield caught
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)
