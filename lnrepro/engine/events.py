"""TensorBoard's event file of a run."""

import pathlib
import time
from typing import Any


class Events:
    """TensorBoard's event file of one process.

    It is written in the calling thread. tensorboardX's SummaryWriter has a thread and a
    queue for it. On a full disk that thread ends without an error, and once the queue
    is full the program waits forever.
    """

    def __init__(self, folder: pathlib.Path, purge: int):
        """Open the file.

        Args:
          folder: where it is.
          purge: TensorBoard hides events of earlier processes from this step on.
        """
        from tensorboardX import summary
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        # The module is generated, so type checkers do not see its classes.
        events: Any = event_pb2
        self._event, self._summary = events.Event, summary
        folder.mkdir(parents=True, exist_ok=True)
        self._file = EventsWriter(str(folder / "events"))
        start = events.SessionLog(status=events.SessionLog.START)
        self._add(step=purge, session_log=start)

    def flush(self) -> None:
        """Write what the file object still holds."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()

    def scalar(self, name: str, value: float, step: int) -> None:
        """Append one number."""
        self._add(step=step, summary=self._summary.scalar(name, value))

    def _add(self, **fields):
        self._file.write_event(self._event(wall_time=time.time(), **fields))
