"""scripts/sweep.py: ids, commands, resuming, reports, child processes, bad input."""

import argparse
import fcntl
import importlib
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
import time
import types

import pytest

from lnrepro.config import flat
from lnrepro.engine import config_file
from scripts import sweep as script
from scripts.sweeps import child, local, on_ray, on_slurm, planned_runs
from tests.hardening.processes import assert_same_run
from tests.refused import refused
from tests.runs import ROOT, environment
from tests.runs import run as train

SMOKE = "configs/mnist.py:smoke"
SWEPT = [
    p.stem
    for p in sorted((ROOT / "configs").glob("*.py"))
    if "SWEEPS = " in p.read_text()
]
FINISH = "print('trained'); open('results.json', 'w').write('{}')"
# It saves at SIGTERM, and says when it is ready for that.
SAVES = """
import signal, sys, time
def save(*_):
    open('saved', 'w').close()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
open('ready', 'w').close(); time.sleep(60)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(script, "POLL_SECONDS", 0.02)


def stub(folder, id, code):
    """A run whose command is a line of Python, in the directory of its id."""
    code = f"import os; os.chdir({str(folder / id)!r})\n{code}"
    return planned_runs.PlannedRun(id, folder / id, ("-c", code))


def until(condition, seconds=20.0):
    """Wait for `condition()` to hold; its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    return value


# What is to be run.


def test_seeds_are_ranges_and_numbers():
    assert script.seeds("5-7,0") == [5, 6, 7, 0]
    for words in ("5-", "-5", "a", "7-5", "5,5"):
        with pytest.raises(argparse.ArgumentTypeError, match=words):
            script.seeds(words)


def test_ids_directories_and_commands_follow_from_the_overrides(tmp_path):
    settings, only = ["--config.epochs=4"], ["norm=layer", "seed=1,3"]
    planned = planned_runs.plan(SMOKE, "", str(tmp_path), settings, only)
    assert [r.id for r in planned] == ["norm=layer,seed=1", "norm=layer,seed=3"]
    where = tmp_path / "norm=layer,seed=1"
    command = f"-m lnrepro.main --config={SMOKE} --config.epochs=4 "
    command += f"--config.norm=layer --config.seed=1 --workdir={where}"
    assert planned[0].workdir == where
    assert planned[0].command == tuple(command.split())
    planned = planned_runs.plan(SMOKE, "", str(tmp_path), [], only[:1], [5, 6])
    assert [r.id for r in planned] == ["norm=layer,seed=5", "norm=layer,seed=6"]
    settings.append("--config.batch_size=32")
    (folder,) = {
        r.workdir.parent for r in planned_runs.plan(SMOKE, "", None, settings, [])
    }
    assert folder == pathlib.Path("runs/mnist/smoke,batch_size=32,epochs=4")


@pytest.mark.parametrize("name", SWEPT)
def test_every_sweep_of_every_config_resolves_to_what_it_says(name, monkeypatch):
    config = importlib.import_module(f"configs.{name}")
    assert {"", "learning_rate"} <= config.SWEEPS.keys()
    resolved, read = [], config_file.read

    def kept_read(*arguments):
        resolved.append(read(*arguments))
        return resolved[-1]

    # What the plan resolves is checked, since to resolve a config takes time.
    monkeypatch.setattr(config_file, "read", kept_read)
    for sweep in config.SWEEPS:
        resolved.clear()
        planned = planned_runs.plan(f"configs/{name}.py:smoke", sweep, None, [], [])
        assert len({r.workdir for r in planned}) == len(config.SWEEPS[sweep])
        for at_run, overrides in zip(resolved, config.SWEEPS[sweep], strict=True):
            found = flat(at_run)
            for field, value in overrides.items():
                assert (found[field], type(found[field])) == (value, type(value))


def test_print_gives_the_shells_words_and_leaves_out_finished_runs(tmp_path, capsys):
    root = tmp_path / "a root"
    done = root / "norm=none,seed=0"
    done.mkdir(parents=True)
    (done / "results.json").write_text("{}")
    flags = ["--launcher", "print", "--root", str(root), "--only", "seed=0"]
    assert script.main([SMOKE, *flags]) == 0
    out, err = capsys.readouterr()
    assert "1 of 3 runs are finished" in err
    words = [shlex.split(line) for line in out.splitlines()]
    wanted = [f"--workdir={root}/norm={norm},seed=0" for norm in ("batch", "layer")]
    assert [w[-1] for w in words] == wanted
    assert words[0][:3] == ["python", "-m", "lnrepro.main"]


