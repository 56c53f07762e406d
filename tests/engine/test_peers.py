"""Processes that are missing or lost: a clear last line, within the time limit."""

import json
import signal
import socket
import time

import pytest

from lnrepro.engine import peers
from lnrepro.errors import UserError
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


def flags_of(tmp_path, port, process, timeout, processes=2):
    where = [
        f"--coordinator=localhost:{port}",
        f"--num_processes={processes}",
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


def ends_of_two(tmp_path, *flags, processes=(2, 2), timeout=60, data=None):
    """Exit code, stdout and last line of stderr of two processes.

    Args:
      tmp_path: folder of the run and of the caches.
      *flags: further flags of process 1.
      processes: --num_processes of each.
      timeout: --peer_timeout of both.
      data: where process 1 has its data sets.
    """
    port = free_port()
    env = {"LNREPRO_DATA": data} if data else {}
    both = [
        start(tmp_path, *flags_of(tmp_path, port, 0, timeout, processes[0])),
        start(
            tmp_path, *flags_of(tmp_path, port, 1, timeout, processes[1]), *flags, **env
        ),
    ]
    ends = []
    for process in both:
        out, err = process.communicate(timeout=200)
        ends.append((process.returncode, out, err.splitlines()[-1]))
    return ends


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--config.seed=1", "config.seed differs"),
        ("--config.log_every=5", "config.log_every differs"),
        ("--config.steps=72", "config.steps differs"),
        ("--evaluate", "--evaluate differs"),
        ("--cpu_devices=2", "the number of devices differs"),
    ],
)
def test_processes_that_do_not_agree_end_in_one_line(tmp_path, flags, says):
    for code, out, line in ends_of_two(tmp_path, flags):
        assert (code, out) == (2, "")
        assert line.startswith(f"error: {says} between the processes of this run: ")
        assert line.endswith("start all of them with the same command, code and data")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_number_of_processes_that_is_too_large_or_too_small(tmp_path):
    for code, out, line in ends_of_two(tmp_path, processes=(2, 3)):
        assert (code, out) == (2, "")
        assert line.startswith("error: --num_processes differs between the processes")
        assert "2 in process 0, 3 in process 1" in line
    for code, out, line in ends_of_two(tmp_path, processes=(3, 2), timeout=8):
        assert code != 0
        assert out == ""
        assert line.startswith("error: could not join the other processes")


@pytest.mark.slow
def test_data_that_only_one_process_has_ends_both(tmp_path):
    (code0, out0, line0), (code1, out1, line1) = ends_of_two(tmp_path, data="/proc/no")
    assert (code0, out0, out1) == (2, "", "")
    assert code1 in (1, 2)
    assert line0.startswith("error: process 1 of this run stopped: ")
    assert line0.removeprefix("error: process 1 of this run stopped: ") in line1
    assert not (tmp_path / "run").exists()


def test_the_first_field_that_differs_is_named(monkeypatch):
    def gathered(topic, text):
        other = json.loads(text)
        other["config"]["optimizer"]["learning_rate"] = 0.05
        return [text, text, json.dumps(other)]

    monkeypatch.setattr(peers, "_gather", gathered)
    with pytest.raises(
        UserError,
        match=r"^config.optimizer.learning_rate differs between the processes of this "
        r"run: 0.001 in process 0, 0.05 in process 2; ",
    ):
        peers.agree("test", {"config": {"optimizer": {"learning_rate": 1e-3}}})
