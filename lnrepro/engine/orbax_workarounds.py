"""Work-arounds for what Orbax prints and logs after a failed save or read.

Seen with orbax-checkpoint 0.12.8. When one of the parallel reads
or writes of a checkpoint fails, Orbax abandons the others. Each of them then complains
on stderr, below our own error message:

- asyncio logs "... exception was never retrieved";
- Python's sys.unraisablehook prints "Event loop is closed".

Orbax also warns about every directory that is opened for reading only, which is how
`Store` opens a run that it must not change.
"""

import logging
import sys


def install() -> None:
    """Hide these messages in this process; all other messages stay."""
    if not isinstance(sys.unraisablehook, _UnraisableHook):
        sys.unraisablehook = _UnraisableHook(sys.unraisablehook)
    for name in ("asyncio", "absl"):
        # A filter that is added twice counts once.
        logging.getLogger(name).addFilter(_is_wanted)


class _UnraisableHook:
    def __init__(self, hook):
        self._hook = hook

    def __call__(self, unraisable):
        if str(unraisable.exc_value) != "Event loop is closed":
            self._hook(unraisable)


def _is_wanted(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    return " exception was never retrieved" not in message and not message.startswith(
        "Given directory is read only"
    )
