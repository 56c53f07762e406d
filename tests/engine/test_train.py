"""Training loop: exact resume, records, placements, and what stops a run."""

import itertools
import json
import os
import pathlib
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.engine import artifacts, distribute, report, signals, train, train_step
from lnrepro.engine.checkpoint import Checkpoint, Store
from lnrepro.engine.experiment import Evaluation, Experiment
from lnrepro.engine.progress import Row
from lnrepro.errors import RunError, UserError
from tests.engine import toy


@pytest.fixture(autouse=True)
def _no_data_set(monkeypatch):
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))


def config(**changes):
    c = toy.get_config()
    c.update_from_flattened_dict(changes)
    return c


def final_state(folder: pathlib.Path, c) -> Checkpoint:
    run = train.Run(c, folder)
    saved = run.store.restore("last", run.initial())
    run.store.close()
    return saved


def assert_same_bits(a, b):
    for (path, x), (_, y) in zip(
        jax.tree.leaves_with_path(a), jax.tree.leaves_with_path(b), strict=True
    ):
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))


def interrupt(monkeypatch, at: int):
    """Make the toy's batches fail as a crash would, when batch `at` is asked for."""
    real = toy.make

    def make(c) -> Experiment:
        exp = real(c)

        def batches(start):
            for k, batch in zip(
                itertools.count(start), exp.batches(start), strict=False
            ):
                if k == at:
                    raise KeyError("crash")
                yield batch

        return exp._replace(batches=batches)

    monkeypatch.setattr(toy, "make", make)


@pytest.mark.parametrize(
    ("placement", "steps_per_call", "decay"),
    [("jit", 1, "cosine"), pytest.param("pmap", 3, None, marks=pytest.mark.slow)],
)
def test_interrupted_run_ends_with_the_same_bits_and_records(
    tmp_path, monkeypatch, placement, steps_per_call, decay
):
    changes = {"optimizer.decay": decay}
    c = config(placement=placement, steps_per_call=steps_per_call, **changes)
    train.train(c, tmp_path / "whole")
    for at in (2, 17, 29):
        with monkeypatch.context() as m:
            interrupt(m, at)
            with pytest.raises(KeyError):
                train.train(c, tmp_path / "broken")
    train.train(c, tmp_path / "broken")
    whole, broken = (
        final_state(tmp_path / "whole", c),
        final_state(tmp_path / "broken", c),
    )
    assert whole.step == broken.step == 30
    assert_same_bits(whole.state, broken.state)
    text = [(tmp_path / n / "metrics.jsonl").read_text() for n in ("whole", "broken")]
    assert text[0] == text[1]
    assert whole.notes["best"] == broken.notes["best"]


