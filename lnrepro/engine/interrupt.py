"""Ctrl-C before and after training ends the process at once.

Python calls signal handlers between two steps of its main thread. While that thread
imports, a KeyboardInterrupt breaks the import; while it waits for XLA's compiler, the
handler waits too. A thread that reads the signal from a pipe needs no main thread.

This module imports nothing but the standard library, so that it can come first.
"""

import os
import signal
import sys
import threading

EXIT_CODE = 128 + signal.SIGINT

# The handler and the thread may both see a signal. The first of them ends the process.
_ending = threading.Lock()


def exit_at_once() -> None:
    """End the process on SIGINT, with one line, while nothing else handles it.

    The training loop has a handler of its own, which saves first. A signal that arrives
    while the handlers change reaches one of them: the thread leaves it alone only if
    the new handler is set, and Python then calls the new one.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _handle)
    threading.Thread(target=_wait, args=(reader,), daemon=True).start()


def _wait(reader):
    # The pipe has a byte for each signal: its number.
    while number := os.read(reader, 1):
        is_ours = signal.getsignal(signal.SIGINT) is _handle
        if number[0] == signal.SIGINT and is_ours:
            _end()


def _handle(signum, frame):
    # Instead of raising KeyboardInterrupt.
    _end()


def _end():
    if not _ending.acquire(blocking=False):
        return
    # A progress bar hides the cursor.
    shown = "\x1b[?25h" if sys.stderr.isatty() else ""
    os.write(2, f"{shown}interrupted\n".encode())
    # This module may be half imported.
    peers = sys.modules.get("lnrepro.engine.peers")
    getattr(peers, "expect_exit", int)()
    os._exit(EXIT_CODE)
