"""scripts/sweep.py: ids, commands, resuming, reports, child processes, bad input."""

import fcntl
import importlib
import io
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from jax._src import xla_bridge
from ml_collections import ConfigDict
from rich.console import Console

import lnrepro.runs
from lnrepro.engine import config_file
from lnrepro.errors import UserError
from scripts import sweep as script
from scripts.sweeps import local, on_ray, planned_runs
from scripts.sweeps.watch import Row, Watch, _table
from tests.runs import ROOT, environment, newest_state
from tests.runs import run as train

SMOKE = "configs/mnist.py:smoke"
SWEPT = [
    p.stem
    for p in sorted((ROOT / "configs").glob("*.py"))
    if "def sweep(" in p.read_text()
]


@pytest.fixture(autouse=True)
def checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def stub(folder: pathlib.Path, id: str, code: str) -> planned_runs.PlannedRun:
    """A run whose command is a line of Python, in the directory of its id."""
    return planned_runs.PlannedRun(
        id,
        folder / id,
        ("-c", f"import os; os.chdir({str(folder / id)!r})\n{code}"),
        10,
        "valid/error",
    )


FINISH = "print('trained'); open('results.json', 'w').write('{}')"


def until(condition, seconds: float = 20.0):
    """Wait for `condition()` to hold; its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    return value


# What is to be run.


def test_ids_directories_and_commands_follow_from_the_overrides(tmp_path):
    planned = planned_runs.plan(
        SMOKE, "", str(tmp_path), ["--config.epochs=4"], ["norm=layer", "seed=1,3"]
    )
    assert [r.id for r in planned] == ["norm=layer,seed=1", "norm=layer,seed=3"]
    assert planned[0].workdir == tmp_path / "norm=layer,seed=1"
    overrides = ("--config.epochs=4", "--config.norm=layer", "--config.seed=1")
    command = (
        "-m",
        "lnrepro.main",
        f"--config={SMOKE}",
        *overrides,
        f"--workdir={planned[0].workdir}",
    )
    assert planned[0].command == command
    assert planned[0].total == 4 * 22
    assert planned[0].metric == "valid/error"


def test_settings_of_all_runs_name_the_default_root():
    where = {
        r.workdir.parent
        for r in planned_runs.plan(
            SMOKE, "", None, ["--config.epochs=4", "--config.batch_size=32"], []
        )
    }
    assert where == {pathlib.Path("runs/mnist/smoke,batch_size=32,epochs=4")}


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
        assert len({r.workdir for r in planned}) == len(config.sweep(sweep))
        for at_run, overrides in zip(resolved, config.sweep(sweep), strict=True):
            for field, value in overrides.items():
                at = at_run
                for part in field.split("."):
                    at = at[part]
                assert at == value
                assert type(at) is type(value)


def test_print_gives_the_shells_words_and_leaves_out_finished_runs(tmp_path, capsys):
    root = tmp_path / "a root"
    done = root / "norm=none,seed=0"
    done.mkdir(parents=True)
    (done / "results.json").write_text("{}")
    assert (
        script.main(
            [SMOKE, "--launcher", "print", "--root", str(root), "--only", "seed=0"]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert "1 of 3 runs are finished" in err
    words = [shlex.split(line) for line in out.splitlines()]
    assert [w[-1] for w in words] == [
        f"--workdir={root}/norm={norm},seed=0" for norm in ("batch", "layer")
    ]
    assert words[0][:3] == ["python", "-m", "lnrepro.main"]


def test_planning_initialises_no_device():
    code = (
        "from scripts import sweep; from jax._src import xla_bridge;"
        f"sweep.main([{SMOKE!r}, '--launcher', 'print']); assert not "
        f"xla_bridge.backends_are_initialized()"
    )
    assert hasattr(xla_bridge, "backends_are_initialized")
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            ["configs/mnst.py"],
            "there is no config file configs/mnst.py; did you mean configs/mnist.py?",
        ),
        (["configs/mnist.py:smke"], "no variant 'smke'"),
        (
            [SMOKE, "--name", "learning_rat"],
            "small_bz4_same_rate; did you mean learning_rate?",
        ),
        ([SMOKE, "--launcher", "slrum"], "invalid choice: 'slrum'"),
        ([SMOKE, "--processes", "0"], "0: at least 1 is needed"),
        (
            [SMOKE, "--only", "norm=group"],
            "--only norm=group: no run has norm=group; the sweep has batch, layer, "
            "none",
        ),
        ([SMOKE, "--only", "sed=1"], "the sweep does not vary 'sed'"),
        (
            [SMOKE, "--", "--config.epoch=3"],
            "has no field 'epoch'; did you mean 'epochs'?",
        ),
        (
            [SMOKE, "--", "--config.optimizer.learning_rte=3"],
            "did you mean 'optimizer.learning_rate'?",
        ),
        ([SMOKE, "--", "--config.batch_size=many"], "many"),
        (
            [SMOKE, "--", "--config.batch_size=2000"],
            "is larger than config.data.train_examples",
        ),
        (
            [SMOKE, "--", "--config.seed=3"],
            "--config.seed cannot be given: the sweep varies it",
        ),
        ([SMOKE, "--", "--workdir=x"], "only --config.FIELD=VALUE"),
        (
            [SMOKE, "--launcher", "slurm", "--sbatch", "account"],
            "--sbatch account: give KEY=VALUE",
        ),
        (
            [SMOKE, "--launcher", "slurm", "--gpus", "0.5"],
            "--gpus 0.5: SLURM gives whole GPUs",
        ),
        ([SMOKE, "--launcher", "ray", "--upload"], "--upload needs --root"),
    ],
)
def test_mistakes_are_one_line_and_start_nothing(tmp_path, argv, says):
    split = argv.index("--") if "--" in argv else len(argv)
    with pytest.raises(UserError) as error:
        script.main(
            [*argv[:split], "--root", str(tmp_path / "runs"), *argv[split:]]
            if "--upload" not in argv
            else argv
        )
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "has no sweep()"),
        (
            "def sweep(name): return [{'norn': 'layer'}]",
            "has no field 'norn'; did you mean 'norm'?",
        ),
        (
            "def sweep(name): return [{'seed': 1}, {'seed': 1}]",
            "its sweep() has seed=1 twice",
        ),
        ("def sweep(name): return []", "has no runs"),
        ("import nothing_of_this_name", ": ModuleNotFoundError: No module named"),
    ],
)
def test_configs_whose_sweep_is_wrong(tmp_path, body, says):
    file = tmp_path / "mine.py"
    file.write_text("from configs.mnist import get_config\n" + body)
    with pytest.raises(UserError) as error:
        planned_runs.plan(f"{file}:smoke", "", str(tmp_path), [], [])
    assert says in str(error.value)


def test_a_directory_with_a_run_of_another_config_is_refused(tmp_path):
    where = tmp_path / "norm=layer,seed=0"
    where.mkdir()
    held = config_file.read(
        SMOKE, ["--config.norm=layer", "--config.seed=0", "--config.epochs=3"]
    )
    (where / "config.json").write_text(
        json.dumps({"config": held.to_dict(), "data": {"fingerprint": "x"}})
    )
    assert planned_runs.plan(SMOKE, "", str(tmp_path), ["--config.epochs=3"], [])
    # Without a checkpoint the run would only be started anew.
    assert planned_runs.plan(SMOKE, "", str(tmp_path), [], [])
    (where / "checkpoints" / "last" / "5").mkdir(parents=True)
    with pytest.raises(
        UserError, match=r"another config \(config.epochs: 3.0 there, 2.0 now\)"
    ):
        planned_runs.plan(SMOKE, "", str(tmp_path), [], [])


def test_a_missing_extra_is_one_line(tmp_path):
    argv = ["sweep.py", SMOKE, "--launcher", "ray", "--root", str(tmp_path / "runs")]
    code = f"import runpy, sys; sys.modules['ray'] = None; sys.argv = {argv!r}\n"
    code += "runpy.run_path('scripts/sweep.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: ray is not installed; this sweep needs: pip install 'lnrepro[sweep]'"
    )
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_sweep_of_slurm_needs_submitit_before_it_touches_anything(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ModuleNotFoundError, match="submitit"):
        script.main([SMOKE, "--launcher", "slurm", "--root", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists()


def test_a_ray_address_where_nothing_listens_is_one_line():
    with socket.socket() as s:
        s.bind(
            ("localhost", 0)
        )  # bound, so that nobody else takes it, and not listening
        for prefix in ("", "ray://"):
            with pytest.raises(UserError, match="no Ray cluster answers there"):
                on_ray._check_address(f"{prefix}localhost:{s.getsockname()[1]}")
    on_ray._check_address("auto")


# How it is run.


def test_failures_are_reported_with_their_last_line_and_only_they_run_again(
    tmp_path, capsys
):
    bad = "print('loss is nan'); print(); raise SystemExit(3)"
    all_runs = [
        stub(tmp_path, "good", FINISH),
        stub(tmp_path, "bad", bad),
        stub(tmp_path, "other", FINISH),
    ]
    outcomes, stopped = script.drive(local.Local(2), all_runs, Watch(all_runs))
    assert {run.id: code for run, (code, _) in outcomes.items()} == {
        "good": 0,
        "bad": 3,
        "other": 0,
    }
    assert script.report(all_runs, outcomes, stopped) == 1
    out = capsys.readouterr().out
    assert "bad: failed  loss is nan" in out
    assert "2 of 3 runs are finished" in out
    assert "failed: bad: loss is nan  (exit code 3;" in out
    again = [run for run in all_runs if not run.finished]
    assert [run.id for run in again] == ["bad"]
    mended = [stub(tmp_path, "bad", FINISH)]
    outcomes, stopped = script.drive(local.Local(2), mended, Watch(mended))
    assert script.report(all_runs, outcomes, stopped) == 0
    log = (tmp_path / "bad" / "output.log").read_text()
    assert log.count("== ") == 2
    assert log.index("loss is nan") < log.index("trained")


def test_a_run_that_ends_well_without_results_is_a_failure(tmp_path, capsys):
    run = stub(tmp_path, "elsewhere", "print('saved on another disk')")
    assert script.report([run], {run: (0, "")}, 0) == 1
    assert "must be seen by every node" in capsys.readouterr().out


def test_an_interrupt_lets_the_runs_save_and_starts_no_more(tmp_path, capsys):
    saves = "import signal, sys, time\n"
    saves += (
        "signal.signal(signal.SIGTERM, lambda *_: (open('saved', "
        "'w').close(), sys.exit(143)))\n"
    )
    saves += "open('ready', 'w').close(); time.sleep(60)"
    both = [stub(tmp_path, "first", saves), stub(tmp_path, "second", saves)]

    class Interrupting(Watch):
        def show(self, codes):
            super().show(codes)
            if (
                (tmp_path / "first/ready").exists()
                and not (tmp_path / "first/saved").exists()
                and not self.sent
            ):
                self.sent = True
                signal.raise_signal(signal.SIGINT)

        sent = False

    outcomes, stopped = script.drive(local.Local(1), both, Interrupting(both))
    assert stopped == signal.SIGINT
    assert script.report(both, outcomes, stopped) == 130
    assert (tmp_path / "first/saved").exists()
    assert not (tmp_path / "second").exists()
    assert "first: stopped" in capsys.readouterr().out


class Slow:
    """A launcher that gets signals in the middle of its calls.

    Its runs end one turn after they are asked to stop, or when they are killed.
    """

    slots = 2

    def __init__(self, signals):
        self.signals = list(signals)
        self.runs, self.calls, self.turns = [], [], 0

    def interrupted(self):
        if self.signals:
            signal.raise_signal(self.signals.pop(0))

    def submit(self, runs):
        self.interrupted()
        self.runs += runs

    def poll(self):
        self.turns += 1
        assert self.turns < 20, "drive does not end"
        if self.calls and self.turns > 5:
            ended = dict.fromkeys(self.runs, (143, ""))
            self.runs = []
            self.interrupted()
            return ended
        return {}

    def stop(self):
        self.calls.append(("stop", len(self.runs)))
        self.interrupted()

    def kill(self):
        self.calls.append(("kill", len(self.runs)))


@pytest.mark.parametrize(
    ("signals", "calls"),
    [
        ([signal.SIGTERM], [("stop", 2)]),
        ([signal.SIGALRM], [("stop", 2)]),
        ([signal.SIGINT, signal.SIGINT], [("stop", 2), ("kill", 2)]),
    ],
)
def test_a_signal_in_a_launchers_call_loses_no_run(
    tmp_path, monkeypatch, signals, calls
):
    monkeypatch.setattr(script, "POLL_SECONDS", 0.0)
    both = [stub(tmp_path, "first", ""), stub(tmp_path, "second", "")]
    launcher = Slow(signals)
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGALRM)]
    outcomes, stopped = script.drive(launcher, both, Watch(both))
    assert launcher.calls == calls
    assert outcomes.keys() == set(both)
    assert stopped == signals[0]
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGALRM)] == before


def test_the_end_of_the_time_stops_the_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "POLL_SECONDS", 0.05)
    run = stub(tmp_path, "long", "")
    launcher = Slow([])
    _, stopped = script.drive(launcher, [run], Watch([run]), minutes=0.1 / 60)
    assert stopped == signal.SIGALRM
    assert launcher.calls == [("stop", 1)]


def test_a_child_waits_for_the_run_that_still_trains_there(tmp_path):
    run = stub(tmp_path, "busy", FINISH)
    run.workdir.mkdir()
    with open(run.workdir / "lock", "a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        child = subprocess.Popen(run.start(sys.executable, os.getpid(), signal.SIGTERM))
        until(
            lambda: planned_runs.last_line(run).startswith(
                "waiting: another process still trains"
            )
        )
        second = subprocess.Popen(
            run.start(sys.executable, os.getpid(), signal.SIGTERM)
        )
        time.sleep(0.2)
        assert child.poll() is second.poll() is None
        assert not run.finished
    assert [child.wait(20), second.wait(20)] == [0, 0]
    assert (run.workdir / "output.log").read_text().count("trained\n") == 2


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a child that its parent died"
)
def test_a_child_dies_with_its_parent(tmp_path):
    run = stub(
        tmp_path,
        "orphan",
        "print('pid', os.getpid(), flush=True); import time; time.sleep(60)",
    )
    command = run.start(sys.executable, 0, signal.SIGKILL)
    # The sixth word of the command is the process id of the parent.
    parent = (
        "import os, subprocess, sys, time\n"
        f"words = {command[:5]!r} + [str(os.getpid())] + {command[6:]!r}\n"
        "subprocess.Popen(words, start_new_session=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent])
    pid = int(
        until(
            lambda: (
                planned_runs.last_line(run).startswith("pid ")
                and planned_runs.last_line(run).split()[1]
            )
        )
    )
    assert pathlib.Path(f"/proc/{pid}").exists()
    parent.kill()
    parent.wait()
    until(
        lambda: (
            not pathlib.Path(f"/proc/{pid}").exists()
            or " Z " in pathlib.Path(f"/proc/{pid}/stat").read_text()
        )
    )


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system has no core affinity"
)
def test_a_child_has_its_cores_and_ignores_the_schedulers_signal(tmp_path):
    core = min(os.sched_getaffinity(0))
    code = (
        "import signal; print(sorted(os.sched_getaffinity(0)), "
        "signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN)"
    )
    run = stub(tmp_path, "pinned", code)
    subprocess.run(
        run.start(sys.executable, os.getpid(), signal.SIGTERM, [core]), check=True
    )
    assert planned_runs.last_line(run) == f"[{core}] True"


@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("slots", [1, 2, 3, 7])
def test_shares_cover_everything_and_differ_by_one(n, slots):
    shares = local.divide(list(range(n)), slots)
    assert len(shares) == slots
    assert {x for share in shares for x in share} == set(range(n))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    if n >= slots:
        assert sum(sizes) == n


@pytest.mark.parametrize(
    ("visible", "names"),
    [("-1", []), ("", []), ("0,1", ["0", "1"]), ("2,-1,3", ["2"]), ("2,,3", ["2"])],
)
def test_gpus_end_at_the_first_name_that_is_none(monkeypatch, visible, names):
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert local._gpus() == names


def test_gpus_are_divided_by_their_names(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7,9")
    assert local.Local(None).slots == 4
    assert [
        local.Local(2)._environment(i)["CUDA_VISIBLE_DEVICES"] for i in range(2)
    ] == ["3,5", "7,9"]
    shared = {"CUDA_VISIBLE_DEVICES": "3", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45"}
    assert local.Local(8)._environment(4) == shared


def test_what_is_shown_comes_from_the_records(tmp_path, capsys):
    run = stub(tmp_path, "shown", "")
    run.workdir.mkdir()
    watch = Watch([run])
    watch.show({})
    (run.workdir / "output.log").write_text("begun\n")
    records = [
        {"step": 2, "valid/error": 0.5},
        {"step": 4, "valid/error": 0.25},
        {"step": 6, "train/loss": 1.0},
    ]
    path = run.workdir / "metrics.jsonl"
    now = time.time()
    for n, t in ((1, now - 40), (3, now)):
        path.write_text(
            "".join(json.dumps(r) + "\n" for r in records[:n]) + '{"step": 8, "val'
        )  # torn: being written
        os.utime(path, (t, t))
        assert planned_runs.progress(run) == (
            records[n - 1]["step"],
            pytest.approx(t),
            records[min(n, 2) - 1]["valid/error"],
        )
        watch._printed.clear()
        watch.show({})
    os.utime(path, (now - 610, now - 610))
    watch._printed.clear()
    watch.show({})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "shown: queued"
    assert lines[1] == "shown: running  2/10  last valid/error 0.5"
    assert (
        lines[2] == "shown: running  6/10  last valid/error 0.25  0:40 left"
    )  # 4 steps took 40 s, 4 are left
    assert (
        lines[3] == "shown: running  6/10  last valid/error 0.25  no record for 10:10"
    )


def test_a_finished_run_shows_the_number_of_the_table_of_runs(tmp_path, capsys):
    run = stub(tmp_path, "shown", "")
    run.workdir.mkdir()
    values = (0.5, 0.25, 0.75)
    records = [{"step": 5 * i, "valid/error": v} for i, v in enumerate(values)]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (run.workdir / "metrics.jsonl").write_text(text)
    results = {"valid/error": 0.75, "best valid/error": 0.25}
    (run.workdir / "results.json").write_text(json.dumps(results))
    Watch([run]).show({run: 0})
    shown = capsys.readouterr().out
    best = ConfigDict({"best": {"metric": "valid/error", "mode": "min"}})
    assert (
        shown == f"shown: finished  10/10  best {lnrepro.runs._best(best, records)}\n"
    )


@pytest.mark.parametrize(
    "files",
    [
        {"diverged.json": {"metric": "train/loss", "step": 5}},
        # Version 0.2.0 finished runs whose last evaluation was not finite.
        {"results.json": {"valid/error": None}},
    ],
)
def test_a_run_that_diverged_is_counted_and_left_alone(tmp_path, capsys, files):
    flags = [SMOKE, "--root", str(tmp_path), "--only", "seed=0", "--only", "norm=none"]
    folder = tmp_path / "norm=none,seed=0"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    assert script.main(flags) == 0
    line = capsys.readouterr().out
    assert "0 of 1 runs are finished, 1 diverged (norm=none,seed=0)" in line
    run = stub(tmp_path, folder.name, "")
    assert run.ended
    assert not run.finished
    Watch([run]).show({})
    assert capsys.readouterr().out.startswith(f"{folder.name}: diverged")


def test_a_line_of_a_failed_run_is_no_markup(tmp_path):
    run = stub(tmp_path, "hidden=[a]", "")
    table = _table({run: Row("failed", "2/10", "cannot read [/tmp/x]", "")}, 120)
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    shown = console.file.getvalue()
    assert "hidden=[a]" in shown
    assert "cannot read [/tmp/x]" in shown


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
        code, _, err = train(
            home,
            f"--config={SMOKE}",
            f"--config.norm={norm}",
            *LONG,
            f"--workdir={home / norm}",
        )
        assert code == 0, err
    return where


def sweep(home, root, *flags: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "scripts/sweep.py",
        SMOKE,
        "--only",
        "norm=none,layer",
        "--only",
        "seed=0",
        "--root",
    ]
    env = environment(home) | {"PJRT_NPROC": "1"}
    return subprocess.Popen(
        [*command, str(root), *flags, "--", *LONG],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def training(root: pathlib.Path) -> pathlib.Path | None:
    """A run that has records enough to have saved, and is not at its end."""
    for path in sorted(root.glob("*/metrics.jsonl")):
        if (
            path.read_text().count("\n") > 8
            and not (path.parent / "results.json").exists()
        ):
            return path.parent
    return None


def trainer(run: pathlib.Path) -> int:
    """The process that trains in `run`."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if (
            f"--workdir={run}".encode() in words
            and b"lnrepro.main" in words
            and b"--parent" not in words
        ):
            return int(path.parent.name)
    raise AssertionError(f"nothing trains in {run}")


