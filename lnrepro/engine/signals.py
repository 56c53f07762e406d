"""Handling of SIGTERM, SIGINT and SIGHUP during training.

Signals are collected while the loop runs. It stops after the same step in all
processes, and saves before the run ends. An evaluation is interrupted.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax

# A second signal within this time counts as the first one: SLURM sends two within
# milliseconds when it preempts a job.
REPEAT_S = 2.0


class Interrupted(BaseException):
    """A signal arrived during an evaluation.

    It is no Exception, so that nothing within the evaluation handles it.
    """


class Signals:
    """The signals that end a run, collected in a `with` statement.

    The system sends SIGHUP when a terminal is closed. It is left alone where it is
    ignored, as by nohup.

    A second signal of the same kind acts at once, if it comes REPEAT_S after the first.
    Outside of the main thread, the program around us keeps the signals.

    Attributes:
      caught: the signals that have arrived, the oldest first.
    """

    def __init__(self):
        """Collect nothing yet."""
        self.caught: list[int] = []
        self._first_time: dict[int, float] = {}
        self._previous: dict[int, Any] = {}
        self._interrupts = False
        self._asked = 0

    def __enter__(self) -> "Signals":
        # Only the main thread may set a handler.
        if threading.current_thread() is not threading.main_thread():
            return self
        numbers = [signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        if jax.process_count() == 1:
            numbers.append(signal.SIGTERM)
        else:
            # JAX's runtime catches SIGTERM, see `agreed`. Later it would do nothing.
            self._previous[signal.SIGTERM] = signal.SIG_DFL
        for number in numbers:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, signum, frame):
        self.caught.append(signum)
        now = time.monotonic()
        if now - self._first_time.setdefault(signum, now) > REPEAT_S:
            signal.signal(signum, self._previous[signum])
            signal.raise_signal(signum)
        elif jax.process_count() > 1:
            # To JAX's runtime.
            signal.raise_signal(signal.SIGTERM)
        elif self._interrupts:
            # Once: a second signal must not interrupt what ends the evaluation.
            self._interrupts = False
            raise Interrupted

    def agreed(self) -> int:
        """Return the signal to stop for, or 0.

        Several processes ask equally often, so that all stop at the same question.
        """
        own = self.caught[0] if self.caught else 0
        if jax.process_count() == 1:
            return own
        from jax.experimental import multihost_utils

        # JAX's runtime catches SIGTERM in any of the processes. It tells the others,
        # and chooses a question that none of them has reached.
        self._asked += 1
        if multihost_utils.reached_preemption_sync_point(self._asked):
            return own or signal.SIGTERM
        return 0

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise Interrupted in the body when a signal arrives.

        A single process raises it anywhere, several at the next `between_batches`.
        """
        global _interrupting
        self._interrupts, _interrupting = True, self
        try:
            yield
        finally:
            self._interrupts, _interrupting = False, None


# The signals of the evaluation that runs, None where it may not be interrupted.
_interrupting: Signals | None = None


def between_batches() -> None:
    """Raise Interrupted in an evaluation of several processes that a signal ends.

    All processes call it equally often.
    """
    if _interrupting and jax.process_count() > 1 and _interrupting.agreed():
        raise Interrupted
