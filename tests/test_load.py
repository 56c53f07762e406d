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


EVALUATED = {"evals.valid": "epoch", "best.metric": "valid/error"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A run of MNIST."""
    return smoke_run("mnist", tmp_path_factory.mktemp("small"), **EVALUATED)


def run_python(home, *arguments):
    return subprocess.run(
        [sys.executable, "-c", *arguments],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
    )


def test_import_brings_nothing_heavy(tmp_path):
    code = (
        "import sys, lnrepro; print(lnrepro.load.__name__, lnrepro.__version__);"
        "heavy = {'jax', 'flax', 'numpy', 'optax', 'grain', 'orbax', 'ml_collections'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = run_python(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_without_the_trainer_one_line_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['optax'] = None; import lnrepro\n"
        "try: lnrepro.load('nowhere')\n"
        "except ModuleNotFoundError as e: print(e)"
    )
    done = run_python(tmp_path, code)
    assert done.stdout.startswith("optax is not installed; lnrepro.load needs: pip")
    assert done.stdout.count("\n") == 1


@pytest.mark.slow
def test_a_copied_run_without_its_data_encodes_the_same_bits(tmp_path):
    home = tmp_path / "here"
    run = smoke_run("skip_thoughts", home)
    lnrepro.load(run).export(home / "export")

    def encoded(folder, machine):
        file = tmp_path / f"{machine}-{folder.name}.npy"
        machine = tmp_path / machine
        machine.mkdir(exist_ok=True)
        done = run_python(machine, ENCODE, str(folder), str(file), *SENTENCES)
        assert done.returncode == 0, done.stderr
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


def test_config_params_and_metrics(small):
    run = lnrepro.load(small)
    assert run.config.model.hidden == (32, 32)
    assert run.config.experiment == "experiments.mnist"
    kernel = run.params["Dense_0"]["kernel"]
    assert isinstance(kernel, np.ndarray)
    assert kernel.shape == (64, 32)
    assert 0 <= run.metrics[-1]["valid/error"] <= 1
    assert run.weights.checkpoint == "best"
    assert lnrepro.load(str(small), checkpoint="last").weights.step == 3
    with refused("checkpoint='new'"):
        lnrepro.load(small, checkpoint="new")


def test_parameters_need_not_the_devices_of_the_training(small, monkeypatch):
    images = np.zeros((2, 8, 8))
    expected = lnrepro.load(small).probabilities(images)
    # The batch size of the run does not divide over these.
    monkeypatch.setattr(jax, "device_count", lambda: 3)
    np.testing.assert_array_equal(lnrepro.load(small).probabilities(images), expected)


@pytest.fixture(scope="module")
def exported(small, tmp_path_factory):
    return lnrepro.load(small).export(tmp_path_factory.mktemp("hub") / "mnist")


def test_an_export_is_the_run(small, exported):
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
    run, copy = lnrepro.load(small), lnrepro.load(exported)
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
        assert (again / name).read_bytes() == (exported / name).read_bytes()


def test_the_card_says_what_it_is(small, exported):
    card = (exported / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: lnrepro\n")
    assert f"`{data.open_set('digits', small.parent / 'data').fingerprint}`" in card
    assert data.reader_of("digits").licence in card
    # Nothing of this machine is in the export.
    for path in exported.iterdir():
        assert os.fsencode(small.parent) not in path.read_bytes(), path.name


def changed(folder, copy, **fields):
    """Copy a run, with other values of fields of its config."""
    moved = shutil.copytree(folder, copy)
    about = json.loads((moved / "config.json").read_text())
    config = ConfigDict(about["config"])
    config.update_from_flattened_dict(fields)
    about["config"] = config.to_dict()
    about["data"]["name"] = config.data.name
    (moved / "config.json").write_text(json.dumps(about))
    return moved


def test_the_licence_of_own_files_is_not_that_of_the_official_ones(exported):
    about = lnrepro.load(exported).about
    own = {**about, "data": {**about["data"], "name": "my_digits"}}
    licence = data.reader_of("digits").licence
    assert licence in export.card(about)
    assert licence not in export.card(own)


def test_an_export_is_written_completely_or_not_at_all(
    small, exported, tmp_path, monkeypatch
):
    before = {path: path.read_bytes() for path in exported.iterdir()}
    with refused(str(exported), "is not empty"):
        lnrepro.load(small).export(exported)
    assert {path: path.read_bytes() for path in exported.iterdir()} == before

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "card", fail)
    with refused(str(tmp_path / "export"), "No space left"):
        lnrepro.load(small).export(tmp_path / "export")
    assert not list(tmp_path.iterdir())


def test_other_modules_must_be_named(small, tmp_path):
    toy = "tests.engine.toy"
    moved = changed(small, tmp_path / "toy", experiment=toy)
    with refused(toy, "experiment="):
        lnrepro.load(moved)
    # An experiment without uses of its own.
    assert type(lnrepro.load(moved, experiment=toy)) is loaded_run.LoadedRun
    with refused("experiments.mnist", "experiments.draw"):
        lnrepro.load(small, experiment="experiments.draw")
    with refused("experiments.mnits"):
        lnrepro.load(changed(small, tmp_path / "run", experiment="experiments.mnits"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b"[1]"),
        ("config.json", b"{}"),
        ("model.safetensors", b"cposix\nsystem\n(S'true'\ntR."),
        ("model.safetensors", b""),
    ],
)
def test_damaged_exports_are_refused_in_one_line(exported, tmp_path, file, content):
    moved = shutil.copytree(exported, tmp_path / "export")
    (moved / file).write_bytes(content)
    with refused(str(moved / file)):
        _ = lnrepro.load(moved).params


def remove_digests(folder):
    """Make the config.json that an older version has written."""
    about = json.loads((folder / "config.json").read_text())
    about.get("checkpoint", {}).pop("digest", None)
    del about["data"]["facts"]
    (folder / "config.json").write_text(json.dumps(about))


def test_a_flipped_bit_of_an_export_is_noticed(exported, tmp_path, capsys):
    moved = shutil.copytree(exported, tmp_path / "export")
    path = moved / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 0x40
    path.write_bytes(content)
    with refused(f"{path} does not match its digest"):
        _ = lnrepro.load(moved).params
    remove_digests(moved)
    _ = lnrepro.load(moved).params
    assert f"{path}: not checked, it has no digest\n" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["run", "export"])
def test_facts_of_another_run_are_noticed(small, exported, tmp_path, kind, capsys):
    source = small if kind == "run" else exported
    moved = shutil.copytree(source, tmp_path / "run")
    path = moved / "data_facts.json"
    facts = json.loads(path.read_text()) | {"words": ["of", "another"]}
    path.write_text(json.dumps(facts))
    with refused(f"{path} does not match its digest"):
        _ = lnrepro.load(moved).facts
    remove_digests(moved)
    assert lnrepro.load(moved).facts == facts
    assert f"{path}: not checked, it has no digest\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("params.Dense_0.kernel", None),
        ("params.more", np.zeros(1)),
        ("params.Dense_0.kernel", np.zeros((64, 31), np.float32)),
        ("params.Dense_0.kernel", np.zeros((64, 32))),
    ],
)
def test_arrays_of_another_config_are_refused(exported, tmp_path, name, array):
    moved = shutil.copytree(exported, tmp_path / "export")
    path = moved / "model.safetensors"
    arrays = load_file(path) | {name: array}
    save_file({name: a for name, a in arrays.items() if a is not None}, path)
    remove_digests(moved)
    with refused(str(path), name):
        _ = lnrepro.load(moved).params


def test_a_checkpoint_of_another_config_is_refused(small, tmp_path):
    other = {"model.hidden": [32, 31], "norm": "none", "seed": 7}
    for field, value in other.items():
        moved = changed(small, tmp_path / field, **{field: value})
        with refused(str(moved)):
            _ = lnrepro.load(moved).params


def test_a_run_without_its_facts_is_refused(small, tmp_path):
    moved = shutil.copytree(small, tmp_path / "run")
    (moved / "data_facts.json").unlink()
    with refused(str(moved / "data_facts.json")):
        _ = lnrepro.load(moved).facts
