"""No file of a run, a checkpoint or an export is executed when it is opened."""

import contextlib
import json
import pickle
import shutil
import sys

import numpy as np
import pytest

import lnrepro
from lnrepro.errors import UserError

PLANTED = "planted_by_a_stranger"
# A pickle that starts a program.
PROGRAM = b"cposix\nsystem\n(S'true'\ntR."
EVENTS = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec")
watching: list[set[str]] = []


def _hook(event, args):
    """Collect imports, names that pickles resolve, and programs that are started."""
    if watching and event in EVENTS:
        watching[-1].add(event)
    elif watching and event == "import" and str(args[0]).startswith(PLANTED):
        watching[-1].add(PLANTED)


# Hooks cannot be taken away again.
sys.addaudithook(_hook)


@pytest.fixture
def happenings(tmp_path, monkeypatch):
    """A set that collects attempts to execute foreign code."""
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / f"{PLANTED}.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(folder)
    watching.append(set())
    yield watching[-1]
    # The planted module makes this file when it is imported.
    assert not (folder / "ran").exists()
    # The hook would have seen a pickle.
    pickle.loads(b"cos\ngetpid\n.")
    assert watching.pop() == {"pickle.find_class"}


def tampered(value):
    """Yield copies of JSON values, in each of which a text names the planted module."""
    if isinstance(value, str):
        yield f"{PLANTED}.Thing"
    places = []
    if isinstance(value, dict):
        places = list(value)
    elif isinstance(value, list):
        places = range(len(value))
    for place in places:
        for new in tampered(value[place]):
            copy = value.copy()
            copy[place] = new
            yield copy


def changes(file):
    """Yield what a stranger may write in place of a file."""
    yield PROGRAM
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return
    for copy in tampered(content):
        yield json.dumps(copy).encode()


@pytest.fixture(scope="module")
def home(mnist_run, tmp_path_factory):
    """A run of MNIST with one checkpoint, and its export."""
    home = tmp_path_factory.mktemp("small")
    shutil.copytree(mnist_run, home / "run")
    shutil.rmtree(home / "run/checkpoints/last")
    lnrepro.load(home / "run").export(home / "export")
    return home


def use(folder, out):
    """Do everything that can be done with the run of somebody else."""
    with contextlib.suppress(UserError):
        run = lnrepro.load(folder)
        run.classify(np.zeros((1, 8, 8)))
        run.export(out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "export", "run/checkpoints"])
def test_nothing_is_executed_to_use_what_a_stranger_trained(
    home, tmp_path, happenings, kind
):
    part = home / kind
    files = part.rglob("*") if kind.endswith("checkpoints") else part.iterdir()
    tried = 0
    for file in files:
        if not file.is_file():
            continue
        for new in changes(file):
            whole = home / kind.partition("/")[0]
            copy = shutil.copytree(whole, tmp_path / f"copy{tried}")
            (copy / file.relative_to(whole)).write_bytes(new)
            # Code of the stranger's beside the run.
            for name in ("experiments", "scripts", PLANTED):
                (copy / f"{name}.py").write_text(f"import {PLANTED}\n")
            use(copy, tmp_path / f"out{tried}")
            shutil.rmtree(copy)
            tried += 1
    assert tried > 10
    assert happenings == set()
