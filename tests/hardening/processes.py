"""Training processes that are watched, killed and compared.

They run the code that users run: XLA compiles at its default level, not at the quick
one of conftest.py.
"""

import pathlib
import socket
import subprocess
import time

from tests.runs import newest_state, start


def start_run(
    home: pathlib.Path, workdir: pathlib.Path, *flags: str, **env: str
) -> subprocess.Popen:
    """Start the trainer on a run directory."""
    # A run that is killed may leave half a program in its cache.
    env = {"XLA_FLAGS": "", "XDG_CACHE_HOME": str(home)} | env
    return start(home, *flags, f"--workdir={workdir}", **env)


def of_two() -> list[tuple[str, ...]]:
    """Return the flags of each of two processes."""
    with socket.socket() as s:
        s.bind(("localhost", 0))
        address = f"--coordinator=localhost:{s.getsockname()[1]}"
    return [(address, "--num_processes=2", f"--process_id={i}") for i in range(2)]


def start_two(
    home: pathlib.Path, workdir: pathlib.Path, *flags: str
) -> list[subprocess.Popen]:
    """Start the trainer in two processes of one device each."""
    return [start_run(home, workdir, *flags, *own) for own in of_two()]


def ended(*processes: subprocess.Popen) -> list[tuple[int, str, str]]:
    """Wait for the ends, and return exit code, stdout and stderr of each."""
    texts = [process.communicate(timeout=600) for process in processes]
    return [(p.returncode, *text) for p, text in zip(processes, texts, strict=True)]


def wait_for(process: subprocess.Popen, sign) -> None:
    """Wait until `sign()` is true or a process has ended."""
    while process.poll() is None and not sign():
        time.sleep(0.005)


def lines(workdir: pathlib.Path) -> list[str]:
    """Return the whole lines of a run's metrics.jsonl."""
    path = workdir / "metrics.jsonl"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def saved(workdir: pathlib.Path, kind: str = "last") -> list[int]:
    """Return the steps of the complete checkpoints, sorted."""
    folders = (workdir / "checkpoints" / kind).glob("*")
    return sorted(int(path.name) for path in folders if path.name.isdigit())


def assert_same_run(expected: pathlib.Path, found: pathlib.Path) -> None:
    """Check that two finished runs have the same bits."""
    for kind in ("last", "best"):
        assert saved(expected, kind)[-1:] == saved(found, kind)[-1:]
        # A config without config.best.metric keeps no best checkpoint.
        if not saved(expected, kind):
            continue
        a, b = newest_state(expected, kind), newest_state(found, kind)
        assert a.keys() == b.keys()
        for name, array in a.items():
            assert array.dtype == b[name].dtype
            assert array.tobytes() == b[name].tobytes(), (kind, name)
    for file in ("metrics.jsonl", "results.json"):
        assert (expected / file).read_bytes() == (found / file).read_bytes()
