"""Figures and tables show what was recorded, and name what is missing."""

import csv
import json
import re
from unittest import mock

import numpy as np
import pytest

from experiments import paper_results
from lnrepro.engine import config_file
from lnrepro.engine.experiment import total_steps
from scripts import figures as script
from scripts.paper import (
    claims,
    compare,
    curves,
    forest,
    plot,
    records,
    tables,
    verdicts,
)
from scripts.paper.axes import FIGURES
from scripts.paper.claims import CLAIMS
from scripts.paper.records import find
from tests.refused import refused
from tests.runs import ROOT
from tests.scripts.recorded import files_of, recorded

RESULTS = ROOT / "experiments/results"
DRAW, BOUND = "experiments.draw", "test/bound"


def write_run(folder, *run, **config):
    """Write the run directory of `files_of`."""
    folder.mkdir(parents=True)
    files = files_of(*run, **config)
    (folder / "config.json").write_text(json.dumps(files["config.json"]))
    lines = [f"{json.dumps(record)}\n" for record in files["metrics.jsonl"]]
    (folder / "metrics.jsonl").write_text("".join(lines))


def bounds(values, name=BOUND):
    """One record of a test bound for each epoch."""
    # An epoch has 390 batches of 128.
    values = enumerate(values, 1)
    return [{"step": 390 * i, "epoch": float(i), name: value} for i, value in values]


def draw_run(norm, seed, values, *data, **config):
    return recorded(DRAW, norm, seed, bounds(values), *data, **config)


@pytest.fixture
def draw_runs(tmp_path):
    """Two seeds of LN, and two of the baseline."""
    for norm in ("layer_cell", "none"):
        for seed in (0, 1):
            run = DRAW, norm, seed, bounds([120, 95, 90, 85 + seed])
            write_run(tmp_path / f"runs/{norm}{seed}", *run, steps=1560)
    return tmp_path / "runs"


def panels(runs, number=4):
    """The lines of each panel of a figure by their labels."""
    found = curves.of_figure(FIGURES[number], runs)
    return [{line.label: line for line in panel.lines} for panel in found]


def figures(*flags):
    """Run the command in this process."""
    script.main([str(flag) for flag in flags])


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_curves_are_medians_over_seeds_with_their_range():
    """What is not finite is no point. How steps are computed makes no curve."""
    how = {"steps_per_call": 4, "pallas": True, "decay": None}
    runs = [draw_run("layer_cell", 0, [120, 95, None, float("nan")])]
    runs.append(draw_run("layer_cell", 1, [130, 97, 92], **how))
    runs.append(draw_run("layer_cell", 2, [131, 90], **how))
    (lines,) = panels([*runs, draw_run("none", 0, [117])])
    # The legend has the order of the figure's norms.
    assert list(lines) == ["no norm", "layer norm"]
    ours = lines["layer norm"]
    found = ours.x, ours.low, ours.y, ours.high
    expected = [1, 2, 3], [120, 90, 92], [130, 95, 92], [131, 97, 92]
    np.testing.assert_allclose(found, expected)


def test_each_protocol_has_panels_of_its_own():
    """One run is of both protocols. The longest one is of neither."""
    runs = []
    for norm, rate in (("layer", 1e-3), ("batch", 3e-4), ("batch", 1e-3), ("batch", 1)):
        values = bounds([rate] * (2 if rate == 1 else 1), "test/error")
        more = {"steps": 7722, "optimizer": {"learning_rate": rate}}
        runs.append(recorded("experiments.mnist", norm, 0, values, "mnist", **more))
    drawn = {}
    for panel in curves.of_figure(FIGURES[6], runs):
        drawn[panel.settings["title"]] = [line.y[0] / 100 for line in panel.lines]
    assert drawn == {
        "batch size 128, tuned": pytest.approx([3e-4, 1e-3]),
        "batch size 128, same rate": pytest.approx([1e-3, 1e-3]),
    }
    assert curves.caption(FIGURES[6], runs) == (
        "Figure 6, Permutation-invariant MNIST. Data: mnist; up to 390 steps. "
        "Runs of neither protocol are not drawn."
    )


