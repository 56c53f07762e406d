"""No file of a run, a checkpoint or a data set is executed when it is opened."""

import ast
import contextlib
import json
import shutil
import sys

import numpy as np
import pytest

import lnrepro
from configs import mnist
from lnrepro.engine import train
from lnrepro.engine.checkpoint import Store
from lnrepro.errors import UserError
from tests.engine import toy
from tests.runs import ROOT

SCANNED = ("lnrepro", "experiments", "scripts", "configs")

# Modules whose reading functions execute what they read, names that run text or hand it
# to a shell, and keywords that switch a safe call to such a way.
MODULES = {
    "pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "jsonpickle",
    "yaml",
    "runpy",
    "code",
}
NAMES = {
    *(
        "eval",
        "exec",
        "__import__",
        "os.system",
        "os.popen",
        "pty.spawn",
        "subprocess.getoutput",
    ),
    *(
        "subprocess.getstatusoutput",
        "torch.load",
        "torch.hub.load",
        "pandas.read_pickle",
        "pandas.eval",
    ),
    *("importlib.import_module", "importlib.util.spec_from_file_location"),
    *("shutil.unpack_archive", "logging.config.listen", "logging.config.fileConfig"),
}
METHODS = {"extractall", "read_pickle", "find_class"}
KEYWORDS = {"shell", "allow_pickle"}

# (file, name): why it cannot execute what strangers wrote.
ALLOWED = {
    (
        "lnrepro/data/readers/plain_pickle.py",
        "pickle",
    ): "the reader of plain pickles: it resolves no name, so there is nothing to call",
    (
        "lnrepro/data/readers/plain_pickle.py",
        ".find_class",
    ): "the method that refuses every name",
    (
        "lnrepro/data/table.py",
        "importlib.import_module",
    ): "modules of the table of data sets, written there",
    (
        "scripts/paper/protocols.py",
        "importlib.import_module",
    ): "a module of this checkout's configs: the name has no dot",
    (
        "scripts/benches/accelerators/batches.py",
        "importlib.import_module",
    ): "the direct version of a config file that the user names",
    (
        "scripts/benches/accelerators/steps.py",
        "importlib.import_module",
    ): "the direct version of a config file that the user names",
    (
        "lnrepro/engine/experiment.py",
        "importlib.import_module",
    ): "config.experiment, of a config file, which is a program anyway",
    (
        "scripts/commands.py",
        "importlib.import_module",
    ): "one of the names the script gives",
    (
        "scripts/prepare.py",
        "importlib.import_module",
    ): "the experiment of a config file that the reader of a set names",
    (
        "scripts/benches/train.py",
        "importlib.import_module",
    ): "one of the experiments that argparse admits",
    (
        "lnrepro/engine/config_file.py",
        "importlib.util.spec_from_file_location",
    ): "a config file that the user names",
}


def findings(source: str) -> set[str]:
    """The dangerous names that a module imports, mentions or passes on."""
    tree, known = ast.parse(source), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {
                a.asname or a.name.partition(".")[0]: a.name
                if a.asname
                else a.name.partition(".")[0]
                for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and not node.level:
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}

    def dotted(node) -> str:
        if isinstance(node, ast.Name):
            return known.get(node.id, node.id)
        inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
        return f"{inner}.{node.attr}" if inner else ""

    # `known` says what each local name stands for. Find where dangerous ones are used.
    found = {name.partition(".")[0] for name in known.values()} & MODULES
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Name | ast.Attribute):
            found |= {dotted(node)} & NAMES
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found.add(f".{node.attr}")
        if isinstance(node, ast.FunctionDef) and node.name in METHODS:
            found.add(f".{node.name}")
        if isinstance(node, ast.Call):
            # `shell=False` and `allow_pickle=False` are safe.
            off = {
                k.arg
                for k in node.keywords
                if isinstance(k.value, ast.Constant) and k.value.value is False
            }
            found |= {f"{k.arg}=" for k in node.keywords if k.arg in KEYWORDS - off}
    return found | ({k for k in known.values() if k in NAMES})


def test_nothing_executes_what_it_reads():
    files = [path for folder in SCANNED for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 80
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in files
        for name in findings(path.read_text(encoding="utf-8"))
    }
    assert found - ALLOWED.keys() == set(), (
        "give the reason in ALLOWED if this cannot execute what strangers wrote"
    )
    assert ALLOWED.keys() - found == set(), "no longer there: take it out of ALLOWED"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import pickle as p\np.loads(b'')", "pickle"),
        ("def f():\n    from marshal import loads", "marshal"),
        ("eval('1')", "eval"),
        ("from os import system as s\ns('ls')", "os.system"),
        ("import os\nrun = os.system", "os.system"),
        ("import subprocess as sp\nsp.run('ls', shell=True)", "shell="),
        ("import numpy as np\nnp.load('x', allow_pickle=really)", "allow_pickle="),
        ("import torch\ntorch.load('x')", "torch.load"),
        ("import importlib\nimportlib.import_module(x)", "importlib.import_module"),
        ("archive.extractall()", ".extractall"),
    ],
)
def test_the_scan_sees(source, name):
    assert findings(source) == {name}


@pytest.mark.parametrize(
    "source",
    ["import re\nre.compile('x')", "np.load('x', allow_pickle=False)", "model.eval()"],
)
def test_the_scan_leaves_alone(source):
    assert findings(source) == set()


PLANTED = "planted_by_a_stranger"
watching: list[set[str]] = []


