"""Processes that are missing or lost: a clear last line, within the time limit."""

import signal
import socket
import time

import pytest

from lnrepro.engine import peers
from tests.runs import SMOKE, run, start


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--coordinator=nowhere"], "--coordinator=nowhere: give HOST:PORT"),
        (
            ["--coordinator=localhost:9"],
            "--coordinator needs --num_processes and --process_id",
        ),
        (
            ["--coordinator=localhost:9", "--num_processes=2", "--process_id=2"],
            "--process_id=2 is not in 0..1",
        ),
    ],
)
def test_flags_that_do_not_fit_together(tmp_path, flags, says):
    code, _, err = run(tmp_path, SMOKE, *flags)
    assert code == 2
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def flags_of(tmp_path, port, process, timeout):
    where = [
        f"--coordinator=localhost:{port}",
        "--num_processes=2",
        f"--process_id={process}",
    ]
    return [SMOKE, f"--workdir={tmp_path / 'run'}", *where, f"--peer_timeout={timeout}"]


@pytest.mark.slow
def test_a_wrong_coordinator_address(tmp_path):
    code, out, err = run(tmp_path, *flags_of(tmp_path, 9, 1, 2))
    assert (code, out) == (2, "")
    waits, error = err.splitlines()
    assert waits == "process 1 of 2 waits for the others at localhost:9, at most 2 s"
    assert error.startswith(
        "error: --coordinator=localhost:9: nobody answers there after 2 s"
    )


@pytest.mark.slow
def test_a_peer_that_never_comes(tmp_path):
    port = free_port()
    code, _, err = run(tmp_path, *flags_of(tmp_path, port, 0, 3))
    assert code == 2
    waits, error = err.splitlines()
    assert waits.startswith("process 0 of 2 waits for the others")
    assert error.startswith(
        f"error: could not join the other processes at localhost:{port} within 3 s"
    )


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_peer_stops_the_other_and_the_restart_resumes(tmp_path, killed):
    port, end = free_port(), ["--config.epochs=40", "--config.save_every=22"]
    both = [start(tmp_path, *flags_of(tmp_path, port, i, 15), *end) for i in range(2)]
    steps = tmp_path / "run" / "checkpoints" / "last"
    while not (steps.is_dir() and any(p.name.isdigit() for p in steps.iterdir())):
        assert both[0].poll() is None, both[0].communicate()
        time.sleep(0.2)
    both[killed].send_signal(signal.SIGKILL)
    began = time.monotonic()
    both[killed].communicate()
    _, err = both[1 - killed].communicate(timeout=120)
    assert time.monotonic() - began < 60
    assert both[1 - killed].returncode not in (0, None)
    assert err.splitlines()[-1].startswith((peers.LOST, peers.ABORTED))
    port = free_port()
    both = [start(tmp_path, *flags_of(tmp_path, port, i, 60), *end) for i in range(2)]
    (out, err), _ = (p.communicate(timeout=300) for p in both)
    assert both[0].returncode == 0, err
    assert "resuming at step " in out