def test_planning_initialises_no_device():
    code = "from scripts import sweep; from jax._src import xla_bridge;"
    code += f"sweep.main([{SMOKE!r}, '--launcher', 'print']);"
    code += "assert not xla_bridge.backends_are_initialized()"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("configs/mnst.py", "did you mean configs/mnist.py?"),
        (f"{SMOKE} --name learning_rat", "there are (none), learning_rate"),
        (f"{SMOKE} --launcher slrum", "invalid choice: 'slrum'"),
        (f"{SMOKE} --processes 0", "at least 1 is needed"),
        (f"{SMOKE} --only norm=group", "the sweep has batch, layer, none"),
        (f"{SMOKE} --only sed=1", "the sweep has none"),
        (f"{SMOKE} -- --config.epoch=3", "did you mean 'epochs'?"),
        (f"{SMOKE} -- --config.seed=3", "the sweep varies it"),
        (f"{SMOKE} -- --workdir=x", "only --config.FIELD=VALUE"),
        (f"{SMOKE} --launcher slurm --gpus 0.5", "SLURM gives whole GPUs"),
    ],
)
def test_mistakes_are_one_line_and_start_nothing(tmp_path, argv, says):
    config, *rest = argv.split()
    with refused(says):
        script.main([config, "--root", str(tmp_path / "runs"), *rest])
    assert not (tmp_path / "runs").exists()


# Two settings, whose runs would have one folder.
SPACES = "SWEEPS = {'': [{'data.name': 'a b'}, {'data.name': 'ab'}]}"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "has no SWEEPS"),
        ("SWEEPS = {'': [{'norn': 'layer'}]}", "did you mean 'norm'?"),
        ("SWEEPS = {'': [{'batch_size': 0}]}", "config.batch_size = 0: "),
        ("SWEEPS = {'': [{'seed': 1}, {'seed': 1}]}", "are called 'seed=1'"),
        (SPACES, "several runs of the sweep are called 'data.name=ab'"),
        ("SWEEPS = {'': []}", "has no runs"),
        ("SWEEPS = {'rates': [{'seed': 1}]}", "there is no sweep ''"),
        ("SWEEPS = [{'seed': 1}]", "SWEEPS = {'': [{'norm': 'layer', 'seed': 1}]}"),
        ("SWEEPS = {'': ['seed']}", "SWEEPS = {'': [{'norm': 'layer', 'seed': 1}]}"),
    ],
)
def test_configs_whose_sweep_is_wrong(tmp_path, body, says):
    file = tmp_path / "mine.py"
    file.write_text("from configs.mnist import get_config\n" + body)
    with refused(says):
        planned_runs.plan(f"{file}:smoke", "", str(tmp_path), [], [])


def test_a_sweep_may_have_numbers_of_numpy(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        """
import numpy as np
from configs.mnist import get_config
rate, hidden = np.float64(0.01), np.array([8, 8])
own = {"optimizer.learning_rate": rate, "model.hidden": hidden}
SWEEPS = {"": [{"seed": np.int64(1)} | own]}
"""
    )
    (run,) = planned_runs.plan(f"{file}:smoke", "", str(tmp_path), [], [])
    assert run.id == "model.hidden=(8,8),optimizer.learning_rate=0.01,seed=1"
    assert "--config.optimizer.learning_rate=0.01" in run.command


def test_names_of_folders_are_those_that_the_trainer_takes(tmp_path):
    long, only = "a" * 300, ["norm=layer", "seed=1"]
    settings = [f"--config.data.dir={tmp_path}", f"--config.data.name={long}"]
    names = []
    for last in ("", "b"):
        settings[-1] += last
        (run,) = planned_runs.plan(SMOKE, "", None, settings, only)
        names.append(run.workdir.parent.name)
        (tmp_path / names[-1]).mkdir()
    assert len(set(names)) == 2
    settings = ["--config.model.hidden=[8, 8]"]
    (run,) = planned_runs.plan(SMOKE, "", None, settings, only)
    assert run.workdir.parent.name == "smoke,model.hidden=%5B8,8%5D"


def test_data_that_is_missing_is_said_once_and_nothing_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("LNREPRO_DATA", str(tmp_path / "data"))
    flags = ["configs/mnist.py:paper", "--root", str(tmp_path / "runs")]
    with refused("mnist is not prepared in ", "mnist --list` says where they come fr"):
        script.main(flags)
    assert not (tmp_path / "runs").exists()
    # The data may be on another machine.
    assert script.main([*flags, "--launcher", "print"]) == 0


