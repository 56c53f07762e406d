"""Processes that are missing, differ or fail: one clear line, within the time limit."""

import pytest

from lnrepro.engine import peers
from lnrepro.errors import UserError
from tests.hardening.processes import ended, of_two, start_run
from tests.refused import refused
from tests.runs import SMOKE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--coordinator=nowhere",), "--coordinator=nowhere: give HOST:PORT"),
        (
            ("--coordinator=localhost:9", "--num_processes=2", "--process_id=2"),
            "process_id and num_processes must be nonnegative",
        ),
    ],
)
def test_flags_that_do_not_fit_together(tmp_path, flags, says):
    ((code, _, err),) = ended(start_run(tmp_path, tmp_path / "run", SMOKE, *flags))
    assert code == 2
    assert err.splitlines()[-1].startswith(f"error: {says}")


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
def test_a_peer_that_never_comes(tmp_path, process):
    where = "--coordinator=localhost:9", "--num_processes=2", f"--process_id={process}"
    flags = SMOKE, *where, "--peer_timeout=3"
    ((code, _, err),) = ended(start_run(tmp_path, tmp_path / "run", *flags))
    waits, *_, error = err.splitlines()
    assert code == 2
    assert waits == "waits for the other processes at localhost:9, at most 3 s"
    assert error.startswith("error: could not join the other processes at localhost:9")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        # Of the second process alone.
        (("--config.steps=72",), "config.steps differs between the processes"),
        # The folder is refused.
        ((), "--workdir "),
    ],
)
def test_two_processes_end_in_the_same_line(tmp_path, flags, says):
    if not flags:
        (tmp_path / "mine.txt").write_text("")
    first, second = of_two()
    both = [start_run(tmp_path, tmp_path, SMOKE, *f) for f in (first, second + flags)]
    for code, _, err in ended(*both):
        assert code == 2
        (error,) = err.splitlines()[1:]
        assert error.startswith(f"error: {says}")
    assert not (tmp_path / "config.json").exists()


@pytest.mark.slow
def test_a_process_that_fails_alone_ends_the_other(tmp_path):
    both = []
    for own, data in zip(of_two(), (str(tmp_path / "data"), "/proc/no"), strict=True):
        flags = SMOKE, "--peer_timeout=10", *own
        both.append(start_run(tmp_path, tmp_path / "run", *flags, LNREPRO_DATA=data))
    (code, _, err), (code_of_failed, _, err_of_failed) = ended(*both)
    assert code_of_failed in (1, 2)
    assert err_of_failed.splitlines()[1].startswith("error: ")
    assert len(err_of_failed.splitlines()) == 2
    assert code != 0
    assert "/proc/no" not in err
    assert not (tmp_path / "run").exists()


def test_the_first_field_that_differs_is_named(monkeypatch):
    own, other = ({"config": {"rate": rate}} for rate in (0.1, 0.2))
    peers.agree("alone", own)

    def agree(*others):
        """Let `others` be what the other processes say."""
        said = [{"--num_processes": 1} | values for values in others]
        monkeypatch.setattr(peers, "_gather", lambda topic, value: [value, *said])
        peers.agree("test", own)

    agree(own)
    with refused("config.rate differs", "0.1 in process 0, 0.2 in process 2; "):
        agree(own, other)
    with refused("--num_processes differs"):
        agree(own | {"--num_processes": 2})


def test_what_the_first_process_says_reaches_the_others(monkeypatch):
    assert peers.from_first("alone", lambda: "new") == "new"

    def refuse():
        raise UserError("no")

    with refused("no"):
        peers.from_first("alone", refuse)
    # In another process, nothing is called.
    monkeypatch.setattr("jax.process_index", lambda: 1)
    first = {"result": "old", "problem": ""}
    monkeypatch.setattr(peers, "_gather", lambda topic, value: [first, value])
    assert peers.from_first("test", refuse) == "old"
