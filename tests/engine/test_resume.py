"""A run is one run: what does not go with it is refused by name when it goes on."""

import json
import shutil

import jax
import pytest

from lnrepro.engine import loaded_run, peers, provenance, train
from lnrepro.engine.checkpoint import Store
from lnrepro.errors import UserError
from tests.engine import toy
from tests.engine.test_train import config, interrupt


@pytest.fixture(autouse=True)
def _no_data_set(monkeypatch):
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))


def stopped(folder, monkeypatch, at=17, **changes):
    """A run that crashed, with a checkpoint of step 15."""
    with monkeypatch.context() as m:
        interrupt(m, at)
        with pytest.raises(KeyError):
            train.train(config(**changes), folder)


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_checkpoints_of_another_seed_are_refused(tmp_path, monkeypatch):
    stopped(tmp_path / "run", monkeypatch)
    stopped(tmp_path / "other", monkeypatch, seed=1)
    shutil.rmtree(tmp_path / "run/checkpoints")
    shutil.copytree(tmp_path / "other/checkpoints", tmp_path / "run/checkpoints")
    with pytest.raises(
        UserError,
        match=r"last/15 is a checkpoint of another run \(config.seed: 1 there, 0 in",
    ):
        train.train(config(), tmp_path / "run")
    with pytest.raises(UserError, match=r"best/10 is a checkpoint of another run"):
        train.evaluate(config(), tmp_path / "run")
    with pytest.raises(UserError, match=r"best/10 is a checkpoint of another run"):
        _ = loaded_run.load(tmp_path / "run").weights


def test_checkpoints_of_other_data_are_refused(tmp_path, monkeypatch):
    stopped(tmp_path, monkeypatch)
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/2", {}))
    edit(
        tmp_path / "config.json",
        lambda about: about["data"].update(fingerprint="toy/2"),
    )
    with pytest.raises(UserError, match=r"\(data toy/1 there, toy/2 now\)"):
        train.train(config(), tmp_path)


def test_records_of_another_run_are_refused(tmp_path, monkeypatch):
    stopped(tmp_path / "run", monkeypatch)
    stopped(tmp_path / "other", monkeypatch, seed=1)
    shutil.copy(tmp_path / "other/metrics.jsonl", tmp_path / "run/metrics.jsonl")
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"metrics.jsonl: its first 4 records are not"):
        train.train(config(), tmp_path / "run")
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before


def test_an_edited_record_is_refused(tmp_path, monkeypatch):
    stopped(tmp_path, monkeypatch)
    path = tmp_path / "metrics.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    record = json.loads(first)
    record["train/loss"] /= 2
    path.write_text("".join([json.dumps(record) + "\n", *rest]))
    with pytest.raises(UserError, match="are not those that go with the checkpoint"):
        train.train(config(), tmp_path)


def test_an_edited_config_is_refused(tmp_path, monkeypatch):
    stopped(tmp_path, monkeypatch)
    edit(tmp_path / "config.json", lambda about: about["config"].update(seed=1))
    edited = loaded_run.load(tmp_path).config
    with pytest.raises(UserError, match=r"another run \(config.seed: 0 there, 1 in"):
        train.train(edited, tmp_path)


def test_a_config_that_is_gone_is_refused(tmp_path, monkeypatch):
    stopped(tmp_path, monkeypatch)
    (tmp_path / "config.json").unlink()
    with pytest.raises(UserError, match=r"has checkpoints, but no config.json"):
        train.train(config(), tmp_path)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"best'])
def test_damaged_results_are_refused_and_made_again(tmp_path, text):
    numbers = train.train(config(steps=10), tmp_path)
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(UserError, match=r"results.json is damaged: remove it"):
        train.train(config(steps=10), tmp_path)
    (tmp_path / "results.json").unlink()
    assert train.train(config(steps=10), tmp_path) == numbers