def test_two_sweeps_wait_for_each_others_runs(tmp_path):
    """A run that another process holds is neither started nor a failure."""
    a, b = (stub(tmp_path, id, FINISH) for id in "ab")
    held = tmp_path / "a"
    held.mkdir()
    with open(held / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def finish():
            until(lambda: b.finished)
            (held / "results.json").write_text("{}")
            lock.close()

        other = threading.Thread(target=finish)
        other.start()
        outcomes, _ = script.drive(local.Local(1), [a, b])
        other.join()
    assert outcomes == {a: "finished", b: "finished"}
    assert not (held / "output.log").exists()


def test_a_directory_with_a_run_of_another_config_is_refused(tmp_path):
    where = tmp_path / "norm=layer,seed=0"
    where.mkdir()
    flags = ["--config.norm=layer", "--config.seed=0", "--config.epochs=3"]
    about = {"config": config_file.read(SMOKE, flags).to_dict()}
    about["data"] = {"fingerprint": "x"}
    (where / "config.json").write_text(json.dumps(about))
    assert planned_runs.plan(SMOKE, "", str(tmp_path), ["--config.epochs=3"], [])
    with refused("config.epochs: 3.0 there, 2.0 now"):
        planned_runs.plan(SMOKE, "", str(tmp_path), [], [])
    # Another sweep may have trained it there after the plan was made.
    (where / "config.json").rename(tmp_path / "later")
    only = ["norm=layer", "seed=0"]
    (run,) = planned_runs.plan(SMOKE, "", str(tmp_path), [], only)
    (where / "results.json").write_text("{}")
    assert run.finished
    (tmp_path / "later").rename(where / "config.json")
    assert not run.finished


@pytest.mark.parametrize(
    ("launcher", "module"), [("ray", "ray"), ("slurm", "submitit")]
)
def test_a_missing_library_stops_before_anything_is_touched(
    tmp_path, monkeypatch, launcher, module
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=module):
        script.main([SMOKE, "--launcher", launcher, "--root", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists()


# How it is run.


def test_failures_are_reported_with_their_last_line_and_only_they_run_again(
    tmp_path, capsys
):
    bad = "print('loss is nan'); print(); raise SystemExit(3)"
    runs = [stub(tmp_path, "good", FINISH), stub(tmp_path, "bad", bad)]
    outcomes, stopped = script.drive(local.Local(2), runs)
    assert {run.id: how.partition("  ")[0] for run, how in outcomes.items()} == {
        "good": "finished",
        "bad": "failed: loss is nan",
    }
    assert script.report(runs, outcomes, stopped) == 1
    out = capsys.readouterr().out
    assert "1 of 2 runs are finished" in out
    assert out.count("bad: failed: loss is nan  (exit code 3;") == 2
    assert [run.id for run in runs if not run.ended] == ["bad"]
    mended = [stub(tmp_path, "bad", FINISH)]
    assert script.report(runs, *script.drive(local.Local(2), mended)) == 0
    # It may have saved on a disk of another node.
    elsewhere = [stub(tmp_path, "elsewhere", "")]
    assert script.report(elsewhere, *script.drive(local.Local(1), elsewhere)) == 1
    assert "every node must see --root" in capsys.readouterr().out
    log = (tmp_path / "bad" / "output.log").read_text()
    assert log.count("== ") == 2
    assert log.index("loss is nan") < log.index("trained")


def interrupting(*files):
    """Send SIGINT to this process when each of the files has appeared."""

    def watch():
        for file in files:
            until(file.exists)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch).start()


def test_an_interrupt_lets_the_runs_save_and_starts_no_more(tmp_path, capsys):
    both = [stub(tmp_path, "first", SAVES), stub(tmp_path, "second", SAVES)]
    interrupting(tmp_path / "first/ready")
    outcomes, stopped = script.drive(local.Local(1), both)
    assert (outcomes, stopped) == ({both[0]: "stopped"}, signal.SIGINT)
    assert script.report(both, outcomes, stopped) == 130
    assert (tmp_path / "first/saved").exists()
    assert not (tmp_path / "second").exists()


def test_runs_that_a_second_interrupt_kills_are_not_failures(tmp_path):
    # It does not end at SIGTERM.
    deaf = SAVES.replace("sys.exit(143)", "")
    run = stub(tmp_path, "deaf", deaf + "\ntime.sleep(60)")
    interrupting(run.workdir / "ready", run.workdir / "saved")
    outcomes, stopped = script.drive(local.Local(1), [run])
    assert outcomes == {run: "stopped"}
    assert script.report([run], outcomes, stopped) == 130


def test_runs_that_ray_kills_are_not_failures(tmp_path):
    class RayError(Exception):
        pass

    def get(task):
        raise RayError("The worker died unexpectedly")

    errors = types.SimpleNamespace(RayError=RayError)
    ray = types.SimpleNamespace(
        exceptions=errors,
        get=get,
        wait=lambda tasks, **_: (tasks, []),
        cancel=lambda task, force: None,
    )
    run = stub(tmp_path, "run", "")
    task = on_ray.RayTask(ray, "task", run.workdir)
    assert task.poll() == 1
    assert run.last_line == "Ray gave up: The worker died unexpectedly"
    task.kill()
    assert task.poll() == -signal.SIGKILL


def test_the_end_of_the_time_stops_the_runs(tmp_path, capsys):
    run = stub(tmp_path, "long", SAVES)
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGALRM)]
    outcomes, stopped = script.drive(local.Local(1), [run], minutes=3 / 60)
    assert stopped == signal.SIGALRM
    assert script.report([run], outcomes, stopped) == 0
    assert "the same command resumes the runs" in capsys.readouterr().out
    assert (run.workdir / "saved").exists()
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGALRM)] == before