def test_runs_with_other_settings_are_not_averaged():
    runs = [draw_run("none", 0, [99]), draw_run("layer_cell", 0, [99])]
    runs.append(draw_run("none", 1, [99], optimizer={"learning_rate": 3e-4}))
    labels = {"no norm", "no norm (learning_rate 0.0003)", "layer norm"}
    assert panels(runs)[0].keys() == labels
    runs.append(draw_run("layer_cell", 0, [99], steps=780))
    labels |= {"layer norm (steps 780)", "layer norm (steps 10000)"}
    assert panels(runs)[0].keys() == labels - {"layer norm"}
    assert panels(runs)[0]["layer norm (steps 10000)"].style == "-"
    assert panels(runs)[0]["layer norm (steps 780)"].style == "--"
    # Other data is named, and is no other setting.
    runs.append(draw_run("none", 0, [99], "digits", steps=390))
    assert "no norm (digits)" in panels(runs)[0]


def test_the_second_metric_of_a_panel_is_dotted():
    (lines,) = panels(find([RESULTS / "runs/handwriting.runs.jsonl"]), 5)
    dotted = {label for label, line in lines.items() if line.style == ":"}
    assert dotted == {"no norm train", "layer norm train"}


@pytest.mark.parametrize(
    ("name", "plain"),
    [("binarized_mnist", "binarized_mnist"), ("coco_captions", "coco_captions abc")],
)
def test_other_data_of_the_same_name_is_other_data(tmp_path, name, plain):
    """Two fingerprints make two data sets, also where none is known to be official."""
    write_run(tmp_path / "a", DRAW, "none", 0, bounds([99]), name)
    own = f"{name}/1.0.0/0123456789abcdef"
    write_run(tmp_path / "b", DRAW, "none", 1, bounds([99]), name, fingerprint=own)
    runs = find([tmp_path])
    assert [run.data for run in runs] == [plain, f"{name} 01234567"]
    assert "not to be compared" in curves.caption(FIGURES[4], runs)


