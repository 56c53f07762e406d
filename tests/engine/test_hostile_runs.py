"""Run directories that no trainer has written: one line, at once, in little memory."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import lnrepro
from lnrepro.engine import json_files, loaded_run, metrics, train, workdir
from lnrepro.engine.checkpoint import Store
from lnrepro.errors import UserError
from tests.engine.toy import config
from tests.runs import ROOT


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of the toy."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    with pytest.MonkeyPatch.context() as m:
        m.setattr(train, "_data_identity", lambda config: ("toy/1", {}))
        train.train(config(steps=10), folder)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def folder(path):
    path.mkdir()


def large(path):
    with open(path, "wb") as file:
        file.truncate(json_files.MOST_BYTES + 1)


@pytest.mark.parametrize("kind", [pipe, device, folder, large])
@pytest.mark.parametrize(
    "name", ["config.json", "metrics.jsonl", "results.json", "data_facts.json"]
)
def test_what_is_no_file_is_refused_at_once(run, name, kind):
    (run / name).unlink()
    kind(run / name)
    opened = {
        "config.json": lambda: lnrepro.load(run, experiment="tests.engine.toy"),
        "metrics.jsonl": lambda: metrics.read(run / name),
        "results.json": lambda: workdir.read_results(run),
        "data_facts.json": lambda: loaded_run.load(run).facts,
    }
    with pytest.raises(UserError, match=rf"{name} (is no regular file|has .* bytes)"):
        opened[name]()


def test_a_pipe_in_a_checkpoint_is_damage(run, capsys):
    newest = run / "checkpoints/last/10"
    victim = max(newest.rglob("*"), key=lambda p: p.is_file() and p.stat().st_size)
    victim.unlink()
    os.mkfifo(victim)
    saved = loaded_run.load(run).checkpoint("last")
    assert saved is not None
    assert saved.step == 5
    assert "last/10 cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seeds", 0),
        ("seeds", 2.5),
        ("seeds", "3"),
        ("seeds", 10**8),
        ("seed", -1),
        ("seed", 1.5),
        ("steps", 10**22),
        ("eval_batch_size", 10**11),
        ("batch_size", True),
        ("seeds", None),
        ("optimizer", 3),
        ("data", {"name": 3}),
        ("best", None),
        ("a.b", 1),
    ],
)
def test_values_that_no_trainer_writes_are_named(run, field, value):
    about = json.loads((run / "config.json").read_text())
    about["config"][field] = value
    (run / "config.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"config\.json: ") as refused:
        lnrepro.load(run, experiment="tests.engine.toy")
    assert "\n" not in str(refused.value)


def test_stored_shapes_are_compared_before_anything_is_read(tmp_path):
    """A checkpoint of zeros is small on disk and large in the memory."""
    store = Store(tmp_path)
    zeros = np.zeros((5 * 10**7,), np.float32)
    store.save("last", 1, {"w": zeros}, {})
    store.wait()
    store.close()
    program = (
        "import pathlib, resource, numpy as np, orbax.checkpoint\n"
        "from lnrepro.engine.checkpoint import Store\n"
        f"store = Store(pathlib.Path({str(tmp_path)!r}), writing=False)\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = used()\n"
        "try:\n"
        "    store.restore('last', {'w': np.zeros(3, np.float32)})\n"
        "except Exception as e:\n"
        "    print(type(e).__name__, e)\n"
        "print(used() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    refused, kib = done.stdout.splitlines()
    assert refused.startswith("UserError ")
    assert "has 'w' as float32 [50000000], not as float32 [3]" in refused
    # The array has 195 MiB.
    assert int(kib) < 100 * 1024


@pytest.mark.parametrize("epochs", [1e300, 1e12])
def test_more_steps_than_jax_counts_are_refused(tmp_path, monkeypatch, epochs):
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))
    with pytest.raises(UserError, match=r"config.epochs = .*: at least 1 is needed"):
        train.train(config(epochs=epochs), tmp_path)