@linux
def test_a_child_dies_with_its_parent(tmp_path):
    code = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"
    parent = "import pathlib, signal, time; from scripts.sweeps import child\n"
    parent += f"child.start(pathlib.Path({str(tmp_path)!r}), ['-c', {code!r}], "
    parent += "signal.SIGKILL); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT)
    run = planned_runs.PlannedRun("", tmp_path, ())
    until(lambda: run.last_line.startswith("pid "))
    process = pathlib.Path("/proc", run.last_line.split()[1], "stat")
    assert process.exists()
    parent.kill()
    parent.wait()
    until(lambda: not process.exists() or " Z " in process.read_text())


def test_a_child_ignores_the_schedulers_signal(tmp_path):
    code = "import os, signal; "
    code += "print(signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN, os.environ['A'])"
    run = planned_runs.PlannedRun("", tmp_path, ("-c", code))
    env = {"A": "4"}
    assert child.start(tmp_path, run.command, signal.SIGINT, env).wait() == 0
    assert run.last_line == "True 4"


def test_a_job_of_slurm_fails_with_its_run_and_is_called_again(tmp_path, monkeypatch):
    helpers = types.SimpleNamespace(DelayedSubmission=lambda job: job)
    submitit = types.SimpleNamespace(helpers=helpers)
    monkeypatch.setitem(sys.modules, "submitit", submitit)
    failing = stub(tmp_path, "failing", "raise SystemExit(3)")
    job = on_slurm.Job(failing.workdir, failing.command, str(ROOT), 1)
    with pytest.raises(RuntimeError, match=r"exit code 3; see .*output\.log"):
        job()
    run = stub(tmp_path, "long", SAVES)
    job = on_slurm.Job(run.workdir, run.command, str(ROOT), 1)

    # As submitit does in a signal handler, while the job runs.
    def time_is_up(signum, frame):
        until((run.workdir / "ready").exists)
        again.append(job.checkpoint())

    again, before = [], signal.signal(signal.SIGALRM, time_is_up)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(RuntimeError, match="exit code 143"):
        job()
    signal.signal(signal.SIGALRM, before)
    assert (run.workdir / "saved").exists()
    assert again[0].arguments == job.arguments


