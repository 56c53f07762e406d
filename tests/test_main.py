"""The command line: several devices and processes, and mistakes in flags."""

import json
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from absl import logging

from lnrepro import main
from lnrepro.engine.metrics import read
from tests.hardening.processes import ended, lines, start_two, wait_for
from tests.runs import ROOT, SMOKE, environment, newest_state, run, start


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One compilation cache and one prepared `digits` for the whole module."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def command(home, monkeypatch, capfd):
    """A function that runs the trainer in this process: exit code, stdout, stderr.

    To start a process takes a second.
    """
    monkeypatch.setenv("LNREPRO_DATA", environment(home)["LNREPRO_DATA"])
    monkeypatch.chdir(ROOT)
    # `main` adds the current directory. The path is restored afterwards.
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setattr(main, "_use_compilation_cache", lambda jax: None)
    monkeypatch.setattr(logging, "set_verbosity", lambda level: None)

    def command(*argv):
        code = main.main(["main", *argv])
        return code, *capfd.readouterr()

    return command


def assert_close(a, b, atol):
    a, b = newest_state(a), newest_state(b)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=atol, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [("--cpu_devices=4",), ("--cpu_devices=4", "--config.placement=pmap")]
)
def test_four_devices_agree_with_one(home, mnist_run, flags):
    workdir = home / f"four{len(flags)}"
    code, _, err = run(home, SMOKE, f"--workdir={workdir}", *flags)
    assert code == 0, err
    assert_close(mnist_run, workdir, 1e-5)


@pytest.mark.slow
def test_two_processes_agree_with_one_and_write_once(home, mnist_run):
    one, two = mnist_run, home / "two"
    both = ended(*start_two(home, two, SMOKE, "--cpu_devices=2"))
    assert [code for code, _, _ in both] == [0, 0], both
    assert_close(one, two, 1e-5)
    steps = [[r["step"] for r in read(path / "metrics.jsonl")] for path in (one, two)]
    assert steps[0] == steps[1]
    assert ["numbers" in out for _, out, _ in both] == [True, False]


@pytest.mark.slow
def test_a_run_goes_on_with_other_devices(home):
    flags = [SMOKE, "--config.epochs=60", "--config.save_every=22"]
    whole, moved = home / "stays", home / "moves"
    code, _, err = run(home, *flags, f"--workdir={whole}")
    assert code == 0, err
    for devices in (4, 2):
        before = len(lines(moved))
        process = start(home, *flags, f"--workdir={moved}", f"--cpu_devices={devices}")
        wait_for(process, lambda before=before: len(lines(moved)) > before + 1)
        process.send_signal(signal.SIGTERM)
        ((code, _, err),) = ended(process)
        assert code == 143, err
    code, out, err = run(home, *flags, f"--workdir={moved}", "--cpu_devices=1")
    assert code == 0, err
    assert "resuming at step" in out
    # Rounding has grown.
    assert_close(whole, moved, 1e-3)


