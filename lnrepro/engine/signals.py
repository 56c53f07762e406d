"""Handling of SIGTERM, SIGINT and SIGHUP during training.

Signals are collected while the loop runs. It stops after the same step in all
processes, and saves before the run ends. A handler raises nothing: Python may call it
within a destructor, where an error is printed and lost.
"""

import signal
import threading
from typing import Any

import jax


class Signals:
    """The signals that end a run, collected in a `with` statement.

    The system sends SIGHUP when a terminal is closed. It is left alone where it is
    ignored, as by nohup. SLURM sends SIGTERM twice, so that one that comes again
    changes nothing.

    Outside of the main thread, the program around us keeps the signals.

    Attributes:
      caught: the first signal that has arrived, or 0.
    """

    def __init__(self):
        """Collect nothing yet."""
        self.caught = 0
        self._previous: dict[int, Any] = {}
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
        self.caught = self.caught or signum
        if jax.process_count() > 1:
            # To JAX's runtime.
            signal.raise_signal(signal.SIGTERM)

    def agreed(self) -> int:
        """Return the signal to stop for, or 0.

        Several processes ask equally often, so that all stop at the same question.
        """
        if jax.process_count() == 1:
            return self.caught
        from jax.experimental import multihost_utils

        # JAX's runtime catches SIGTERM in any of the processes. It tells the others,
        # and chooses a question that none of them has reached.
        self._asked += 1
        if multihost_utils.reached_preemption_sync_point(self._asked):
            return self.caught or signal.SIGTERM
        return 0