def assert_resumed_to_the_same_bits(undisturbed, root, interrupted: str):
    assert "resuming at step" in (root / interrupted / "output.log").read_text()
    for id, whole in undisturbed.items():
        a, b = newest_state(whole), newest_state(root / id)
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=f"{id} {name}")
        assert (whole / "metrics.jsonl").read_text() == (
            root / id / "metrics.jsonl"
        ).read_text()


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


def below(pid: int) -> list[int]:
    """A process and all that it started, itself first (Linux)."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(p for child in children for p in below(int(child)))]


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="finds the processes of a node in /proc"
)
def test_ray_goes_on_when_a_node_is_killed(home, undisturbed, monkeypatch):
    pytest.importorskip(
        "ray", reason="ray is not installed: pip install 'lnrepro[sweep]'"
    )
    from ray.cluster_utils import Cluster

    root = home / "ray"
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
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
        victims = below(second)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0, out
    finally:
        for node in nodes[
            ::-1
        ]:  # at once: to drain a node that is dead may take Ray very long
            cluster.remove_node(node, allow_graceful=False)
        cluster.shutdown()
    assert_resumed_to_the_same_bits(undisturbed, root, interrupted.name)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the job of a run in /proc")
def test_submitit_requeues_a_preempted_run(home, undisturbed):
    pytest.importorskip(
        "submitit", reason="submitit is not installed: pip install 'lnrepro[sweep]'"
    )
    root = home / "submitit"
    process = sweep(
        home, root, "--launcher", "slurm", "--cluster", "local", "--processes", "2"
    )
    interrupted = until(lambda: training(root), 300)
    stat = pathlib.Path(f"/proc/{trainer(interrupted)}/stat").read_text()
    os.kill(
        int(stat.rpartition(")")[2].split()[1]), signal.SIGUSR2
    )  # its parent is the job
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    assert_resumed_to_the_same_bits(undisturbed, root, interrupted.name)
