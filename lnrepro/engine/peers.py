"""Start-up and failure handling of several processes, on top of jax.distributed.

JAX's distributed runtime ends a process that has lost its peers by an abort in C++,
with pages of stack trace, and Python cannot handle it. So a small child process waits
for the end of this one. After an abort it prints a last line that says what to do.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from lnrepro.errors import UserError

# Seconds between two messages that a process is still waiting.
MESSAGE_EVERY_S = 10.0

# How long to wait for what another process has to say, which may prepare its data.
A_DAY_MS = 24 * 3600 * 1000

LOST = (
    "error: another process of this run was lost, so this one stopped; "
    "start all of them again: they resume at the last checkpoint"
)
ABORTED = (
    "error: this process was aborted or killed; most likely another process of this "
    "run was lost; start all of them again: they resume at the last checkpoint"
)


class _LastLine:
    """A line that is printed on standard error if this process is aborted or killed.

    A child process reads the lines from a pipe. At the end of this process it prints
    the last one.
    """

    def __init__(self):
        self._write_end: int | None = None

    def start(self) -> None:
        """Start the child process."""
        read_end, write_end = os.pipe()
        if not os.fork():
            os.close(write_end)
            _print_last_line(read_end)
        os.close(read_end)
        self._write_end = write_end

    def set(self, line: str) -> bool:
        """Replace the line. An empty one prints nothing.

        Returns:
          Whether the child process is there to print it.
        """
        if self._write_end is None:
            return False
        os.write(self._write_end, f"{line}\n".encode())
        return True


_last_line = _LastLine()


def initialize(
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    timeout_s: int,
) -> None:
    """Join the other processes.

    Args:
      coordinator: HOST:PORT of process 0. None lets JAX find it (TPU, SLURM).
      num_processes: number of processes, with a coordinator.
      process_id: number of this process, with a coordinator.
      timeout_s: seconds to wait for the others. A process that is lost later is noticed
        within this time too.

    Raises:
      UserError: the others cannot be found in time, or the values do not fit together.
    """
    import jax

    name, where = "this process", ""
    if coordinator:
        _check(coordinator, num_processes, process_id)
        name, where = f"process {process_id} of {num_processes}", f" at {coordinator}"
    not_joined = (
        f"could not join the other processes{where} within {timeout_s} s; start all of "
        "them with the same --num_processes, or raise --peer_timeout"
    )
    _last_line.start()
    _last_line.set(f"error: {not_joined}")
    # JAX's own exit function may abort. It is registered later, so it runs before this.
    atexit.register(expect_exit)
    _print_error(f"{name} waits for the others{where}, at most {timeout_s} s")
    if coordinator and process_id:
        _wait_for_coordinator(coordinator, timeout_s)
    # JAX's runtime aborts the process when its own time is up, with a stack trace and
    # exit code 134. This ends it a little earlier.
    exit_code = UserError.exit_code
    give_up = threading.Timer(timeout_s, _exit, (f"error: {not_joined}", exit_code))
    give_up.daemon = True
    give_up.start()
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=timeout_s + 10,
            heartbeat_timeout_seconds=max(10, timeout_s),
        )
    except (RuntimeError, ValueError) as e:
        _exit(f"error: {not_joined} ({_first_line(e)})", exit_code)
    finally:
        give_up.cancel()
    _last_line.set(ABORTED)


def agree(topic: str, values: Mapping[str, Any]) -> None:
    """Check that all processes have the same values, and the same number of processes.

    A single process agrees with itself.

    Args:
      topic: a name that no other call of this process has.
      values: JSON values by their names; they may be nested.

    Raises:
      UserError: two processes differ. All of them raise it, and the line names the
        first field that differs.
    """
    from lnrepro.engine.run_config import differences

    stated = {"--num_processes": _stated_processes()} | dict(values)
    first, *others = [json.loads(text) for text in _gather(topic, json.dumps(stated))]
    for process, other in enumerate(others, 1):
        for field, a, b in differences(first, other):
            raise UserError(
                f"{field} differs between the processes of this run: {a!r} in process "
                f"0, {b!r} in process {process}; start all of them with the same "
                "command, code and data"
            )


@contextlib.contextmanager
def together(topic: str) -> Iterator[None]:
    """Run a block that may refuse to go on in some of the processes only.

    Args:
      topic: a name that no other call of this process has.

    Raises:
      UserError: the block raised it in one of the processes. All of them raise it.
    """
    try:
        yield
    except UserError as e:
        _gather(topic, str(e))
        raise
    for process, line in enumerate(_gather(topic, "")):
        if line:
            raise UserError(f"process {process} of this run stopped: {line}")


def _stated_processes() -> int:
    """Return the number of processes that this one was told, which may be wrong."""
    return _distributed().num_processes or 1


def _gather(topic: str, text: str) -> list[str]:
    """Return what each process has given under a topic, in their order.

    It waits until all have given something. If one is lost, JAX ends this process.
    """
    import jax

    client = _distributed().client
    if client is None or jax.process_count() == 1:
        return [text]
    client.key_value_set(f"lnrepro/{topic}/{jax.process_index()}", text)
    return [
        client.blocking_key_value_get(f"lnrepro/{topic}/{process}", A_DAY_MS)
        for process in range(jax.process_count())
    ]


def _distributed():
    """Return JAX's description of the processes.

    The key-value store that process 0 holds has no public name. Orbax uses it in the
    same way. It works where the processes do not agree, which collectives do not.
    """
    from jax._src import distributed

    return distributed.global_state


def abandon(error: Exception) -> None:
    """End this process at once after an error among several processes.

    An orderly shutdown would wait for the process that is gone.
    """
    _exit(f"{LOST} ({_first_line(error)})", 1)


def expect_exit() -> None:
    """Print no last line when this process ends."""
    _last_line.set("")


def _check(coordinator, num_processes, process_id):
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--coordinator={coordinator}: give HOST:PORT")
    if num_processes is None or process_id is None:
        raise UserError("--coordinator needs --num_processes and --process_id as well")
    if not 0 <= process_id < num_processes:
        raise UserError(
            f"--process_id={process_id} is not in 0..{num_processes - 1}, for "
            f"--num_processes={num_processes}"
        )


def _wait_for_coordinator(coordinator, timeout_s):
    """Wait until process 0 listens at its address, at most `timeout_s` seconds."""
    host, _, port = coordinator.rpartition(":")
    address = (host.strip("[]"), int(port))
    last_message = time.monotonic()
    end = last_message + timeout_s
    while True:
        try:
            socket.create_connection(address, timeout=min(5.0, timeout_s)).close()
            return
        except OSError as e:
            if time.monotonic() > end:
                raise UserError(
                    f"--coordinator={coordinator}: nobody answers there after "
                    f"{timeout_s} s ({e.strerror or e}); is it the address of process "
                    "0, and has that been started?"
                ) from None
        now = time.monotonic()
        if now - last_message > MESSAGE_EVERY_S:
            last_message = now
            _print_error(f"still waiting for {coordinator}, {end - now:.0f} s left")
        time.sleep(0.2)


def _first_line(error):
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]


def _print_error(line):
    print(line, file=sys.stderr, flush=True)


def _exit(line, exit_code):
    sys.stdout.flush()
    # A thread of the runtime may abort at the same time and print its stack. The child
    # process prints after that.
    if not _last_line.set(line):
        _print_error(line)
    os._exit(exit_code)


def _print_last_line(read_end: int) -> NoReturn:
    """Be the child process of `_LastLine`."""
    # Signals for the process group are meant for the trainer.
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # A program that reads the trainer's output must not wait for this process.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with open(read_end) as pipe:
        *_, last = pipe
    if last.strip():
        os.write(2, last.encode())
    os._exit(0)