@pytest.mark.parametrize(
    ("named", "flags"),
    [
        ("did you mean 'seed'?", "--config.sed=1"),
        ("config.batch_size=1e3", "--config.batch_size=1e3"),
        ("model.hidden", "--config.model.hidden=(0,)"),
        ("experiments.mnst", "--config.experiment=experiments.mnst"),
        ("there are test/nll", "--config.best.metric=valid/eror"),
        ("config.kernels", "--config.kernels=on"),
        ("there are no kernels for cpu", "--autotune"),
        ("config.batch_size", "--config.batch_size=2000"),
        ("'digits'?", "--config.data.name=digts"),
        ("gs://bucket/sets", "--config.data.dir=gs://bucket/sets"),
        ("gs://bucket/run", "--workdir=gs://bucket/run"),
        ("'--wrkdir=x'", "--wrkdir=x"),
        ("'stray'", "stray"),
        ("nowhere", "@nowhere"),
        ("argument --cpu_devices: ", "--cpu_devices=100000"),
        ("--num_processes", "--num_processes=2"),
        ("--config", "--resume"),
        ("holds no run", "--evaluate"),
        ("nothing is expected", "--check"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(command, tmp_path, named, flags):
    assert_mistake(command, tmp_path, named, SMOKE, f"--workdir={tmp_path}/run", flags)


@pytest.mark.parametrize(
    ("named", "flags"),
    [
        ("--config is missing; there are configs/attentive_reader.py", ""),
        ("--workdir is given twice", "--workdir=a --workdir=b"),
        # Values may be equal.
        ("need --coordinator", "--num_processes 2 --process_id 2"),
        ("there are configs/attentive_reader.py, ", "--config=configs/mnst.py"),
        ("'papr'; there are (none), paper", "--config=configs/mnist.py:papr"),
        ("README.md", "--config=README.md"),
        ("scripts/prepare.py mnist", "--config=configs/mnist.py:paper"),
        ("holds no run", "--resume --workdir=nowhere"),
        ("need --workdir", "--resume"),
        ("--config.seed=1", "--resume --workdir=nowhere --config.seed=1"),
        ("needs the --config", "--check"),
        # Of flags in a file.
        ("config.norm = 'group'", "@FLAGS"),
    ],
)
def test_mistakes_in_what_is_run(command, tmp_path, named, flags):
    (tmp_path / "flags").write_text(f"{SMOKE}\n--config.norm=group\n")
    flags = flags.replace("FLAGS", f"{tmp_path}/flags")
    assert_mistake(command, tmp_path, named, *flags.split())


def assert_mistake(command, tmp_path, named, *flags):
    code, out, err = command(*flags)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert named in err
    assert not (tmp_path / "run/checkpoints").exists()


def test_a_run_is_checked_by_the_config_of_its_default(command, mnist_run):
    # Of the default with the fields of the smoke run: two epochs are too few.
    flags = ("--config.model.hidden=(32, 32)", "--config.batch_size=64")
    flags += ("--config=configs/mnist.py", "--config.epochs=2.0")
    code, out, err = command(*flags, f"--workdir={mnist_run}", "--check")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert ": fail: train/nll is " in err


@pytest.mark.slow
@pytest.mark.parametrize("end", ["closed", "full", "pipe"])
def test_a_run_outlives_its_output(home, tmp_path, end):
    redirect = {"closed": ">&- 2>&-", "full": ">/dev/full 2>&1", "pipe": "| head -c 9"}
    command = shlex.join([sys.executable, "-m", "lnrepro.main", SMOKE])
    subprocess.run(
        f"{command} --workdir={tmp_path}/run {redirect[end]}",
        shell=True,
        cwd=ROOT,
        env=environment(home),
        timeout=200,
        check=end != "pipe",
        stdout=subprocess.DEVNULL,
    )
    assert (tmp_path / "run/results.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [False, True])
def test_sighup_saves_and_stops_unless_it_is_ignored(home, tmp_path, ignored):
    # As nohup does, for the processes that are started.
    action = signal.SIG_IGN if ignored else signal.SIG_DFL
    old = signal.signal(signal.SIGHUP, action)
    process = start(home, SMOKE, "--config.epochs=20", f"--workdir={tmp_path}")
    signal.signal(signal.SIGHUP, old)
    # In the training loop.
    wait_for(process, lambda: lines(tmp_path))
    process.send_signal(signal.SIGHUP)
    ((code, _, _),) = ended(process)
    assert code == (0 if ignored else 128 + signal.SIGHUP)
    assert (tmp_path / "results.json").exists() == ignored


def test_a_populated_folder_is_no_run_directory(command, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    code, out, err = command(SMOKE, f"--workdir={tmp_path}")
    assert (code, out) == (2, "")
    assert "is not empty and has no config.json of a run (there is thesis.tex)" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_ctrl_c_while_it_compiles_ends_at_once(home, tmp_path):
    flags = [SMOKE, f"--workdir={tmp_path}", "--config.epochs=999"]
    # A run that ends at once may leave half a program in its cache.
    process = start(home, *flags, XDG_CACHE_HOME=str(home))
    wait_for(process, (tmp_path / "config.json").exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    # The system ends the process, or the training loop has taken over and saves.
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert re.fullmatch(r"|stopped by SIGINT at step \d+; .*\n", err)


def test_a_run_is_resumed_and_evaluated_with_its_own_config(
    command, mnist_run, tmp_path
):
    run = shutil.copytree(mnist_run, tmp_path / "run")
    code, out, err = command("--resume", f"--workdir={run}")
    assert (code, err) == (0, "")
    assert "is finished" in out
    code, _, err = command("--evaluate", f"--workdir={run}")
    assert (code, err) == (0, "")
    results = json.loads((run / "results.json").read_text())
    again = json.loads((run / "evaluation.json").read_text())
    assert again["step"] == results["best step"]
    assert again["valid/error"] == pytest.approx(results["best valid/error"])


@pytest.mark.parametrize("flag", ["--resume", "--evaluate"])
def test_the_module_of_a_strangers_run_is_not_imported(command, tmp_path, flag):
    config = {"experiment": "antigravity", "norm": "none", "data": {"name": "x"}}
    (tmp_path / "config.json").write_text(json.dumps({"config": config}))
    code, out, err = command(flag, f"--workdir={tmp_path}")
    assert (code, out) == (2, "")
    assert "holds a run of 'antigravity'; if you trust this module" in err
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("module", ["absl", "ml_collections", "optax", "orbax"])
def test_missing_extra_names_the_pip_command(home, tmp_path, module):
    # None in sys.modules is how Python itself marks a module that cannot be imported.
    program = (
        f"import runpy, sys; sys.modules[{module!r}] = None; "
        f"runpy.run_module('lnrepro.main', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, SMOKE, f"--workdir={tmp_path / 'run'}"],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"{module} is not installed" in done.stderr
    assert "pip install 'lnrepro[train]'" in done.stderr


def test_help_lists_the_configs_and_what_a_config_has(capsys):
    assert main.main(["main", "--help"]) == 0
    out = capsys.readouterr().out
    assert "configs/mnist.py" in out
    assert "--workdir" in out
    assert main.main(["main", "--help", "--config=configs/draw.py:small"]) == 0
    out = capsys.readouterr().out
    assert "configs/draw.py:paper\n" in out
    assert "--config.steps=9000\n      number of optimiser steps\n" in out
    assert "\n      one of none, weight, layer_cell, layer\n" in out


def test_only_our_own_compilation_cache_has_a_limit(monkeypatch, tmp_path):
    config = mock.Mock()

    def set_to():
        config.update.reset_mock()
        main._use_compilation_cache(mock.Mock(config=config))
        return {call.args[0]: call.args[1] for call in config.update.call_args_list}

    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = set_to()
    assert found["jax_compilation_cache_dir"] == str(tmp_path / "lnrepro/xla")
    assert 2**30 <= found["jax_compilation_cache_max_size"] < 2**40
    # A folder of the user's may hold programs of others.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    assert not any(name.startswith("jax_compilation_cache") for name in set_to())
    # A user of a container may have no home folder.
    for name in ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(pathlib.Path, "home", mock.Mock(side_effect=RuntimeError))
    assert not any(name.startswith("jax_compilation_cache") for name in set_to())