def test_a_run_of_an_earlier_version_goes_on(tmp_path, monkeypatch):
    """Version 0.2.0 wrote neither the config nor a digest into its checkpoints."""
    whole = train.train(config(), tmp_path / "whole")
    new = ("config", "fingerprint", "devices", "records_digest")
    save = Store.save

    def without(self, name, step, state, notes):
        kept = {k: v for k, v in notes.items() if k not in new}
        save(self, name, step, state, kept)

    with monkeypatch.context() as m:
        m.setattr(Store, "save", without)
        stopped(tmp_path / "old", monkeypatch)
    # It also lacks fields that the configs of this version have.
    edit(tmp_path / "old/config.json", lambda a: a["config"].pop("steps_per_call"))
    assert train.train(config(), tmp_path / "old") == whole
    assert loaded_run.load(tmp_path / "old").weights.step == whole["best step"]


def test_each_start_is_recorded_and_a_change_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(provenance, "git_commit", lambda: "aaaa")
    stopped(tmp_path, monkeypatch)
    stopped(tmp_path, monkeypatch, at=18)
    assert "resumed otherwise" not in capsys.readouterr().out
    monkeypatch.setattr(provenance, "git_commit", lambda: "bbbb")
    versions = provenance.versions() | {"jax": "9.9"}
    monkeypatch.setattr(provenance, "versions", lambda: versions)
    train.train(config(), tmp_path)
    out = capsys.readouterr().out
    assert (
        "resumed otherwise than started before: git aaaa -> bbbb; versions.jax" in out
    )
    starts = provenance.starts(tmp_path)
    assert [start.get("step") for start in starts] == [None, 15, 15]
    assert [start["git"] for start in starts] == ["aaaa", "aaaa", "bbbb"]
    assert starts[0]["devices"] == starts[2]["devices"]


def test_a_wrong_name_of_what_runs_at_the_end_is_corrected_on_resume(
    tmp_path, monkeypatch
):
    whole = train.train(config(), tmp_path / "whole")
    wrong = config()
    del wrong.evals["picture"]
    wrong.evals.pictre = "end"
    real = toy.make

    def make(c):
        exp = real(c)

        def evaluate(vars, name):
            if name == "pictre":
                raise UserError("no such evaluation")
            return exp.evaluate(vars, name)

        return exp._replace(evaluate=evaluate)

    monkeypatch.setattr(toy, "make", make)
    with pytest.raises(UserError, match="no such evaluation"):
        train.train(wrong, tmp_path / "run")
    assert train.train(config(), tmp_path / "run") == whole
    assert loaded_run.load(tmp_path / "run").config.evals == config().evals


def test_what_shaped_the_training_is_never_corrected(tmp_path, monkeypatch):
    stopped(tmp_path, monkeypatch)
    with pytest.raises(UserError, match=r"config.evals.test: 'epoch' there, '5' now"):
        train.train(config(**{"evals.test": "5"}), tmp_path)
    with pytest.raises(UserError, match=r"config.best.metric: 'test/error' there"):
        train.train(config(**{"best.metric": None}), tmp_path)


def test_pmap_goes_on_with_as_many_devices_only(tmp_path, monkeypatch):
    stopped(tmp_path, monkeypatch, placement="pmap")
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    with pytest.raises(
        UserError, match=r"'pmap' on 4 devices, and there are 2 now: each device has"
    ):
        train.train(config(placement="pmap"), tmp_path)


def test_pmap_runs_are_evaluated_and_finished(tmp_path):
    c = config(placement="pmap")
    numbers = train.train(c, tmp_path)
    again = train.evaluate(c, tmp_path)
    assert again["test/error"] == pytest.approx(numbers["best test/error"], rel=1e-6)
    # Killed between the last checkpoint and results.json.
    (tmp_path / "results.json").unlink()
    assert train.train(c, tmp_path) == numbers


def test_one_process_agrees_with_itself():
    peers.agree("test", {"config": {"seed": 0}})
    with pytest.raises(UserError, match=r"^mine$"), peers.together("test"):
        raise UserError("mine")