def test_gpus_are_divided_by_their_names(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    monkeypatch.setenv("PJRT_NPROC", "2")

    def devices(slots, slot, visible="3,5,7,9"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = local.Local(slots).environment(slot)
        assert found.pop("PJRT_NPROC") == "2"
        return found

    assert devices(None, 3) == {"CUDA_VISIBLE_DEVICES": "9"}
    assert devices(2, 1) == {"CUDA_VISIBLE_DEVICES": "5,9"}
    shared = {"CUDA_VISIBLE_DEVICES": "3", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45"}
    assert devices(8, 4) == shared
    # CUDA ignores the first invalid name and all names after it.
    assert devices(1, 0, "2,-1,3") == {"CUDA_VISIBLE_DEVICES": "2"}
    assert devices(1, 0, "") == {}


def test_a_run_that_diverged_is_counted_and_left_alone(tmp_path, capsys):
    flags = [SMOKE, "--root", str(tmp_path), "--only", "seed=0", "--only", "norm=none"]
    folder = tmp_path / "norm=none,seed=0"
    folder.mkdir()
    (folder / "diverged.json").write_text('{"metric": "train/loss", "step": 5}')
    assert script.main(flags) == 0
    line = capsys.readouterr().out
    assert "0 of 1 runs are finished, 1 diverged (norm=none,seed=0)" in line


# The real thing.

LONG = ["--config.epochs=24", "--config.save_every=11"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def undisturbed(home):
    """Two runs that nothing interrupted, by their ids."""
    where = {}
    for norm in ("none", "layer"):
        where[f"norm={norm},seed=0"] = home / norm
        flags = [f"--config={SMOKE}", f"--config.norm={norm}", *LONG]
        code, _, err = train(home, *flags, f"--workdir={home / norm}")
        assert code == 0, err
    return where


def sweep(home, root, *flags):
    only = ["--only", "norm=none,layer", "--only", "seed=0"]
    command = [sys.executable, "scripts/sweep.py", SMOKE, *only, "--root", str(root)]
    return subprocess.Popen(
        [*command, *flags, "--", *LONG],
        cwd=ROOT,
        env=environment(home) | {"PJRT_NPROC": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def training(root):
    """A run that has records enough to have saved, and is not at its end."""
    for path in sorted(root.glob("*/metrics.jsonl")):
        ended = (path.parent / "results.json").exists()
        if path.read_text().count("\n") > 8 and not ended:
            return path.parent
    return None


def trainer(run):
    """The process that trains in `run`."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if f"--workdir={run}".encode() in words and b"lnrepro.main" in words:
            return int(path.parent.name)
    raise AssertionError(f"nothing trains in {run}")


def assert_resumed_to_the_same_bits(undisturbed, root, interrupted):
    assert "resuming at step" in (root / interrupted / "output.log").read_text()
    for id, whole in undisturbed.items():
        assert_same_run(whole, root / id)


@pytest.mark.slow
def test_local_stopped_and_started_again(home, undisturbed):
    root = home / "local"
    process = sweep(home, root, "--processes", "2")
    interrupted = until(lambda: training(root), 300).name
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert "the same command resumes the runs" in out
    # While another process has the folder of one run, the sweep trains the others.
    (other,) = undisturbed.keys() - {interrupted}
    with open(root / interrupted / "lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = sweep(home, root, "--processes", "2")
        until(lambda: (root / other / "results.json").exists(), 300)
        assert process.poll() is None
        assert not (root / interrupted / "results.json").exists()
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    assert_resumed_to_the_same_bits(undisturbed, root, interrupted)


def below(pid):
    """A process and all that it started, itself first."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in children for p in below(int(child)))]


@linux
@pytest.mark.slow
def test_ray_goes_on_when_a_node_is_killed(home, undisturbed, monkeypatch):
    pytest.importorskip("ray", reason="the extra sweep is not installed")
    from ray.cluster_utils import Cluster

    root = home / "ray"
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.head_node]
    try:
        nodes.append(cluster.add_node(num_cpus=1))
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        process = sweep(home, root, "--launcher", "ray")
        second = nodes[1].all_processes["raylet"][0].process.pid

        def on_second_node():
            run = training(root)
            return run and trainer(run) in below(second) and run

        interrupted = until(on_second_node, 300)
        for pid in below(second):
            os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0, out
    finally:
        # At once: to drain a node that is dead may take Ray very long.
        for node in nodes[::-1]:
            cluster.remove_node(node, allow_graceful=False)
        cluster.shutdown()
    assert_resumed_to_the_same_bits(undisturbed, root, interrupted.name)


@linux
@pytest.mark.slow
def test_submitit_requeues_a_run_at_its_time_limit(home, undisturbed, monkeypatch):
    pytest.importorskip(
        "submitit", reason="not installed: pip install 'lnrepro[sweep]'"
    )
    root = home / "submitit"
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    only = ["norm=none,layer", "seed=0"]
    runs = planned_runs.plan(SMOKE, "", str(root), LONG, only)
    on_slurm.submit(runs, cluster="local")
    interrupted = until(lambda: training(root), 300)
    stat = pathlib.Path(f"/proc/{trainer(interrupted)}/stat").read_text()
    # The parent of the trainer is the job, and SIGUSR2 is the signal of the time limit.
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGUSR2)
    until(lambda: all(run.finished for run in runs), 600)
    assert_resumed_to_the_same_bits(undisturbed, root, interrupted.name)