def test_the_command_writes_pictures_points_and_the_page(draw_runs, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    # The page does not show what another call wrote.
    (out / "figure1.png").touch()
    for norm in ("none", "layer_cell"):
        write_run(draw_runs / norm, DRAW, norm, 7, bounds([99]), steps=1560)
    figures(draw_runs, "--out", out)
    said = capsys.readouterr().out.splitlines()
    sweep = "python scripts/sweep.py configs/mnist.py:paper"
    # The pilot is not drawn beside a seed of the plan.
    assert "figure 4, runs without those of the pilot: 2" in said
    assert f"figure 6, runs: none; {sweep}  trains them" in said
    page = (out / "index.md").read_text()
    pictures = re.findall(r"!\[\]\((\S+)\)", page)
    assert pictures == ["answers.png", "figure4.png", "forest.png"]
    assert all((out / name).exists() for name in pictures)
    assert (out / "figure4.svg").exists()
    verdicts = (out / "verdicts.md").read_text()
    assert verdicts in page
    assert "| 2 | binarized_mnist |" in verdicts
    assert len(rows_of(out / "figure4.csv")) == 2


def drawn(function, *arguments):
    """The figure that a function draws."""
    with mock.patch.object(plot, "save") as save:
        function(*arguments, "stem")
    (fig, _), _ = save.call_args
    plot.plt.close(fig)
    return fig


def test_the_legend_lies_inside_of_the_picture():
    lines = [plot.Line(f"{i}" + "m" * 40, *[[0, 1]] * 4) for i in range(5)]
    fig = drawn(plot.draw, [plot.Panel(lines, {})] * 2)
    legend = fig.legends[0].get_window_extent()
    assert 0 <= legend.x0 < legend.x1 <= fig.bbox.width


def test_any_metric_of_any_experiment_is_drawn(tmp_path):
    """Norms are compared at equal settings; numbers are those of the definition."""
    metric, none, rms = "valid/accuracy", [0.1, 0.2, 0.3, 0.4], [0.2, 0.5, 0.6, 0.7]
    for norm, rate, curve in (("none", 1, none), ("rms", 1, rms), ("rms", 2, none)):
        for seed in (0, 1):
            more = {"steps": 1560, "optimizer": {"learning_rate": rate}}
            values = bounds([*curve[:3], curve[3] + seed / 5], metric)
            folder = tmp_path / f"runs/{norm}{rate}{seed}"
            write_run(folder, "mine.a", norm, seed, values, "d", **more)
    flags = (tmp_path / "runs", "--out", tmp_path, "--metric")
    figures(*flags, metric, "--rates")
    # No claim is about it, so that the table of rates has its head alone.
    assert (tmp_path / "rates.md").read_text().count("\n") == 2
    assert len(rows_of(tmp_path / "valid_accuracy.csv")) == 24
    assert (tmp_path / "valid_accuracy.md").read_text().splitlines()[2:] == [
        "| learning_rate 1 | none | 2 | 0.50 +- 0.14 |  |  |",
        # The mean of rms at the second step is the best of none, 0.5 at the fourth.
        "| learning_rate 1 | rms | 2 | 0.80 +- 0.14 | 50 % | +0.3 |",
        "| learning_rate 2 | rms | 2 | 0.50 +- 0.14 |  |  |",
    ]
    with refused("no run has recorded the metric 'valid/acuracy'"):
        figures(*flags, "valid/acuracy")
    with refused("there is no run directory (with a config.json) at or below it"):
        figures(tmp_path / "none", "--out", tmp_path)


@pytest.mark.parametrize(
    ("epochs", "data", "has_axes"),
    [(100, (), True), (100, ("digits",), False), (4, (), False)],
)
def test_paper_numbers_stand_beside_its_own_data_only(epochs, data, has_axes):
    """Four epochs end early on an axis of 100. The axes hold the end of the curve."""
    run = draw_run("none", 0, np.linspace(99, 75, epochs).tolist(), *data)
    (panel,) = curves.of_figure(FIGURES[4], [run])
    assert bool(panel.printed) == has_axes
    limits = panel.settings.get("xlim"), panel.settings.get("ylim")
    assert limits == (((0, 100), (75, 100)) if has_axes else (None, None))


def test_a_row_of_table_3_on_generated_tasks():
    """They have other names. The last record with all scores counts."""
    scores = {f"story_{name}": 0.5 for name in paper_results.TABLE_3_COLUMNS}
    values = [{"step": 2} | scores, {"step": 3, "story_mr/accuracy": 7.0}]
    run = "experiments.skip_thoughts", "layer", 0, values, "stories"
    run = recorded(*run, model={"units": 128})
    data = "stories and generated tasks; 128-d, 2 steps"
    row = f"{data} | 0.500 | 0.500 | 0.500 | 0.5 |"
    assert row in tables.beside_the_paper(3, [run])


def test_rows_of_table_2_are_what_evaluate_wrote_and_the_end():
    """Each says of which step it is, also where the run has gone on."""
    run, *_ = find([RESULTS / "runs/order_embeddings.runs.jsonl"])
    for step, rows in ((5, 2), (run.step, 1)):
        run.files["evaluation.json"] = run.records[-1] | {"step": step}
        table = tables.beside_the_paper(1, [run])
        assert f", {step:,} steps |" in table
        assert table.count(" steps |") == rows


def test_axes_name_numbers_of_the_experiments():
    """The pages of the kept runs show the numbers of claims and tables."""
    for figure in FIGURES.values():
        for panel in figure.panels:
            for metric in panel.metrics:
                assert metric.rpartition("/")[2] in claims.METRICS, metric


@pytest.mark.parametrize("number", range(1, 7))
def test_kept_figures_are_those_of_the_kept_runs(tmp_path, number):
    figures(RESULTS / "runs", "--out", tmp_path, "--figure", number)
    points = (tmp_path / f"figure{number}.csv").read_text()
    assert points == (RESULTS / f"figures/figure{number}.csv").read_text()


def test_what_is_no_run_is_named_and_the_rest_is_drawn(tmp_path, capsys):
    write_run(tmp_path / "run", DRAW, "none", 0, bounds([90.0, 85.0]))
    # The same seed counts once.
    write_run(tmp_path / "short", DRAW, "none", 0, bounds([90.0]))
    write_run(tmp_path / "none", DRAW, "none", 0, [], steps=0, epochs=None)
    file = tmp_path / "b.runs.jsonl"
    file.write_text('{\n[]\n{"run": "a", "config.json": {}}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text('{"config": 3}')
    assert [run.folder.name for run in find([tmp_path])] == ["run"]
    starts = [
        *(f"{file}:{i}: " for i in (1, 2, 3)),
        f"{tmp_path}/broken/config.json: ",
        f"{tmp_path}/none/config.json: UserError: config.steps = 0",
        f"{tmp_path}/short: ",
    ]
    lines = capsys.readouterr().err.splitlines()
    for start, line in zip(starts, lines, strict=True):
        assert line.startswith(f"left out: {start}")


def test_packed_runs_are_the_runs_that_ended(draw_runs, tmp_path, capsys):
    (draw_runs / "none0/diverged.json").write_text('{"metric": "loss", "step": 5}')
    # A run that was resumed may have two commits.
    (draw_runs / "none0/resumes.jsonl").write_text('{"step": 5, "git": "89abcde"}')
    write_run(draw_runs / "open", DRAW, "none", 7, bounds([9]))
    file = tmp_path / "packed" / "draw.runs.jsonl"
    records.main([str(draw_runs), "--out", str(file)])
    assert "runs/open: it is not finished" in capsys.readouterr().err
    found = find([file])
    ended = [run for run in find([draw_runs]) if run.ended]
    assert [run[1:] for run in found] == [run[1:] for run in ended]
    assert [run.diverged for run in found] == [False, False, True, False]
    assert [run.finished for run in found] == [True, True, False, True]
    assert found[2].files["config.json"]["git"] == "0123456, 89abcde"
    assert " 1 runs diverged " in curves.caption(FIGURES[4], found)
    # Metrics have eight digits.
    write_run(draw_runs / "e", DRAW, "weight", 0, bounds([1.23456789]), steps=390)
    records.main([str(draw_runs / "e"), "--out", str(file)])
    assert 1.2345679 in [run.curve(BOUND).get(390) for run in find([file])]
    # The same runs, and those of the file itself, give the same bytes.
    before = file.read_bytes()
    records.main([str(draw_runs), "--out", str(file)])
    assert file.read_bytes() == before
    # A line that cannot be read stays.
    file.write_bytes(before + b"{")
    with refused(f"{file}:6: JSONDecodeError", "mend or remove it"):
        records.main([str(draw_runs), "--out", str(file)])
    assert file.read_bytes() == before + b"{"
    with refused("a name that ends in .runs.jsonl"):
        records.main([str(draw_runs), "--out", str(file.with_suffix(".json"))])


def test_a_finished_run_stays_beside_a_longer_one_that_is_not(tmp_path):
    values, file = bounds([99.0, 98.0, 97.0]), tmp_path / "draw.runs.jsonl"
    write_run(tmp_path / "kept", DRAW, "none", 0, values[:2], steps=780)
    # One of the same length that diverged does not replace it, however far it went.
    write_run(tmp_path / "more", DRAW, "none", 0, values, steps=780)
    (tmp_path / "more/diverged.json").write_text('{"metric": "loss", "step": 1170}')
    write_run(tmp_path / "long", DRAW, "none", 0, values, steps=1560)
    records.main([str(tmp_path), "--out", str(file)])
    (run,) = find([file])
    assert (run.step, run.finished) == (780, True)


def test_kept_runs_have_the_settings_of_their_configs():
    """A field that goes is named once in GONE_FIELDS; else its runs stand apart."""
    for folder in ("small", "fresh"):
        for file in (RESULTS / folder).glob("*.runs.jsonl"):
            name, _, variant = file.name.removesuffix(records.SUFFIX).partition("-")
            module = config_file.load_module(f"{ROOT}/configs/{name}.py")
            config = module.get_config(variant)
            length = total_steps(config)
            for run in find([file]):
                config.optimizer.learning_rate = run.rate
                today = run._replace(config=config, length=length)
                assert dict(run.settings()) == dict(today.settings()), run.folder


def verdict(*numbers, seeds=10):
    """One whose speed and end have a value and an interval."""
    pairs = compare.Pairs(np.arange(1), *np.zeros((2, seeds, 1)), sign=1)
    numbers = dict.fromkeys(verdicts.NUMBERS, verdicts.Number(*numbers))
    return verdicts.Verdict(pairs, numbers)


def test_shares_are_drawn_with_intervals_and_answers_with_their_words():
    """A line at 100 % comes first, then an interval and a point for each number."""
    fast, slow = verdict(0.5, 0.4, 0.6), verdict(1.5, 1.4, 1.6)
    row = verdicts.Row(CLAIMS[0], "data", {"tuned": fast})
    fig = drawn(forest.draw, [row])
    # One for each protocol, of which the tuned one is drawn above the other.
    assert len(fig.legends[0].get_texts()) == 2
    _, interval, point = fig.axes[0].lines[:3]
    assert point.get_ydata() == [1 - 0.15]
    assert interval.get_xdata().ravel() == pytest.approx([40, 60])
    assert point.get_xdata() == [50]
    answers = {
        "reproduced, on other data": (claims.PLAN[0], fast, 0.01, True),
        # It is about the end, which is no share.
        "open": (claims.PLAN[3], fast, 0.5, False),
        "not finished": (claims.PLAN[2], verdict(seeds=9), 1, False),
        "contradicted": (claims.PLAN[5], slow, 0.01, False),
    }
    found = [verdicts.Answer(*answer) for answer in answers.values()]
    (ax,) = drawn(forest.draw_answers, found).axes
    assert [text.get_text() for text in ax.texts] == list(answers)
    assert [list(line.get_xdata()) for line in ax.lines[2::2]] == [[50], [150]]
