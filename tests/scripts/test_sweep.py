"""scripts/sweep.py: ids, commands, resuming, reports, child processes, bad input."""

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
from lnrepro.engine.workdir import is_training
from scripts import sweep as script
from scripts.sweeps import local, on_ray, on_slurm, planned_runs
from tests.hardening.processes import assert_same_run
from tests.refused import refused
from tests.runs import EXPERIMENTS, ROOT, environment

SMOKE = "configs/mnist.py:smoke"
FINISH = "print('trained on', os.environ['PJRT_NPROC']); "
FINISH += "open('results.json', 'w').write('{}')"
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
    return planned_runs.PlannedRun(folder / id, ("-c", code))


def until(condition, seconds=20.0):
    """Wait for `condition()` to hold; its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    return value


# What is to be run.


def test_directories_and_commands_follow_from_the_overrides(tmp_path):
    settings, only = ["--config.epochs=4"], ["norm=layer", "seed=1,3"]
    root = str(tmp_path)
    first, second = planned_runs.plan(SMOKE, "", root, settings, only)
    assert first.workdir == tmp_path / "norm=layer,seed=1"
    command = f"-m lnrepro.main --config={SMOKE} --config.epochs=4 "
    command += f"--config.norm=layer --config.seed=1 --workdir={first.workdir}"
    assert first.command == tuple(command.split())
    planned = planned_runs.plan(SMOKE, "", root, [], only[:1], [5, 6])
    names = [run.workdir.name for run in (second, *planned)]
    assert names == [f"norm=layer,seed={seed}" for seed in (3, 5, 6)]
    settings += ["--config.batch_size=32", "--config.model.hidden=[8, 8]"]
    (run,) = planned_runs.plan(SMOKE, "", None, settings, only[:1], [5])
    folder = "runs/mnist/smoke,batch_size=32,epochs=4,model.hidden=%5B8,8%5D"
    assert run.workdir.parent == pathlib.Path(folder)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_sweep_of_every_config_resolves_to_what_it_says(name):
    sweeps = importlib.import_module(f"configs.{name}").SWEEPS
    assert {"", "learning_rate"} <= sweeps.keys()
    for sweep, wanted in sweeps.items():
        planned = planned_runs.plan(f"configs/{name}.py:smoke", sweep, None, [], [])
        assert len({run.workdir for run in planned}) == len(wanted)
        for run, overrides in zip(planned, wanted, strict=True):
            found = flat(run.config)
            for field, value in overrides.items():
                assert (found[field], type(found[field])) == (value, type(value))


def test_print_gives_the_shells_words_and_leaves_out_runs_that_ended(tmp_path, capsys):
    root = tmp_path / "a root"
    for norm, name in (("none", "results.json"), ("batch", "diverged.json")):
        (root / f"norm={norm},seed=0").mkdir(parents=True)
        (root / f"norm={norm},seed=0" / name).write_text("{}")
    flags = ["--launcher", "print", "--root", str(root), "--seeds"]
    assert script.main([SMOKE, *flags, "0"]) == 0
    out, err = capsys.readouterr()
    diverged = root / "norm=batch,seed=0"
    assert f"1 of 3 runs are finished, diverged: {diverged}, in {root}\n" in err
    words = shlex.split(out)
    assert words[:3] == ["python", "-m", "lnrepro.main"]
    assert words[-1] == f"--workdir={root}/norm=layer,seed=0"
    assert script.main([SMOKE, *flags, "0-2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 * 3 - 2


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("configs/mnst.py", "there are configs/attentive_reader.py, "),
        (f"{SMOKE} --name learning_rat", "there are (none), learning_rate"),
        (f"{SMOKE} --processes 0", "--processes: invalid positive value: '0'"),
        (f"{SMOKE} --seeds 7-5", "--seeds: invalid seeds value: '7-5'"),
        (f"{SMOKE} --only norm=group", "the sweep has batch, layer, none"),
        (f"{SMOKE} --only sed=1", "the sweep has none"),
        (f"{SMOKE} -- --config.epoch=3", "did you mean 'epochs'?"),
        (f"{SMOKE} -- --config.seed=3", "the sweep varies it"),
        (f"{SMOKE} -- --workdir=x", "only --config.FIELD=VALUE"),
        (f"{SMOKE} --launcher slurm --gpus 0.5", "SLURM gives whole GPUs"),
        # A set that is missing is said once.
        ("configs/mnist.py:paper", "mnist is not prepared in "),
    ],
)
def test_mistakes_are_one_line_and_start_nothing(tmp_path, monkeypatch, argv, says):
    monkeypatch.setenv("LNREPRO_DATA", str(tmp_path / "data"))
    config, *rest = argv.split()
    with refused(says):
        script.main([config, "--root", str(tmp_path / "runs"), *rest])
    assert not (tmp_path / "runs").exists()


EXAMPLE = "{'': [{'norm': 'layer', 'seed': 1}]}"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "there is no sweep ''"),
        ("SWEEPS = {'': [{'epoch': 3}]}", "did you mean 'epochs'?"),
        ("SWEEPS = {'': [{'batch_size': 0}]}", "config.batch_size = 0: "),
        ("SWEEPS = {'': []}", "has no runs"),
        ("SWEEPS = [{'seed': 1}]", EXAMPLE),
    ],
)
def test_configs_whose_sweep_is_wrong(tmp_path, body, says):
    file = tmp_path / "mine.py"
    file.write_text("from configs.mnist import get_config\n" + body)
    with refused(says):
        planned_runs.plan(f"{file}:smoke", "", str(tmp_path), [], [])


def test_a_directory_with_a_run_of_another_config_is_refused(tmp_path):
    def plan(epochs):
        flags, only = [f"--config.epochs={epochs}"], ["norm=layer", "seed=0"]
        (run,) = planned_runs.plan(SMOKE, "", str(tmp_path), flags, only)
        return run

    run = plan(3)
    run.workdir.mkdir()
    about = {"config": run.config.to_dict(), "data": {"fingerprint": "x"}}
    (run.workdir / "config.json").write_text(json.dumps(about))
    assert plan(3) == run
    with refused("config.epochs: 3.0 there, 2.0 now"):
        plan(2)


# How it is run.


def test_failures_are_reported_with_their_last_line_and_only_they_run_again(
    tmp_path, capsys
):
    bad = "print('loss is nan'); print(); raise SystemExit(3)"
    runs = [stub(tmp_path, "good", FINISH), stub(tmp_path, "bad", bad)]
    # Somebody else stops it.
    runs.append(stub(tmp_path, "lost", "print('lost'); raise SystemExit(143)"))
    outcomes, stopped = script.drive(local.Local(2), runs)
    found = {run.workdir.name: how.partition("  ")[0] for run, how in outcomes.items()}
    assert found == {
        "good": "finished",
        "bad": "failed: loss is nan",
        "lost": "failed: lost",
    }
    del runs[2]
    assert script.report(runs, outcomes, stopped) == 1
    out = capsys.readouterr().out
    assert "1 of 2 runs are finished" in out
    assert out.count("/bad: failed: loss is nan  (exit code 3; see output.log)\n") == 2
    assert [run.ended for run in runs] == ["finished", ""]
    mended = [stub(tmp_path, "bad", FINISH)]
    assert script.report(runs, *script.drive(local.Local(2), mended)) == 0
    log = (tmp_path / "bad" / "output.log").read_text()
    assert log.count("== ") == 2
    assert log.index("loss is nan") < log.index("trained")


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGALRM, 0)]
)
def test_runs_save_when_they_are_stopped_and_no_more_start(tmp_path, signum, code):
    """By Ctrl-C, and by the end of the time."""
    late = SAVES.replace("sys.exit", "time.sleep(0.3); sys.exit")
    runs = [stub(tmp_path, "first", SAVES), stub(tmp_path, "late", late)]
    before = signal.getsignal(signum)

    def stop():
        until(lambda: len(list(tmp_path.glob("*/ready"))) == 2)
        os.kill(os.getpid(), signum)

    threading.Thread(target=stop).start()
    third = stub(tmp_path, "third", SAVES)
    outcomes, stopped = script.drive(local.Local(2), [*runs, third], minutes=1)
    assert (outcomes, stopped) == (dict.fromkeys(runs, "stopped"), signum)
    assert script.report(runs, outcomes, stopped) == code
    assert (tmp_path / "late/saved").exists()
    assert not (tmp_path / "third").exists()
    assert signal.getsignal(signum) == before


def test_the_time_has_an_end(tmp_path):
    with script._noted_signals(0.02 / 60) as noted:
        until(lambda: signal.SIGALRM in noted)


def test_what_ray_kills_is_a_failure_unless_it_was_asked_to_stop(tmp_path):
    class RayError(Exception):
        pass

    def get(task):
        raise RayError("The worker died unexpectedly")

    cancelled = []
    ray = types.SimpleNamespace(
        exceptions=types.SimpleNamespace(RayError=RayError),
        get=get,
        wait=lambda tasks, **_: (tasks, []),
        cancel=cancelled.append,
    )
    run = stub(tmp_path, "run", "")
    task = on_ray.RayTask(ray, "task", run.workdir)
    assert task.poll() == 1
    assert run.last_line == "Ray gave up: The worker died unexpectedly"
    task.terminate()
    assert cancelled == ["task"]
    assert task.poll() in script.STOPPED


@linux
def test_a_child_dies_with_its_parent_and_ignores_the_schedulers_signal(tmp_path):
    code = "import os, signal, time; ignored = signal.getsignal(signal.SIGUSR2); "
    # It leads a session of its own.
    code += "print(ignored is signal.SIG_IGN, os.getcwd(), os.getsid(0), flush=True); "
    code += "time.sleep(60)"
    parent = "import pathlib, signal, time; from scripts.sweeps import child\n"
    parent += f"task = child.Task(pathlib.Path({str(tmp_path)!r}), ['-c', {code!r}], "
    parent += "{}, '/'); task.start(signal.SIGKILL); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT)
    run = planned_runs.PlannedRun(tmp_path, ())
    until(lambda: run.last_line.startswith("True / "))
    process = pathlib.Path("/proc", run.last_line.split()[2], "stat")
    assert process.exists()
    parent.kill()
    parent.wait()
    until(lambda: not process.exists() or " Z " in process.read_text())


def test_a_job_of_slurm_fails_with_its_run_and_is_called_again(tmp_path, monkeypatch):
    helpers = types.SimpleNamespace(DelayedSubmission=lambda job: job)
    submitit = types.SimpleNamespace(helpers=helpers)
    monkeypatch.setitem(sys.modules, "submitit", submitit)
    failing = stub(tmp_path, "failing", "raise SystemExit(int(os.environ['CODE']))")
    job = on_slurm.Job(failing.task({"CODE": "3"}))
    with pytest.raises(RuntimeError, match=r"exit code 3; see .*output\.log"):
        job()
    run = stub(tmp_path, "long", SAVES)
    job = on_slurm.Job(run.task({}))

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
    assert again[0].task == job.task


def test_gpus_are_divided_by_their_names(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setenv("PJRT_NPROC", "2")
    for slots, slot, visible, own in (
        (None, 3, "3,5,7,9", "9"),
        (2, 1, "3,5,7,9", "5,9"),
        (8, 4, "3,5,7,9", "3"),
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        wanted = {"PJRT_NPROC": "2", "CUDA_VISIBLE_DEVICES": own}
        assert local.Local(slots).environment(slot) == wanted


# The real thing.

LONG = ["--config.epochs=24", "--config.save_every=11"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def in_home(home, monkeypatch):
    """The folder, for runs with the environment of this process."""
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    return home


@pytest.fixture(scope="module")
def undisturbed(home):
    """Two runs that nothing interrupted, by their ids."""
    process = sweep(home, home / "undisturbed", "--processes", "2")
    out, _ = process.communicate(timeout=900)
    assert process.returncode == 0, out
    folders = (home / "undisturbed").glob("norm=*")
    return {folder.name: folder for folder in folders}


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
    command = ["pgrep", "-f", f"lnrepro.main .*--workdir={run}$"]
    return int(subprocess.check_output(command).split()[0])


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
    process = sweep(home, root, "--processes", "2")
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    assert_resumed_to_the_same_bits(undisturbed, root, interrupted)


@linux
@pytest.mark.slow
def test_ray_goes_on_when_a_node_is_killed(in_home, undisturbed, monkeypatch):
    pytest.importorskip("ray", reason="the extra sweep is not installed")
    from ray.cluster_utils import Cluster

    root = in_home / "ray"
    cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        first = cluster.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        process = sweep(in_home, root, "--launcher", "ray")
        interrupted = until(lambda: training(root), 300)
        cluster.remove_node(first, allow_graceful=False)
        # The trainer dies with its node.
        until(lambda: not is_training(interrupted))
        second = cluster.add_node(num_cpus=1)
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0, out
        # Gracefully, Ray would wait long for the node that is dead.
        cluster.remove_node(second, allow_graceful=False)
    finally:
        cluster.shutdown()
    assert_resumed_to_the_same_bits(undisturbed, root, interrupted.name)


@linux
@pytest.mark.slow
def test_submitit_requeues_a_run_at_its_time_limit(in_home, undisturbed):
    pytest.importorskip(
        "submitit", reason="not installed: pip install 'lnrepro[sweep]'"
    )
    root = in_home / "submitit"
    only = ["norm=none,layer", "seed=0"]
    runs = planned_runs.plan(SMOKE, "", str(root), LONG, only)
    on_slurm.submit(runs, cluster="local")
    interrupted = until(lambda: training(root), 300)
    stat = pathlib.Path(f"/proc/{trainer(interrupted)}/stat").read_text()
    # The parent of the trainer is the job, and SIGUSR2 is the signal of the time limit.
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGUSR2)
    until(lambda: all(run.ended for run in runs), 600)
    assert_resumed_to_the_same_bits(undisturbed, root, interrupted.name)
