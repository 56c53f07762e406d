"""`lnrepro.load`: a run stands alone, and so does its export."""

import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from safetensors.numpy import load_file, save_file

import lnrepro
from lnrepro import data
from lnrepro.engine import export, loaded_run
from tests.refused import refused
from tests.runs import ROOT, environment, smoke_run

SENTENCES = ["anna went to the harbour .", "the cook laughed .", "zzz"]
ENCODE = """
import sys, numpy, lnrepro
run = lnrepro.load(sys.argv[1])
numpy.save(sys.argv[2], run.encode(sys.argv[3:]))
"""
IMPORT = """
import sys, lnrepro
print(lnrepro.load.__name__, lnrepro.__version__)
print({'jax', 'flax', 'numpy', 'optax', 'grain', 'orbax'} & set(sys.modules))
sys.modules['optax'] = None
try: lnrepro.load('nowhere')
except ModuleNotFoundError as e: print(e)
"""


def run_python(home, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", *arguments],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_brings_nothing_heavy_and_says_what_to_install(tmp_path):
    _, heavy, missing = run_python(tmp_path, IMPORT).splitlines()
    assert heavy == "set()"
    assert missing.startswith("optax is not installed; lnrepro.load needs: pip")


@pytest.mark.slow
def test_a_copied_run_without_its_data_encodes_the_same_bits(tmp_path):
    home = tmp_path / "here"
    run = smoke_run("skip_thoughts", home)
    lnrepro.load(run).export(home / "export")

    def encoded(folder, machine):
        file = tmp_path / f"{machine}-{folder.name}.npy"
        (tmp_path / machine).mkdir(exist_ok=True)
        run_python(tmp_path / machine, ENCODE, str(folder), str(file), *SENTENCES)
        return np.load(file)

    expected = encoded(run, "here")
    assert np.abs(expected).sum() > 0
    for name in ("run", "export"):
        shutil.copytree(home / name, tmp_path / "there" / name)
    shutil.rmtree(home)
    for name in ("run", "export"):
        folder = tmp_path / "there" / name
        np.testing.assert_array_equal(encoded(folder, "there"), expected)
    # Nothing was prepared or written there.
    assert not (tmp_path / "there" / "data").exists()
    assert not list((tmp_path / "there").rglob("generated*"))


def test_config_params_and_metrics(mnist_run, monkeypatch):
    run = lnrepro.load(mnist_run)
    assert run.config.model.hidden == (32, 32)
    assert run.config.experiment == "experiments.mnist"
    kernel = run.params["Dense_0"]["kernel"]
    assert isinstance(kernel, np.ndarray)
    assert kernel.shape == (64, 32)
    assert 0 <= run.metrics[-1]["valid/error"] <= 1
    assert run.weights.checkpoint == "best"
    assert lnrepro.load(str(mnist_run), checkpoint="last").weights.step == 44
    with refused("checkpoint='new'"):
        lnrepro.load(mnist_run, checkpoint="new")
    images = np.zeros((2, 8, 8))
    expected = run.probabilities(images)
    # The batch size of the run does not divide over these.
    monkeypatch.setattr(jax, "device_count", lambda: 3)
    again = lnrepro.load(mnist_run).probabilities(images)
    np.testing.assert_array_equal(again, expected)


@pytest.fixture(scope="module")
def exported(mnist_run, tmp_path_factory):
    return lnrepro.load(mnist_run).export(tmp_path_factory.mktemp("hub") / "mnist")


@pytest.fixture
def moved(exported, tmp_path):
    """A copy of an export, to be damaged."""
    return shutil.copytree(exported, tmp_path / "export")


def test_an_export_is_the_run(mnist_run, exported):
    files = {path.name for path in exported.iterdir()}
    assert files == {
        "README.md",
        "model.safetensors",
        "config.json",
        "data_facts.json",
        "metrics.jsonl",
    }
    # Others may read it.
    assert {path.stat().st_mode & 0o777 for path in exported.iterdir()} == {0o644}
    run, copy = lnrepro.load(mnist_run), lnrepro.load(exported)
    arrays = load_file(exported / "model.safetensors")
    np.testing.assert_array_equal(
        arrays["params.Dense_0.kernel"], run.params["Dense_0"]["kernel"]
    )
    assert copy.metrics == run.metrics
    assert copy.weights.step == run.weights.step
    images = np.arange(128.0).reshape(2, 8, 8) % 17
    np.testing.assert_array_equal(copy.probabilities(images), run.probabilities(images))
    again = copy.export(exported.parent / "again")
    for name in files:
        content = (exported / name).read_bytes()
        assert (again / name).read_bytes() == content
        # Nothing of this machine is in the export.
        assert os.fsencode(mnist_run.parent) not in content, name


def test_the_card_says_what_it_is(mnist_run, exported):
    card = (exported / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: lnrepro\n")
    prepared = data.open_set("digits", mnist_run.parent / "data")
    assert f"`{prepared.fingerprint}`" in card
    licence = data.reader_of("digits").licence
    assert licence in card
    # That of own files is another one.
    about = lnrepro.load(exported).about
    own = {**about, "data": {**about["data"], "name": "my_digits"}}
    assert licence not in export.card(own)


def changed(folder, copy, **fields):
    """Copy a run, with other values of fields of its config."""
    moved = shutil.copytree(folder, copy)
    about = json.loads((moved / "config.json").read_text())
    config = ConfigDict(about["config"])
    config.update_from_flattened_dict(fields)
    about["config"] = config.to_dict()
    (moved / "config.json").write_text(json.dumps(about))
    return moved


def test_an_export_is_written_completely_or_not_at_all(
    mnist_run, exported, tmp_path, monkeypatch
):
    before = {path: path.read_bytes() for path in exported.iterdir()}
    with refused(str(exported), "is not empty"):
        lnrepro.load(mnist_run).export(exported)
    assert {path: path.read_bytes() for path in exported.iterdir()} == before

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "card", fail)
    with pytest.raises(OSError, match="No space left"):
        lnrepro.load(mnist_run).export(tmp_path / "export")
    assert not list(tmp_path.iterdir())


def test_other_modules_must_be_named(mnist_run, tmp_path):
    toy = "tests.engine.toy"
    moved = changed(mnist_run, tmp_path / "toy", experiment=toy)
    with refused(toy, "experiment="):
        lnrepro.load(moved)
    # An experiment without uses of its own.
    assert type(lnrepro.load(moved, experiment=toy)) is loaded_run.LoadedRun
    with refused("experiments.mnist", "experiments.draw"):
        lnrepro.load(mnist_run, experiment="experiments.draw")
    with refused("experiments.mnits"):
        lnrepro.load(changed(mnist_run, tmp_path / "x", experiment="experiments.mnits"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b"[1]"),
        ("model.safetensors", b"cposix\nsystem\n(S'true'\ntR."),
        ("model.safetensors", b""),
    ],
)
def test_damaged_exports_are_refused_in_one_line(moved, file, content):
    (moved / file).write_bytes(content)
    with refused(str(moved / file)):
        _ = lnrepro.load(moved).params


