"""Start-up of several processes on top of jax.distributed, and what they compare.

A process that loses another one ends with one line, see `end_if_lost`. Where JAX's own
runtime notices the loss first, it aborts the process with a message of its own.
"""

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from lnrepro.errors import UserError, first_line, say

# How long to wait for what another process has to say, which may prepare its data.
A_DAY_MS = 24 * 3600 * 1000
# How long a process that fails waits for the others to fail for the same reason.
END_MS = 5000


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
      UserError: the values do not fit together.
    """
    import jax

    where = f" at {coordinator}" if coordinator else ""
    if coordinator and not re.fullmatch(r".+:\d+", coordinator):
        raise UserError(f"--coordinator={coordinator}: give HOST:PORT")
    not_joined = (
        f"error: could not join the other processes{where} within {timeout_s} s; start "
        "all of them with the same --num_processes, or raise --peer_timeout"
    )
    say(f"waits for the other processes{where}, at most {timeout_s} s", sys.stderr)
    # JAX's runtime aborts the process when its own time is up, with a stack trace and
    # exit code 134. This ends it a little earlier.
    give_up = threading.Timer(timeout_s, _exit, (not_joined, UserError.exit_code))
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
    except ValueError as e:
        # Nothing has been started yet.
        raise UserError(f"{first_line(e)} (see --num_processes, --process_id)") from e
    except RuntimeError as e:
        _exit(f"{not_joined} ({first_line(e)})", UserError.exit_code)
    finally:
        give_up.cancel()


def agree(topic: str, values: Mapping[str, Any]) -> None:
    """Check that all processes have the same values, and the same number of processes.

    Args:
      topic: a name that no other call of this process has.
      values: JSON values by their names; they may be nested.

    Raises:
      UserError: two processes differ. All of them raise it, and the line names the
        first field that differs.
    """
    from lnrepro.engine.run_config import differences

    stated = {"--num_processes": _jax_state().num_processes, **values}
    first, *others = _gather(topic, stated)
    for process, other in enumerate(others, 1):
        for field, a, b in differences(first, other):
            raise UserError(
                f"{field} differs between the processes of this run: {a!r} in process "
                f"0, {b!r} in process {process}; start all of them with the same "
                "command, code and data"
            )


def from_first(topic: str, act: Callable[[], Any]) -> Any:
    """Call a function in process 0 alone, and return its result in all processes.

    Args:
      topic: a name that no other call of this process has.
      act: returns a JSON value.

    Raises:
      UserError: `act` raised it. All processes raise it.
    """
    import jax

    result, problem = None, ""
    if jax.process_index() == 0:
        try:
            result = act()
        except UserError as e:
            problem = str(e)
    first, *_ = _gather(topic, {"result": result, "problem": problem})
    if first["problem"]:
        raise UserError(first["problem"])
    return first["result"]


def _gather(topic: str, value: Any) -> list[Any]:
    """Return the JSON values that processes have given under a topic, in their order.

    It waits until all have given something. If one is lost, JAX ends this process.
    """
    import jax

    client = _jax_state().client
    if client is None:
        return [value]
    client.key_value_set(f"lnrepro/{topic}/{jax.process_index()}", json.dumps(value))
    given = []
    for process in range(jax.process_count()):
        text = client.blocking_key_value_get(f"lnrepro/{topic}/{process}", A_DAY_MS)
        given.append(json.loads(text))
    return given


def _jax_state():
    """Return what JAX knows about the processes; its client is None for a single one.

    It has no public name. Orbax uses the client's key-value store in the same way. It
    works where the processes do not agree, which collectives do not.
    """
    from jax._src import distributed

    return distributed.global_state


def leave(exit_code: int) -> None:
    """Leave the other processes after a failure, before this one ends.

    JAX's own way to leave waits for all of them, and aborts those that wait in vain. So
    this ends the process here if the others go on.

    Args:
      exit_code: that of this process.
    """
    import jax

    client = _jax_state().client
    if client is None:
        return
    try:
        client.wait_at_barrier("lnrepro/end", END_MS)
    except jax.errors.JaxRuntimeError:
        os._exit(exit_code)
    jax.distributed.shutdown()


def end_if_lost(error: Exception) -> None:
    """End this process at once where an error means that another one is gone.

    An orderly shutdown would wait for it.
    """
    import jax

    is_lost = isinstance(error, jax.errors.JaxRuntimeError)
    if is_lost and "RESOURCE_EXHAUSTED" not in str(error) and jax.process_count() > 1:
        _exit(
            "error: another process of this run was lost, so this one stopped; start "
            "all of them again: they resume at the last checkpoint "
            f"({first_line(error)})",
            1,
        )


def _exit(line: str, exit_code: int) -> NoReturn:
    say(line, sys.stderr)
    os._exit(exit_code)
