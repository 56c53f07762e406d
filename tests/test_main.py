"""The command line: several devices and processes, and mistakes in flags."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from absl import flags, logging

from lnrepro import main, optional
from lnrepro.engine import config_file
from tests.runs import ROOT, SMOKE, environment, newest_state, run, start


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One compilation cache and one prepared `digits` for the whole module."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def one_device(home):
    """An undisturbed run on one device."""
    workdir = home / "one"
    code, out, err = run(home, SMOKE, f"--workdir={workdir}")
    assert code == 0, err
    assert "data=digits" in out
    assert "curves.png" in out
    return workdir


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
    verbosity = logging.get_verbosity()

    def command(*argv):
        code = main.main(["main", *argv])
        for name in main.flag_names():
            flags.FLAGS[name].unparse()
        return code, *capfd.readouterr()

    yield command
    logging.set_verbosity(verbosity)


def assert_close(a, b, atol):
    a, b = newest_state(a), newest_state(b)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=atol, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [("--cpu_devices=4",), ("--cpu_devices=4", "--config.placement=pmap")]
)
def test_four_devices_agree_with_one(home, one_device, flags):
    workdir = home / f"four{len(flags)}"
    code, _, err = run(home, SMOKE, f"--workdir={workdir}", *flags)
    assert code == 0, err
    assert_close(one_device, workdir, 1e-5)


def two_processes(home, workdir, *flags) -> list[tuple[str, str]]:
    """Two processes of two devices each train together; what each wrote."""
    with socket.socket() as s:
        s.bind(("localhost", 0))
        port = s.getsockname()[1]
    flags = [
        *flags,
        f"--workdir={workdir}",
        f"--coordinator=localhost:{port}",
        "--num_processes=2",
        "--cpu_devices=2",
    ]
    processes = [start(home, *flags, f"--process_id={i}") for i in range(2)]
    outputs = [p.communicate(timeout=400) for p in processes]
    assert [p.returncode for p in processes] == [0, 0], outputs
    return outputs


@pytest.mark.slow
def test_two_processes_agree_with_one_and_write_once(home, one_device):
    workdir = home / "two"
    outputs = two_processes(home, workdir, SMOKE)
    assert_close(one_device, workdir, 1e-5)
    steps = [
        line.split(",")[0]
        for line in (workdir / "metrics.jsonl").read_text().splitlines()
    ]
    assert steps == [
        line.split(",")[0]
        for line in (one_device / "metrics.jsonl").read_text().splitlines()
    ]
    assert "numbers" in outputs[0][0]
    assert "numbers" not in outputs[1][0]


@pytest.mark.slow
def test_two_processes_train_draw_as_one_does(home):
    flags = ["--config=configs/draw.py:smoke"]
    code, _, err = run(home, *flags, f"--workdir={home / 'draw'}")
    assert code == 0, err
    two_processes(home, home / "draw-two", *flags)
    assert_close(home / "draw", home / "draw-two", 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "devices", "model", "more", "atol"),
    [
        ("skip_thoughts", 4, 2, [], 1e-5),
        # The reader's embedded set has 159 words. Its LN over 8 units makes fifty times
        # more, at every step, of the order sums are taken in (2e-7, 3e-5, ...): one
        # step with it, and the whole run without.
        ("attentive_reader", 3, 3, ["--config.steps=1"], 1e-6),
        ("attentive_reader", 3, 3, ["--config.norm=none"], 1e-6),
    ],
)
def test_a_vocabulary_shared_among_devices_changes_nothing(
    home, config, devices, model, more, atol
):
    evals = config_file.read(f"configs/{config}.py:smoke").evals
    flags = [
        f"--config=configs/{config}.py:smoke",
        *(f"--config.evals.{name}=never" for name in evals if evals[name] == "end"),
        "--config.curves=()",
        *more,
    ]
    folder = home / "-".join((config, *more))
    for name, mesh in {
        "whole": [],
        "shared": [f"--cpu_devices={devices}", f"--config.mesh.model={model}"],
    }.items():
        code, _, err = run(home, *flags, *mesh, f"--workdir={folder / name}")
        assert code == 0, err
    assert_close(folder / "whole", folder / "shared", atol)


@pytest.mark.slow
def test_a_run_goes_on_with_other_devices(home):
    flags = [SMOKE, "--config.epochs=60", "--config.save_every=22"]
    whole, moved = home / "stays", home / "moves"
    code, _, err = run(home, *flags, f"--workdir={whole}")
    assert code == 0, err
    for devices in (4, 2):
        process = start(home, *flags, f"--workdir={moved}", f"--cpu_devices={devices}")
        for line in process.stdout:
            if line.startswith("step "):
                break
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 143, err
    code, out, err = run(home, *flags, f"--workdir={moved}", "--cpu_devices=1")
    assert code == 0, err
    assert "resuming at step" in out
    assert_close(
        whole, moved, 1e-3
    )  # 1,320 steps on, rounding has grown; after 4,400 it may be 1.1e-3


@pytest.mark.slow
def test_evaluate_restores_the_best_checkpoint(home, one_device):
    code, out, err = run(home, SMOKE, f"--workdir={one_device}", "--evaluate")
    assert code == 0, err
    assert "valid/error" in out
    code, _, err = run(home, SMOKE, f"--workdir={home / 'nothing'}", "--evaluate")
    assert (code, err.count("\n")) == (2, 1)
    assert "holds no run" in err
    assert not (home / "nothing").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "--config is missing; there are configs/"),
        (["--config=configs/mnst.py"], "did you mean configs/mnist.py?"),
        (
            ["--config=configs/mnist.py:papr"],
            "no variant 'papr'; there are (none), paper, paper_bz4, small",
        ),
        ([SMOKE, "--config.sed=1"], "has no field 'sed'; did you mean 'seed'?"),
        (
            [SMOKE, "--config.optimizer.learning_rte=1"],
            "did you mean 'optimizer.learning_rate'?",
        ),
        (
            [SMOKE, "--config.batch_size=1e3"],
            "--config.batch_size=1e3: a whole number is needed; write 1000",
        ),
        ([SMOKE, "--config.seed=abc"], "--config.seed=abc: a whole number is needed"),
        ([SMOKE, "--config.steps=1.5"], "--config.steps=1.5: a whole number is needed"),
        (
            [SMOKE, "--config.optimizer.learning_rate=fast"],
            "--config.optimizer.learning_rate=fast: a number is needed",
        ),
        (
            [SMOKE, "--config.optimizer.learning_rate=0,01"],
            "a number is needed; write 0.01",
        ),
        (
            [SMOKE, "--config.learning_rate=1"],
            "no field 'learning_rate'; did you mean 'optimizer.learning_rate'?",
        ),
        (["--config=README.md"], "README.md is no config file: that is a Python file"),
        ([SMOKE, SMOKE], "--config is given 2 times; give it once"),
        (
            [SMOKE, "--config.evals.tset=end"],
            "has no field 'evals.tset'; did you mean 'evals.test'?",
        ),
        (
            [SMOKE, "--config.best.metric=valid/eror"],
            "names 'valid/eror', which is not measured; did you mean valid/error?",
        ),
        (
            [SMOKE, "--config.curves=(('loss',('train/los',),'log'),)"],
            "names 'train/los', which is not measured; did you mean train/loss?",
        ),
        (
            [SMOKE, "--config.curves=(('loss','train/loss','log'),)"],
            "is no panel; a panel is (label, (metric, ...), 'linear' or 'log')",
        ),
        ([SMOKE, "--config.model.hidden=(0,)"], "model.hidden = (0,): at least 1 is"),
        (
            ["--config=configs/convnet.py:smoke", "--config.model.channels=(4,0)"],
            "config.model.channels = (4, 0): at least 1 is needed",
        ),
        ([SMOKE, "--config.steps=10000000000000000000000"], "at most 2,147,483,647"),
        ([SMOKE, "--config.eval_batch_size=100000000000"], "at most 10,000,000"),
        ([SMOKE, "--config.data.dir=gs://bucket/sets"], "mount it, and give the path"),
        (
            [SMOKE, "--wrkdir=x"],
            "Unknown command line flag 'wrkdir'. Did you mean: workdir",
        ),
        ([SMOKE, "stray"], "unexpected argument 'stray'"),
        ([SMOKE, "--config.log_every=-1"], "config.log_every = -1: at least 1 is"),
        (
            ["--config=configs/draw.py:smoke", "--config.model.units=1000000"],
            "GiB; make config.model smaller",
        ),
        ([SMOKE, "--cpu_devices=100000"], "--cpu_devices=100000"),
        ([SMOKE, "--peer_timeout=0"], "--peer_timeout=0"),
        ([SMOKE, "--num_processes=2"], "--num_processes needs --coordinator=HOST"),
        ([SMOKE, "--resume"], "leave --config out"),
        (["--resume"], "holds no run"),
        (["--resume", "--config.seed=1"], "a run keeps its config; leave this out"),
        (
            [SMOKE, "--config.experiment=experiments.mnst"],
            "did you mean experiments.mnist?",
        ),
        (
            [SMOKE, "--config.norm=group"],
            "config.norm = 'group': choose one of none, layer, batch",
        ),
        (
            [SMOKE, "--config.optimizer.name=adm"],
            "config.optimizer.name = 'adm': choose one of adam",
        ),
        (
            [SMOKE, "--config.placement=tpu"],
            "config.placement = 'tpu': choose jit or pmap",
        ),
        (
            [SMOKE, "--config.pallas=True"],
            "config.pallas = True needs a TPU; the devices are cpu",
        ),
        (
            [SMOKE, "--config.batch_size=63", "--cpu_devices=4"],
            "does not divide over 4 devices; take 60 or 64",
        ),
        (
            [SMOKE, "--config.batch_size=2000"],
            "is larger than config.data.train_examples = 1437",
        ),
        ([SMOKE, "--config.data.name=digts"], "did you mean 'digits'?"),
        (
            ["--config=configs/mnist.py:paper"],
            "run `python scripts/prepare.py mnist --raw DIR`",
        ),
        (
            [SMOKE, "--config.data.features=63"],
            "config.data.features = 63, but digits has 64; pass "
            "--config.data.features=64",
        ),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(request, home, tmp_path, flags, says):
    workdir = tmp_path / "run"
    # The devices of this process are there already.
    if "--cpu_devices=4" in flags:
        code, _, err = run(home, *flags, f"--workdir={workdir}")
    else:
        command = request.getfixturevalue("command")
        code, _, err = command(*flags, f"--workdir={workdir}")
    assert code == 2
    assert says in err
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    assert not (workdir / "checkpoints").exists()


@pytest.mark.parametrize("flag", ["--workdir=gs://bucket/run", "--workdir=s3://b/r"])
def test_a_bucket_is_no_run_directory(command, flag):
    code, out, err = command(SMOKE, flag)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: --workdir = {flag.partition('=')[2]}: this is on no")
    assert err.count("\n") == 1
    assert not (ROOT / "gs:").exists()
    assert not (ROOT / "s3:").exists()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_folder_that_is_not_utf_8_is_refused(home, tmp_path, locale):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    env = {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    process = start(home, SMOKE, f"--workdir={os.fsdecode(folder)}", **env)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (2, "")
    assert "its path is not UTF-8; give another folder" in err
    assert err.count("\n") == 1
    assert not os.path.exists(folder)


def test_no_memory_is_one_line(monkeypatch, capsys):
    def run(argv):
        raise MemoryError("Unable to allocate 7.45 TiB")

    monkeypatch.setattr(main, "run", run)
    assert main.main(["main"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: out of memory (Unable to allocate 7.45 TiB); make ")
    assert err.count("\n") == 1


def test_a_populated_folder_is_no_run_directory(command, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    code, out, err = command(SMOKE, f"--workdir={tmp_path}")
    assert (code, out) == (2, "")
    assert "is not empty and holds no run (there is thesis.tex); give a new" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_the_home_folder_is_written_as_a_tilde(home, tmp_path):
    flags = [SMOKE, "--config.epochs=0.1", "--config.evals.test=never"]
    flags += ["--config.curves=()", "--workdir=~/run", "--config.data.dir=~/sets"]
    process = start(home, *flags, HOME=str(tmp_path))
    _, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} >= {"run", "sets"}
    assert not (ROOT / "~").exists()
    there = json.loads((tmp_path / "run/config.json").read_text())["config"]
    assert there["data"]["dir"] == str(tmp_path / "sets")


def test_a_python_that_is_too_old_is_named():
    code = (
        "import runpy, sys; sys.version_info = (3, 10, 4, 'final', 0); "
        "runpy.run_module('lnrepro.main', run_name='__main__')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: Python 3.10 is too old; 3.11 is needed\n"
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def is_importing(process, workdir):
    maps = pathlib.Path(f"/proc/{process.pid}/maps")
    return "jaxlib" in maps.read_text()


def is_compiling(process, workdir):
    return (workdir / "config.json").exists()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="/proc is read")
@pytest.mark.parametrize("sign", [is_importing, is_compiling])
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
def test_ctrl_c_before_training_ends_at_once(home, tmp_path, sign, delay):
    process = start(home, SMOKE, f"--workdir={tmp_path / 'run'}", "--config.epochs=999")
    while not sign(process, tmp_path / "run"):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.fullmatch(r"interrupted\n|stopped by SIGINT at step \d+; .*\n", err)


def test_a_signal_is_not_lost_where_training_takes_over_the_handling():
    # Only the new handler is left when the thread of `interrupt` reads the signal.
    code = (
        "import signal, time; from lnrepro.engine import interrupt, signals; "
        "interrupt.exit_at_once(); signal.raise_signal(signal.SIGINT)\n"
        "with signals.collect() as caught:\n"
        "    time.sleep(1)\n"
        "raise SystemExit('not lost' if caught else 'lost')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.slow
def test_a_run_is_resumed_and_evaluated_with_its_own_config(home, tmp_path):
    flags = [SMOKE.replace("=", " ").split()[0], SMOKE.split("=")[1]]
    stopped = [*flags, "--config.norm=none", "--config.epochs=1", "--config.seed=3"]
    workdir = f"--workdir={tmp_path / 'run'}"
    code, out, err = run(home, *stopped, workdir)
    assert (code, err) == (0, "")
    assert "norm=none data=digits seed=3" in out
    for flag, says in (("--resume", "is finished"), ("--evaluate", "at step 22")):
        code, out, err = run(home, flag, workdir)
        assert (code, err) == (0, "")
        assert says in out


@pytest.mark.parametrize("field", ["seeds", "experiment"])
def test_fields_that_name_the_default_folder_must_be_set(command, field):
    code, out, err = command(SMOKE, f"--config.{field}=None")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: config.{field} = None: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("flag", ["--resume", "--evaluate"])
def test_the_module_of_a_strangers_run_is_not_imported(command, tmp_path, flag):
    config = {"experiment": "antigravity", "norm": "none", "data": {"name": "x"}}
    (tmp_path / "config.json").write_text(json.dumps({"config": config}))
    code, out, err = command(flag, f"--workdir={tmp_path}")
    assert (code, out) == (2, "")
    assert "holds a run of 'antigravity'; if you trust this module, give" in err
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("module", ["absl", "ml_collections", "optax", "orbax"])
def test_missing_extra_names_the_pip_command(home, tmp_path, module):
    # None in sys.modules is how Python itself marks a module that cannot be imported.
    code = (
        f"import runpy, sys; sys.modules[{module!r}] = None; "
        f"runpy.run_module('lnrepro.main', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, SMOKE, f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    assert (
        f"{module} is not installed; training needs: pip install 'lnrepro[train]'"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("config", ["mnist", "convnet"])
def test_training_without_the_packages_that_it_can_do_without(home, tmp_path, config):
    whole, bare = tmp_path / "whole", tmp_path / "bare"
    flags = [f"--config=configs/{config}.py:smoke"]
    # This also prepares the data set, which needs the packages.
    code, _, error = run(home, *flags, f"--workdir={whole}")
    assert code == 0, error
    missing = [*optional.LEFT_OUT, "tensorflow_datasets", "sklearn", "array_record"]
    program = (
        f"import runpy, sys; sys.modules |= dict.fromkeys({missing}); "
        f"runpy.run_module('lnrepro.main', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *flags, f"--workdir={bare}"],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = {line.partition(" ")[0] for line in done.stderr.splitlines()}
    assert said <= set(optional.LEFT_OUT)
    assert {"grain", "tensorboardX", "matplotlib"} <= said
    assert "valid/error" in done.stdout
    trained = json.loads((whole / "results.json").read_text())
    without = json.loads((bare / "results.json").read_text())
    # What cannot be drawn is left out. All other numbers are the same to the bit.
    assert without == {name: trained[name] for name in without}
    assert "valid/error" in without
    np.testing.assert_equal(newest_state(bare), newest_state(whole))


def test_help_lists_the_configs(capsys):
    assert main.main(["main", "--help"]) == 0
    out = capsys.readouterr().out
    assert "configs/mnist.py" in out
    assert "--workdir" in out


def test_a_failure_does_not_wait_for_threads_that_wait():
    code = (
        "import threading; from lnrepro import main; "
        "threading.Thread(target=threading.Event().wait).start(); main._exit(1)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 1


def test_reading_a_config_file_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config_file.read("configs/mnist.py:smoke", ["--config.seed=1"])