def remove_digests(folder):
    """Make the config.json that an older version has written."""
    about = json.loads((folder / "config.json").read_text())
    about["checkpoint"].pop("digest")
    del about["data"]["facts"]
    (folder / "config.json").write_text(json.dumps(about))


def test_changed_weights_and_facts_of_an_export_are_noticed(moved):
    weights, facts = moved / "model.safetensors", moved / "data_facts.json"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 0x40
    weights.write_bytes(content)
    with refused(f"{weights} does not match its digest"):
        _ = lnrepro.load(moved).params
    other = json.loads(facts.read_text()) | {"words": ["of", "another"]}
    facts.write_text(json.dumps(other))
    with refused(f"{facts} does not match its digest"):
        _ = lnrepro.load(moved).facts
    # What has no digest is not checked.
    remove_digests(moved)
    _ = lnrepro.load(moved).params
    assert lnrepro.load(moved).facts == other


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("params.Dense_0.kernel", None),
        ("params.more", np.zeros(1)),
        ("params.Dense_0.kernel", np.zeros((64, 31), np.float32)),
        ("params.Dense_0.kernel", np.zeros((64, 32))),
    ],
)
def test_arrays_of_another_config_are_refused(moved, name, array):
    path = moved / "model.safetensors"
    arrays = load_file(path) | {name: array}
    save_file({name: a for name, a in arrays.items() if a is not None}, path)
    remove_digests(moved)
    with refused(str(path), name):
        _ = lnrepro.load(moved).params