def _hook(event, args):
    """Events of Python: imports, names that pickles resolve, programs started."""
    if watching and (
        event in ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec")
    ):
        watching[-1].add(event)
    elif watching and event == "import" and str(args[0]).startswith(PLANTED):
        watching[-1].add(PLANTED)


@pytest.fixture
def happenings(tmp_path, monkeypatch):
    """A set that collects attempts to execute foreign code."""
    if not hasattr(sys, "_lnrepro_hook"):  # hooks cannot be taken away again
        sys.addaudithook(_hook)
        sys._lnrepro_hook = True
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / f"{PLANTED}.py").write_text(
        f"import pathlib\npathlib.Path({str(folder / 'ran')!r}).touch()\n"
    )
    monkeypatch.syspath_prepend(folder)
    watching.append(set())
    yield watching[-1]
    # The planted module makes this file when it is imported.
    assert not (folder / "ran").exists()
    watching.pop()


def test_the_hook_sees_a_pickle_and_an_import(happenings):
    import pickle

    pickle.loads(b"cos\ngetpid\n.")
    assert happenings == {"pickle.find_class"}
    with pytest.raises(ModuleNotFoundError):
        __import__(f"{PLANTED}.sub.module") if (
            sys.path.pop(0),
            sys.path_importer_cache.clear(),
        ) else None
    assert PLANTED in happenings


def strings(value, path=()):
    """The places of all strings and keys of a JSON value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from strings(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from strings(inner, (*path, i))
    elif isinstance(value, str):
        yield path


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a finished run of the toy, its config and its first state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))
        folder, config = tmp_path_factory.mktemp("runs") / "toy", toy.get_config()
        config.steps, config.curves, config.evals.picture = 5, (), "never"
        train.train(config, folder)
    return folder, config, train.Run(config, folder).initial()


PROGRAM = b"cposix\nsystem\n(S'true'\ntR."  # a pickle that starts a program


def test_a_checkpoint_of_a_stranger_executes_nothing(
    trained, tmp_path, happenings, capsys
):
    folder, _, like = trained
    whole = tmp_path / "whole"
    shutil.copytree(folder / "checkpoints" / "last", whole / "last")
    store = Store(whole)
    assert store.restore("last", like).step == 5
    store.close()
    files = [p.relative_to(whole) for p in whole.rglob("*") if p.is_file()]
    tried = 0
    for file in files:
        try:
            content = json.loads((whole / file).read_text(encoding="utf-8"))
        except ValueError:
            content = None
        places = {
            path[-1]: [p for p in strings(content) if p[-1] == path[-1]]
            for path in strings(content)
        }
        # Each file is replaced by a pickle that starts a program. In JSON files, the
        # strings under each key also name the planted module.
        changed = [PROGRAM, *(tampered(content, some) for some in places.values())]
        for new in changed:
            copy = tmp_path / f"copy{tried}"
            shutil.copytree(whole, copy)
            (copy / file).write_bytes(new)
            store = Store(copy)
            with contextlib.suppress(
                UserError
            ):  # one that cannot be read is refused, others are read as they are
                store.restore("last", like)
            store.close()
            tried += 1
    assert tried > 15
    assert happenings == set()


def tampered(content, paths) -> bytes:
    for path in paths:
        content = replaced(content, path, f"{PLANTED}.Thing")
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    "field",
    [
        ("config", "experiment"),
        ("config", "norm"),
        ("config", "data", "name"),
        ("command", 0),
    ],
)
def test_config_json_of_a_stranger_is_data(
    trained, tmp_path, monkeypatch, happenings, field
):
    from lnrepro.engine import loaded_run
    from scripts import encode_sentences, theory_trained
    from scripts.paper.records import find

    folder, config, _ = trained
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))
    shutil.copytree(folder, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    file.write_text(
        json.dumps(replaced(json.loads(file.read_text()), field, f"{PLANTED}.Thing"))
    )
    # Everything that opens the run directory of somebody else.
    for open_run in (
        lambda at: train.evaluate(config, at),
        encode_sentences.open_run,
        lambda at: loaded_run.load(at, "experiments.handwriting").vars,
        lambda at: lnrepro.load(at).export(tmp_path / "export"),
        theory_trained.Trained,
        lambda at: find([at]),
    ):
        with contextlib.suppress(UserError):
            open_run(tmp_path / "run")
    assert happenings == set()


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """The directory of a run of MNIST, and its export."""
    home = tmp_path_factory.mktemp("small")
    config = mnist.get_config("smoke")
    config.data.dir, config.steps, config.curves = str(home / "data"), 2, ()
    train.train(config, home / "run")
    lnrepro.load(home / "run").export(home / "export")
    return home


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "export"])
def test_nothing_is_executed_to_use_what_a_stranger_trained(
    small_run, tmp_path, happenings, kind
):
    whole = small_run / kind
    changes = [(path.name, PROGRAM) for path in whole.iterdir() if path.is_file()]
    about = json.loads((whole / "config.json").read_text())
    for place in strings(about):
        changes.append(("config.json", tampered(about, [place])))
    changes.append(("data_facts.json", tampered({"words": ["a"]}, [("words", 0)])))
    for number, (file, new) in enumerate(changes):
        copy = shutil.copytree(whole, tmp_path / str(number))
        (copy / file).write_bytes(new)
        # Code of the stranger's beside the run.
        for name in ("experiments", "scripts", PLANTED):
            (copy / f"{name}.py").write_text(f"import {PLANTED}\n")
        with contextlib.suppress(UserError):
            run = lnrepro.load(copy)
            run.classify(np.zeros((1, 8, 8)))
            run.export(tmp_path / f"export{number}")
    assert len(changes) > 20
    assert happenings == set()
