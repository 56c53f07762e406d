"""Work-arounds for what Orbax prints and logs after a failed save or read.

Seen with orbax-checkpoint 0.12.8. When one of the parallel reads
or writes of a checkpoint fails, Orbax abandons the others. Each of them then complains
on stderr, below our own error message:

- asyncio logs "... exception was never retrieved";
- Python's sys.unraisablehook prints "Event loop is closed".
"""

import functools
import logging
import sys


@functools.cache
def install() -> None:
    """Hide these messages in this process; all other messages stay."""
    show = sys.unraisablehook

    def show_wanted(unraisable):
        if str(unraisable.exc_value) != "Event loop is closed":
            show(unraisable)

    sys.unraisablehook = show_wanted
    logging.getLogger("asyncio").addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    return " exception was never retrieved" not in record.getMessage()
