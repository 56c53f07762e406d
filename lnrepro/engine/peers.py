"""Start-up and failure handling of several processes, on top of jax.distributed.

JAX's distributed runtime ends a process that has lost its peers by an abort in C++, with
pages of stack trace, and Python cannot handle it. So the standard error of a distributed
run goes through a child process. It copies everything except the runtime's messages about
peers. After an abort it prints one line that says what happened and what to do.
"""

import os
import re
import signal
import socket
import sys
import time

from lnrepro.engine.errors import UserError

# Seconds between two messages that a process is still waiting.
MESSAGE_EVERY_S = 10.0

# The first lines of the runtime's messages about peers.
_FATAL = re.compile(r"F\d{4} ")
_ABOUT_PEERS = re.compile(
    r"[EW]\d{4} .*(coordination|distributed|gloo|preemption)", re.IGNORECASE
)
# The lines that follow them, which have no prefix of their own.
_CONTINUED = re.compile(
    r"[\d, ]*$|RPC: |This is usually|The tasks have|Original error"
    r"|.*type\.googleapis|\s+@ |\*\*\* "
)
# A line that begins with it is not copied. It is what to print after an abort.
ABORT_MESSAGE_PREFIX = "\0"

LOST = (
    "error: another process of this run was lost, so this one stopped; "
    "start all of them again: they resume at the last checkpoint"
)


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
        "them, or raise --peer_timeout"
    )
    _filter_stderr(f"error: {not_joined}")
    _print_error(f"{name} waits for the others{where}, at most {timeout_s} s")
    if coordinator and process_id:
        _wait_for_coordinator(coordinator, timeout_s)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=timeout_s,
            heartbeat_timeout_seconds=max(10, timeout_s),
        )
    except (RuntimeError, ValueError) as e:
        _exit(f"error: {not_joined} ({_first_line(e)})", UserError.exit_code)
    os.write(2, f"{ABORT_MESSAGE_PREFIX}{LOST}\n".encode())


def abandon(error: Exception) -> None:
    """End this process at once after an error among several processes.

    An orderly shutdown would wait for the process that is gone.
    """
    _exit(f"{LOST} ({_first_line(error)})", 1)


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
                    f"{timeout_s} s ({e.strerror or e}); is it the address of process 0, "
                    "and has that been started?"
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
    _print_error(line)
    sys.stdout.flush()
    os._exit(exit_code)


def _filter_stderr(abort_message):
    """Start the child process through which standard error goes from now on."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(read_end)
        os.dup2(write_end, 2)
        os.close(write_end)
        return
    os.close(write_end)
    # Signals for the process group are meant for the trainer.
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # A program that reads the trainer's output must not wait for this process.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with (
        open(read_end, "rb") as lines,
        open(2, "wb", buffering=0, closefd=False) as out,
    ):
        _copy_lines(lines, out, abort_message)
    os._exit(0)


def _copy_lines(lines, out, abort_message):
    """Copy lines, except for the runtime's about peers.

    Args:
      lines: an iterator over lines of bytes, which ends when the trainer has ended.
      out: a binary file.
      abort_message: is written at the end if the runtime aborted.
    """
    aborted = in_message = False
    for raw in lines:
        line = raw.decode(errors="replace")
        if line.startswith(ABORT_MESSAGE_PREFIX):
            abort_message = line.strip(ABORT_MESSAGE_PREFIX + "\n")
        elif aborted or _FATAL.match(line):
            aborted = True
        elif _ABOUT_PEERS.match(line) or (in_message and _CONTINUED.match(line)):
            in_message = True
        else:
            in_message = False
            out.write(raw)
    if aborted:
        out.write(abort_message.encode() + b"\n")
