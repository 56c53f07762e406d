"""Handling of SIGTERM and SIGINT during training.

Signals are collected while the loop runs. All processes agree on the step after which
they stop. The state is saved before the run ends.
"""

import contextlib
import signal
import time
from collections.abc import Iterator

import jax
import numpy as np

# A second signal within this time counts as the first one: SLURM sends two within
# milliseconds when it preempts a job.
REPEAT_S = 2.0


class Stopped(Exception):
    """SIGTERM or SIGINT arrived, and the state is saved.

    Attributes:
      exit_code: 128 plus the number of the signal.
    """

    def __init__(self, signum: int, step: int):
        """Make the message for signal `signum` after `step` steps."""
        name = signal.Signals(signum).name
        super().__init__(
            f"stopped by {name} at step {step}; saved, the same command resumes"
        )
        self.exit_code = 128 + signum


class CaughtSignals(list[int]):
    """The signals that have arrived, the oldest first.

    Attributes:
      saved_step: the last step once nothing is left to save, else None.
    """

    saved_step: int | None = None

    def agreed(self, step: int, log_every: int) -> int:
        """Return the signal to stop for, or 0.

        Args:
          step: the number of steps taken.
          log_every: several processes ask each other at multiples of it, so that all
            stop after the same step.
        """
        # Processes may get the signal at different steps, and a step needs all of them.
        own = self[0] if self else 0
        if jax.process_count() == 1:
            return own
        if step % log_every:
            return 0
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.array(own)).max())

    @contextlib.contextmanager
    def at_once(self, step: int) -> Iterator[None]:
        """Raise Stopped as soon as a signal arrives, or if one has arrived already."""
        self.saved_step = step
        try:
            if self:
                raise Stopped(self[0], step)
            yield
        finally:
            self.saved_step = None


@contextlib.contextmanager
def collect() -> Iterator[CaughtSignals]:
    """Collect SIGTERM and SIGINT instead of ending the process.

    A second signal of the same kind acts at once, if it comes REPEAT_S after the first.
    """
    caught = CaughtSignals()
    first_time: dict[int, float] = {}

    def handle(signum, frame):
        # Only a note: the loop stops where the state can be saved.
        caught.append(signum)
        now = time.monotonic()
        if now - first_time.setdefault(signum, now) > REPEAT_S:
            signal.signal(signum, previous[signum])
            signal.raise_signal(signum)
        if caught.saved_step is not None:
            step, caught.saved_step = caught.saved_step, None
            raise Stopped(signum, step)

    try:
        previous = {
            number: signal.signal(number, handle)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
    except ValueError:
        # Outside of the main thread, the program around us keeps the signals.
        yield caught
        return
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