def test_records_are_complete_and_in_order(tmp_path):
    train.train(config(), tmp_path)
    records = [
        json.loads(line)
        for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert all(r["data"] == "digits" for r in records)
    assert [r["step"] for r in records if "train/loss" in r] == [
        4,
        8,
        12,
        16,
        20,
        24,
        28,
        30,
    ]
    assert [r["step"] for r in records if "test/error" in r] == [10, 20, 30]
    assert [r["step"] for r in records] == sorted(r["step"] for r in records)


@pytest.mark.slow
def test_train_loss_is_the_mean_over_the_interval(tmp_path):
    train.train(config(log_every=1), tmp_path / "fine")
    train.train(config(log_every=10), tmp_path / "coarse")

    def losses(name):
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [r["train/loss"] for r in map(json.loads, lines) if "train/loss" in r]

    fine, coarse = losses("fine"), losses("coarse")
    np.testing.assert_allclose(coarse, np.reshape(fine, (3, 10)).mean(1), rtol=1e-6)


def test_steps_per_call_and_devices_do_not_change_the_result(tmp_path):
    states = []
    for name, changes in {"one": {}, "many": {"steps_per_call": 7}}.items():
        c = config(**changes)
        train.train(c, tmp_path / name)
        states.append(final_state(tmp_path / name, c).state)
    for x, y in zip(
        jax.tree.leaves(states[0]), jax.tree.leaves(states[1]), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_best_checkpoint_is_the_one_with_the_best_metric(tmp_path):
    c = config(
        **{"best.mode": "max"}
    )  # the error falls, so the first evaluation is the largest
    train.train(c, tmp_path)
    run = train.Run(c, tmp_path)
    saved = run.store.restore("best", run.initial())
    run.store.close()
    assert saved.step == 10
    numbers = train.evaluate(c, tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    first = next(r for r in map(json.loads, lines) if "test/error" in r)
    assert numbers["test/error"] == first["test/error"]


def test_a_checkpoint_that_names_the_best_is_begun_when_the_best_is_on_disk(
    tmp_path, monkeypatch
):
    import orbax.checkpoint as ocp

    begun, save = [], ocp.CheckpointManager.save

    def note(manager, step, **kwargs):
        if manager.directory.name == "last" and (
            best := kwargs["args"].notes.item["best"]
        ):
            begun.append(best["step"])
            assert (tmp_path / "checkpoints" / "best" / str(best["step"])).is_dir()
        return save(manager, step, **kwargs)

    monkeypatch.setattr(ocp.CheckpointManager, "save", note)
    train.train(config(), tmp_path)
    assert begun == [10, 10, 20, 20, 30]  # evaluated every 10 steps, saved every 5


def test_artifacts_and_summary(tmp_path, capsys):
    final = train.train(config(), tmp_path)
    names = {p.name for p in (tmp_path / "artifacts").iterdir()}
    assert names == {"curves.png", "square.png", "note.html"}
    assert final["picture/sum"] == 1.5
    out = capsys.readouterr().out
    assert "curves.png" in out
    assert "data=digits" in out


def test_a_caption_stands_above_a_picture_whose_pixels_stay(tmp_path):
    from PIL import Image

    random = np.random.default_rng(0)
    square = random.integers(0, 256, (90, 120, 3), dtype=np.uint8)
    # GIFs have 256 colours, so that the frames are grey.
    frames = np.repeat(random.integers(0, 256, (3, 90, 120, 1), dtype=np.uint8), 3, -1)
    evaluation = Evaluation(
        images={"square": square, "plain": square, "frames": frames},
        captions={"square": "one line", "frames": "as many lines as it needs " * 5},
    )
    paths = artifacts.write(tmp_path, evaluation)
    drawn, plain = (np.asarray(Image.open(path)) for path in paths[:2])
    np.testing.assert_array_equal(plain, square)
    np.testing.assert_array_equal(drawn[-90:], square)
    caption = drawn[:-90]
    assert caption.shape[0] < 2.5 * artifacts.CAPTION_SIZE
    assert caption.min() < 128 < caption.max()
    animation = Image.open(paths[2])
    assert animation.n_frames == 3
    assert animation.size[1] > 90 + 4 * artifacts.CAPTION_SIZE
    for i, frame in enumerate(frames):
        animation.seek(i)
        shown = np.asarray(animation.convert("RGB"))[-90:]
        np.testing.assert_array_equal(shown, frame)


def test_finished_run_does_nothing(tmp_path, capsys):
    train.train(config(), tmp_path)
    before = {
        p: p.stat().st_mtime_ns
        for p in tmp_path.rglob("*")
        if p.is_file() and p.name != "lock"
    }
    assert train.train(config(), tmp_path) == {}
    assert "is finished" in capsys.readouterr().out
    assert before == {
        p: p.stat().st_mtime_ns
        for p in tmp_path.rglob("*")
        if p.is_file() and p.name != "lock"
    }


def test_non_finite_loss_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    c = config(nan_at=13)
    with pytest.raises(RunError, match=r"train/loss is nan at step 14"):
        train.train(c, tmp_path)
    assert final_state(tmp_path, c).step == 10
    assert not (tmp_path / "results.json").exists()


def test_a_signal_that_comes_again_later_acts_at_once(monkeypatch):
    seen = []
    old = signal.signal(signal.SIGTERM, lambda signum, frame: seen.append("acted"))
    try:
        with signals.collect() as caught:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert (caught, seen) == ([signal.SIGTERM] * 2, [])
            monkeypatch.setattr(signals, "REPEAT_S", 0.0)
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == ["acted"]
    finally:
        signal.signal(signal.SIGTERM, old)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_and_says_how_to_go_on(tmp_path, monkeypatch, signum):
    whole = train.train(config(), tmp_path / "whole")
    real = toy.make

    def make(c):
        exp = real(c)

        def batches(start):
            for k, batch in zip(
                itertools.count(start), exp.batches(start), strict=False
            ):
                if k == 7:
                    for _ in range(2):  # as SLURM does
                        os.kill(os.getpid(), signum)
                yield batch

        return exp._replace(batches=batches)

    with monkeypatch.context() as m:
        m.setattr(toy, "make", make)
        with pytest.raises(
            signals.Stopped, match="at step 8; saved, the same command resumes"
        ) as stopped:
            train.train(config(), tmp_path / "stopped")
    assert stopped.value.exit_code == 128 + signum
    assert train.train(config(), tmp_path / "stopped") == whole
    assert (tmp_path / "stopped/metrics.jsonl").read_text() == (
        tmp_path / "whole/metrics.jsonl"
    ).read_text()


def test_a_signal_stops_the_final_evaluation_where_it_is(tmp_path, monkeypatch, capsys):
    c = config(**{"evals.picture": "never"})
    c.evals.valid = "end"
    whole = train.train(c, tmp_path / "whole")
    assert "evaluations at the end: valid" in capsys.readouterr().out
    real, ended = toy.make, []

    def make(c):
        def evaluate(vars, split):
            if split == "valid":
                for _ in range(2):  # as SLURM does
                    os.kill(os.getpid(), signal.SIGTERM)
                ended.append(split)
            return exp.evaluate(vars, split)

        exp = real(c)
        return exp._replace(evaluate=evaluate)

    with monkeypatch.context() as m:
        m.setattr(toy, "make", make)
        with pytest.raises(
            signals.Stopped, match="at step 30; saved, the same command resumes"
        ):
            train.train(c, tmp_path / "stopped")
    assert not ended
    assert not (tmp_path / "stopped/results.json").exists()
    assert train.train(c, tmp_path / "stopped") == whole
    assert (tmp_path / "stopped/metrics.jsonl").read_text() == (
        tmp_path / "whole/metrics.jsonl"
    ).read_text()


def test_workdir_of_another_config_is_refused_by_field(tmp_path):
    train.train(config(), tmp_path)
    with pytest.raises(
        UserError,
        match=r"config\.optimizer\.learning_rate: 0\.01 there, 0\.1 now.*config\.seed: "
        r"0",
    ):
        train.train(config(seed=3, **{"optimizer.learning_rate": 0.1}), tmp_path)


def test_workdir_of_other_data_is_refused(tmp_path, monkeypatch):
    train.train(config(), tmp_path)
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/2", {}))
    with pytest.raises(UserError, match="was trained on other data"):
        train.train(config(), tmp_path)


def test_a_run_without_a_checkpoint_gives_way_to_the_corrected_command(
    tmp_path, capsys
):
    for number, wrong in enumerate((config(nan_at=2), config(nan_at=1)), 1):
        with pytest.raises(RunError, match="train/loss is nan"):
            train.train(wrong, tmp_path)
        assert not (tmp_path / f"without-checkpoint-{number}").exists()
    assert (tmp_path / "without-checkpoint-1" / "config.json").exists()
    train.train(config(), tmp_path)
    assert "its records are in without-checkpoint-2" in capsys.readouterr().out
    train.train(config(), tmp_path / "fresh")
    records = "metrics.jsonl"
    fresh = (tmp_path / "fresh" / records).read_bytes()
    assert (tmp_path / records).read_bytes() == fresh


def test_a_finished_run_without_its_checkpoints_gives_way_too(tmp_path, capsys):
    train.train(config(steps=5), tmp_path)
    train.evaluate(config(steps=5), tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    numbers = train.train(config(steps=10), tmp_path)
    assert numbers["best step"] == 10
    assert "is finished" not in capsys.readouterr().out
    aside = {path.name for path in (tmp_path / "without-checkpoint-1").iterdir()}
    assert aside >= {"config.json", "results.json", "evaluation.json"}


def test_a_run_with_a_checkpoint_stays(tmp_path):
    with pytest.raises(RunError):
        train.train(config(nan_at=13), tmp_path)
    with pytest.raises(UserError, match=r"config\.nan_at: 13 there, -1 now"):
        train.train(config(), tmp_path)


def test_evaluating_never_sets_records_aside(tmp_path):
    with pytest.raises(RunError):
        train.train(config(nan_at=2), tmp_path)
    with pytest.raises(UserError, match=r"config\.nan_at: 2 there, -1 now"):
        train.evaluate(config(), tmp_path)


def test_second_run_in_one_workdir_is_refused(tmp_path):
    from lnrepro.engine import workdir

    with (
        workdir.lock(tmp_path),
        pytest.raises(UserError, match="in use by another run"),
    ):
        train.train(config(), tmp_path)


@pytest.mark.slow
def test_damaged_checkpoint_falls_back_and_the_run_still_ends_the_same(
    tmp_path, monkeypatch, capsys
):
    c = config()
    whole = train.train(c, tmp_path / "whole")
    with monkeypatch.context() as m:
        interrupt(m, 23)
        with pytest.raises(KeyError):
            train.train(c, tmp_path / "broken")
    last = tmp_path / "broken/checkpoints/last/20"
    victim = max(
        (p for p in last.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size
    )
    blob = bytearray(victim.read_bytes())
    blob[len(blob) // 2] ^= 0xFF
    victim.write_bytes(blob)
    assert train.train(c, tmp_path / "broken") == whole
    assert "last/20 cannot be read" in capsys.readouterr().err
    assert (tmp_path / "broken/checkpoints/damaged/last-20").is_dir()
    assert (tmp_path / "broken/metrics.jsonl").read_text() == (
        tmp_path / "whole/metrics.jsonl"
    ).read_text()


def test_no_readable_checkpoint_is_one_clear_line(tmp_path, monkeypatch):
    c = config()
    with monkeypatch.context() as m:
        interrupt(m, 8)
        with pytest.raises(KeyError):
            train.train(c, tmp_path)
    for p in (tmp_path / "checkpoints/last/5").rglob("*"):
        if p.is_file():
            p.write_bytes(b"")
    with pytest.raises(UserError, match=r"none of the checkpoints \[5\] can be read"):
        train.train(c, tmp_path)


def test_batch_size_must_divide_over_devices():
    assert jax.device_count() == 4
    with pytest.raises(
        UserError,
        match=r"config\.batch_size = 6 does not divide over 4 devices; take 4 or 8",
    ):
        distribute.make("jit", 6)


def test_full_disk_while_saving_is_a_run_error(tmp_path, monkeypatch):
    import orbax.checkpoint as ocp

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ocp.CheckpointManager, "save", full)
    store = Store(tmp_path)
    with pytest.raises(
        RunError, match=r"could not save a checkpoint .*step 5: No space left on device"
    ):
        store.save("last", 5, {"w": np.zeros(3)}, {})


def test_unknown_best_metric_names_the_measured_ones(tmp_path):
    with pytest.raises(
        UserError,
        match=r"best.metric names 'test/eror', which is not measured; did you mean "
        r"test/error\?",
    ):
        train.train(config(**{"best.metric": "test/eror"}), tmp_path)


def test_unlike_batches_in_one_call_are_refused():
    batches = iter([{"x": np.zeros((2, 3))}, {"x": np.zeros((2, 4))}])
    with pytest.raises(
        UserError, match="steps_per_call = 2 needs batches of one shape"
    ):
        train_step.take(batches, 2)


def test_parameters_that_broke_in_the_step_before_a_save_are_not_saved(
    tmp_path, monkeypatch
):
    real = toy.make

    def make(c):
        exp = real(c)

        def loss(vars, batch, key):
            value, aux = exp.loss(vars, batch, key)
            alive = jnp.where(
                batch["k"][0] == 9, 0.0, 1.0
            )  # the value stays finite, the gradient does not
            return value + 0 * jnp.sqrt(alive * jnp.sum(vars["params"]["w"] ** 2)), aux

        return exp._replace(loss=loss)

    monkeypatch.setattr(toy, "make", make)
    c = config(**{"evals.test": "never", "best.metric": None})
    with pytest.raises(
        RunError,
        match="not finite after step 10: stopped; the last good checkpoint is kept",
    ):
        train.train(c, tmp_path)
    assert final_state(tmp_path, c).step == 5


def test_the_result_and_the_best_come_first_and_the_rest_is_folded(tmp_path, capsys):
    numbers = train.train(config(), tmp_path / "run")
    *_, shown = capsys.readouterr().out.partition("steps\n")
    rows = [line.split()[1:-1] for line in shown.splitlines() if line[:1] == "│"]
    names = [" ".join(cells).partition(" │")[0] for cells in rows]
    first = ["best test/error", "best step", "picture/sum", "test/error", "train/loss"]
    assert names == first
    rest = numbers.keys() - set(first)
    assert rest == {"train/scale"}
    assert "report.html (with 1 more number)" in shown
    page = (tmp_path / "run/report.html").read_text()
    results, _, folded = page.partition("<details><summary>1 more number</summary>")
    places = [results.index(f"<td>{name}</td>") for name in first]
    assert places == sorted(places)
    assert "<td>train/scale</td>" in folded
    assert "<td>train/scale</td>" not in results


def test_without_best_and_curves_all_numbers_are_results():
    rows = [Row("train/loss", 1.0), Row("test/error", 2.0)]
    assert report.results_first({}, rows) == (rows, [])
