"""The other processes of a run: waited for with a word, and missed in one line.

JAX's distributed runtime ends a process that has lost its peers from C++, by abort, with pages of stack trace. So the
standard error of a distributed run goes through a small process of its own, which passes everything on but that, and
says in its place what happened and what to do.
"""

import os
import re
import signal
import socket
import sys
import time

from lnrepro.engine.errors import UserError

SAY_EVERY_S = 10.0

# What the runtime writes about peers: lines of its log, and those that follow them without a prefix of their own.
_FATAL = re.compile(r"F\d{4} ")
_NOISE = re.compile(
    r"[EW]\d{4} .*(coordination|distributed|gloo|preemption)", re.IGNORECASE
)
_MORE = re.compile(
    r"[\d, ]*$|RPC: |This is usually|The tasks have|Original error|.*type\.googleapis|\s+@ |\*\*\* "
)
_EPITAPH = "\0"  # begins a line that is not shown: what to say if the process is aborted from now on

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
    """Join the other processes through `jax.distributed`; with all None it finds them by itself (TPU, SLURM).

    A peer that vanishes later is noticed within `timeout_s` seconds as well. Raises UserError if they cannot be found in
    that time, and for flags that do not fit together.
    """
    import jax

    if coordinator:
        _check(coordinator, num_processes, process_id)
    who = f"process {process_id} of {num_processes}" if coordinator else "this process"
    where = f" at {coordinator}" if coordinator else ""
    missing = f"could not join the other processes{where} within {timeout_s} s; start all of them, or raise --peer_timeout"
    _guard_stderr(f"error: {missing}")
    print(
        f"{who} waits for the others{where}, at most {timeout_s} s",
        file=sys.stderr,
        flush=True,
    )
    if coordinator and process_id:
        _reach(coordinator, timeout_s)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=timeout_s,
            heartbeat_timeout_seconds=max(10, timeout_s),
        )
    except (RuntimeError, ValueError) as e:
        first = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        _end(f"error: {missing} ({first[:200]})", UserError.exit_code)
    _say(_EPITAPH + LOST)


def abandon(error: Exception) -> None:
    """End this process after a failure among several, at once: a shutdown in good order would wait for who is gone."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    _end(f"{LOST} ({first[:200]})", 1)


def _check(coordinator: str, num_processes: int | None, process_id: int | None) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"--coordinator={coordinator}: give HOST:PORT")
    if num_processes is None or process_id is None:
        raise UserError("--coordinator needs --num_processes and --process_id as well")
    if not 0 <= process_id < num_processes:
        raise UserError(
            f"--process_id={process_id} is not in 0..{num_processes - 1}, for --num_processes={num_processes}"
        )


def _reach(coordinator: str, timeout_s: float) -> None:
    """Wait until somebody listens at the coordinator's address. Raises UserError after `timeout_s` seconds."""
    host, _, port = coordinator.rpartition(":")
    end = time.monotonic() + timeout_s
    said = time.monotonic()
    while True:
        try:
            socket.create_connection(
                (host.strip("[]"), int(port)), timeout=min(5.0, timeout_s)
            ).close()
            return
        except OSError as e:
            if time.monotonic() > end:
                raise UserError(
                    f"--coordinator={coordinator}: nobody answers there after {timeout_s} s ({e.strerror or e}); "
                    "is it the address of process 0, and has that been started?"
                ) from None
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            print(
                f"still waiting for {coordinator}, {end - said:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(0.2)


def _end(line: str, exit_code: int) -> None:
    print(line, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(exit_code)


def _say(line: str) -> None:
    os.write(2, (line + "\n").encode())


def _guard_stderr(epitaph: str) -> None:
    """Put a process between this one's standard error and the world; it lives until nobody holds the other end."""
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(read_end)
        os.dup2(write_end, 2)
        os.close(write_end)
        return
    os.close(write_end)
    os.setsid()  # signals for the group are the trainer's
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(s, signal.SIG_IGN)
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), 1
    )  # who waits for the trainer's output is not to wait for this
    with (
        open(read_end, "rb") as lines,
        open(2, "wb", buffering=0, closefd=False) as out,
    ):
        _relay(lines, out, epitaph)
    os._exit(0)


def _relay(lines, out, epitaph: str) -> None:
    """Copy lines (bytes) to out, but for the runtime's about peers; its abort becomes the epitaph."""
    fatal = noise = False
    for raw in lines:
        line = raw.decode(errors="replace")
        if line.startswith(_EPITAPH):
            epitaph = line.strip(_EPITAPH + "\n")
        elif fatal or _FATAL.match(line):
            fatal = True
        elif _NOISE.match(line) or (noise and _MORE.match(line)):
            noise = True
        else:
            noise = False
            out.write(raw)
    if fatal:
        out.write(epitaph.encode() + b"\n")
