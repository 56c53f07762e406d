"""Figures and tables show what was recorded, and name what is missing."""

import csv
import json
import re
from unittest import mock

import numpy as np
import pytest

from experiments import paper_results
from lnrepro.engine import config_file, run_config
from scripts import figures as script
from scripts.paper import claims, curves, forest, plot, records, tables, verdicts
from scripts.paper.axes import FIGURES
from scripts.paper.claims import CLAIMS
from scripts.paper.records import find
from tests.refused import refused
from tests.runs import ROOT

RESULTS = ROOT / "experiments/results"
DRAW, BOUND = "experiments.draw", "test/bound"


def write_run(folder, experiment, norm, seed, values, data="binarized_mnist", **more):
    """Write a run directory; the `values` are records without epoch and data."""
    folder.mkdir(parents=True)
    own = paper_results.FINGERPRINTS.get(data, f"{data}/1.0.0/abc")
    fingerprint = more.pop("fingerprint", own)
    config = {"experiment": experiment, "norm": norm, "seed": seed, "batch_size": 128}
    config |= {"steps": 0, "epochs": None}
    about = {
        "config": config | {"data": {"name": data}} | more,
        "data": {"name": data, "fingerprint": fingerprint},
        "git": "0123456",
    }
    (folder / "config.json").write_text(json.dumps(about))
    lines = [json.dumps({"epoch": 1.0, "data": data} | record) for record in values]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


def bounds(values, name=BOUND):
    """One record of a test bound for each epoch."""
    values = enumerate(values, 1)
    return [{"step": 390 * i, "epoch": float(i), name: value} for i, value in values]


@pytest.fixture
def draw_runs(tmp_path):
    """Two seeds of LN, and two of the baseline."""
    runs = tmp_path / "runs"
    steps = {"steps": 4 * 390}
    write_run(runs / "a", DRAW, "layer_cell", 0, bounds([120, 95, 90, 85]), **steps)
    # How the steps are computed makes no curve, nor does a field that is not set.
    how = steps | {"steps_per_call": 4, "pallas": True, "decay": None}
    write_run(runs / "b", DRAW, "layer_cell", 1, bounds([130, 97, 92, 87]), **how)
    for seed, more in ((3, -0.5), (4, 1)):
        values = (np.array([117, 100, 95, 90]) + more).tolist()
        write_run(runs / f"c{seed}", DRAW, "none", seed, bounds(values), **steps)
    return runs


def lines_of(*paths):
    """The lines of the only panel of Figure 4."""
    (subplot,) = curves.of_figure(FIGURES[4], find(paths))
    return {line.label: line for line in subplot.lines}


def figures(*flags):
    """Run the command in this process."""
    script.main([str(flag) for flag in flags])


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_curves_are_medians_over_seeds_with_their_range(draw_runs):
    lines = lines_of(draw_runs)
    assert list(lines) == ["no norm", "layer norm"]
    base, ours = lines.values()
    np.testing.assert_allclose(ours.x, [1, 2, 3, 4])
    np.testing.assert_allclose(ours.y, [125, 96, 91, 86])
    np.testing.assert_allclose(ours.low, [120, 95, 90, 85])
    np.testing.assert_allclose(ours.high, [130, 97, 92, 87])
    np.testing.assert_allclose(base.y, [117.25, 100.25, 95.25, 90.25])
    # Numbers that were not finite are no points.
    write_run(draw_runs / "d", DRAW, "weight", 0, bounds([90, None, float("nan"), 85]))
    assert list(lines_of(draw_runs / "d")["weight norm"].x) == [1.0, 4.0]


def test_each_protocol_has_panels_of_its_own(tmp_path):
    """Runs of the small size with their own rates, and with the common one."""
    for rate in (3e-3, 1e-3, 1e-2):
        more = {"steps": 9000, "optimizer": {"learning_rate": rate}, "batch_size": 64}
        for norm in ("none", "layer_cell"):
            values = [{"step": 9000, BOUND: rate}]
            write_run(tmp_path / f"{norm}{rate}", DRAW, norm, 0, values, **more)
    runs = find([tmp_path])
    drawn = {}
    for panel in curves.of_figure(FIGURES[4], runs):
        drawn[panel.settings["title"]] = [line.y[0] for line in panel.lines]
    assert drawn == {"tuned": [3e-3, 3e-3], "same rate": [1e-3, 1e-3]}
    assert "Runs of neither protocol are not drawn" in curves.caption(FIGURES[4], runs)


def test_runs_with_other_settings_are_not_averaged(draw_runs):
    other = {"steps": 4 * 390, "optimizer": {"learning_rate": 3e-4}}
    write_run(draw_runs / "d", DRAW, "none", 0, bounds([99]), **other)
    labels = {"no norm", "no norm (learning_rate 0.0003)", "layer norm"}
    assert set(lines_of(draw_runs)) == labels
    write_run(draw_runs / "e", DRAW, "layer_cell", 0, bounds([99]), steps=2 * 390)
    labels |= {"layer norm (steps 780)", "layer norm (steps 1560)"}
    assert set(lines_of(draw_runs)) == labels - {"layer norm"}
    # Other data is named, and is no other setting.
    write_run(draw_runs / "f", DRAW, "none", 0, bounds([99]), "digits", steps=390)
    assert "no norm (digits)" in lines_of(draw_runs)


def test_the_second_metric_of_a_panel_is_dotted():
    (panel,) = curves.of_figure(
        FIGURES[5], find([RESULTS / "runs/handwriting.runs.jsonl"])
    )
    dotted = {line.label for line in panel.lines if line.style == ":"}
    assert dotted == {"no norm train", "layer norm train"}


@pytest.mark.parametrize("name", ["binarized_mnist", "coco_captions"])
def test_other_data_of_the_same_name_is_other_data(tmp_path, name):
    """Two fingerprints make two data sets, also where none is known to be official."""
    write_run(tmp_path / "a", DRAW, "none", 0, bounds([99]), name)
    own = f"{name}/1.0.0/0123456789abcdef"
    write_run(tmp_path / "b", DRAW, "none", 1, bounds([99]), name, fingerprint=own)
    official = {"binarized_mnist": "binarized_mnist"}.get(name, f"{name} abc")
    runs = find([tmp_path])
    assert [run.data for run in runs] == [official, f"{name} 01234567"]
    assert "not to be compared" in curves.caption(FIGURES[4], runs)


def test_the_command_writes_pictures_points_and_the_page(draw_runs, tmp_path, capsys):
    out = tmp_path / "out"
    for norm in ("none", "layer_cell"):
        write_run(draw_runs / norm, DRAW, norm, 7, bounds([99]), steps=4 * 390)
    figures(draw_runs, "--out", out)
    said = capsys.readouterr().out
    sweep = "python scripts/sweep.py configs/mnist.py:paper"
    assert "figure 4, runs: 6" in said.splitlines()
    assert f"figure 6, runs: none; {sweep}  trains them" in said.splitlines()
    pictures = ["answers.png", "figure4.png", "forest.png"]
    assert sorted(path.name for path in out.glob("*.png")) == pictures
    page = (out / "index.md").read_text()
    assert re.findall(r"!\[\]\((\S+)\)", page) == pictures
    verdicts = (out / "verdicts.md").read_text()
    assert verdicts in page
    # The seed of the plan is not pooled with the others.
    assert "no seed in common" in verdicts
    assert len(rows_of(out / "figure4.csv")) == 18


def test_the_legend_lies_inside_of_the_picture(tmp_path):
    x = np.arange(2.0)
    lines = [plot.Line(f"{i}" + "m" * 40, x, x, x, x, None) for i in range(5)]
    with mock.patch.object(plot.plt, "close") as close:
        plot.draw([plot.Panel(lines, {})] * 2, tmp_path / "figure")
    figure = close.call_args.args[0]
    legend = figure.legends[0].get_window_extent()
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width


def test_any_metric_of_any_experiment_is_drawn(tmp_path):
    """Norms are compared at equal settings; numbers are those of the definition."""
    metric, none, rms = "valid/accuracy", [0.1, 0.2, 0.3, 0.4], [0.2, 0.5, 0.6, 0.7]
    for norm, rate, curve in (("none", 1, none), ("rms", 1, rms), ("rms", 2, none)):
        for seed in (0, 1):
            folder = tmp_path / "runs" / f"{norm}{rate}{seed}"
            more = {"steps": 4 * 390, "optimizer": {"learning_rate": rate}}
            values = bounds([*curve[:3], curve[3] + seed / 5], metric)
            write_run(folder, "mine.a", norm, seed, values, "d", **more)
    out = tmp_path / "out"
    flags = (tmp_path / "runs", "--out", out, "--metric")
    figures(*flags, metric)
    assert len(rows_of(out / "valid_accuracy.csv")) == 24
    assert (out / "valid_accuracy.md").read_text().splitlines()[2:] == [
        "| learning_rate 1 | none | 2 | 0.50 +- 0.14 |  |  |",
        # The mean of rms at the second step is the best of none, 0.5 at the fourth.
        "| learning_rate 1 | rms | 2 | 0.80 +- 0.14 | 50 % | +0.3 |",
        "| learning_rate 2 | rms | 2 | 0.50 +- 0.14 |  |  |",
    ]
    with refused("no run has recorded the metric 'valid/acuracy'"):
        figures(*flags, "valid/acuracy")
    with refused("there is no run directory (with a config.json) at or below it"):
        figures(tmp_path / "none", "--out", out)


def test_paper_numbers_stand_beside_its_own_data_only(draw_runs, tmp_path):
    values = np.linspace(99, 82, 100)
    write_run(tmp_path / "long", DRAW, "none", 0, bounds(values))
    other = bounds(values)
    write_run(tmp_path / "other", DRAW, "none", 0, other, "digits")
    # Four epochs end early on an axis of 100.
    for path in ("long", "other", "runs"):
        (panel,) = curves.of_figure(FIGURES[4], find([tmp_path / path]))
        has_axes = panel.settings.get("xlim") == (0, 100)
        assert bool(panel.printed) == has_axes == (path == "long")


def test_a_row_of_table_3_on_generated_tasks(tmp_path):
    """They have other names. The last record with all scores counts."""
    scores = {f"story_{name}": 0.5 for name in paper_results.TABLE_3_COLUMNS}
    values = [{"step": 2} | scores, {"step": 3, "story_mr/accuracy": 7.0}]
    run = "experiments.skip_thoughts", "layer", 0, values, "stories"
    write_run(tmp_path / "run", *run, model={"units": 128})
    data = "stories and generated tasks; 128-d, 2 steps"
    row = f"{data} | 0.500 | 0.500 | 0.500 | 0.5 |"
    assert row in tables.beside_the_paper(tables.TABLES[3], find([tmp_path]))


def test_axes_claims_and_tables_name_numbers_of_their_experiments():
    named = [*paper_results.TABLE_2_COLUMNS, *paper_results.TABLE_3_COLUMNS]
    named += [claim.metric for claim in CLAIMS]
    named += [metric for metric, _ in claims.TRANSFER.scales]
    for figure in FIGURES.values():
        for panel in figure.panels:
            named += panel.metrics
    for metric in named:
        assert metric.rpartition("/")[2] in claims.METRICS, metric


@pytest.mark.parametrize("number", range(1, 7))
def test_kept_figures_are_those_of_the_kept_runs(tmp_path, number):
    script.draw_figure(number, find([RESULTS / "runs"]), tmp_path)
    points = (tmp_path / f"figure{number}.csv").read_text()
    assert points == (RESULTS / f"figures/figure{number}.csv").read_text()


def test_what_is_no_run_is_named_and_the_rest_is_drawn(tmp_path, capsys):
    write_run(tmp_path / "run", DRAW, "none", 0, bounds([90.0, 85.0]))
    # The same seed counts once.
    write_run(tmp_path / "short", DRAW, "none", 0, bounds([90.0]))
    file = tmp_path / "b.runs.jsonl"
    file.write_text('{\n[]\n{"run": "a", "config.json": {}}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.json").write_text('{"config": 3}')
    write_run(tmp_path / "seedless", DRAW, "none", 0, [])
    config = tmp_path / "seedless/config.json"
    config.write_text(config.read_text().replace("seed", "other"))
    assert [run.folder.name for run in find([tmp_path])] == ["run"]
    lines = capsys.readouterr().err.splitlines()
    named = [f"{file}:{i}: not the records of a run (" for i in (1, 2, 3)]
    named += [f"{path}: " for path in (tmp_path / "broken/config.json", config)]
    for start, line in zip([*named, f"{tmp_path}/short: "], lines, strict=True):
        assert line.startswith(f"left out: {start}")


def test_packed_runs_are_the_runs_that_ended(draw_runs, tmp_path, capsys):
    (draw_runs / "a/diverged.json").write_text('{"metric": "train/loss", "step": 5}')
    assert " 1 runs diverged " in curves.caption(FIGURES[4], find([draw_runs]))
    (draw_runs / "a/resumes.jsonl").write_text('{"step": 5, "git": "89abcde"}')
    write_run(draw_runs / "d", DRAW, "none", 7, bounds([9]), steps=10_000)
    file = tmp_path / "packed" / "draw.runs.jsonl"
    records.main([str(draw_runs), "--out", str(file)])
    assert "runs/d: it is not finished" in capsys.readouterr().err
    for own, other in zip(find([draw_runs]), find([file]), strict=False):
        assert (own.folder.name, own.files) == (other.folder.name, other.files)
        assert own.config.to_dict() == other.config.to_dict()
    diverged, *others = find([file])
    assert (diverged.diverged, diverged.finished) == (True, False)
    assert diverged.files["config.json"]["git"] == "0123456, 89abcde"
    assert [run.finished for run in others] == [True] * 3
    # Metrics have eight digits.
    write_run(draw_runs / "e", DRAW, "weight", 0, bounds([1.23456789]), steps=390)
    records.main([str(draw_runs / "e"), "--out", str(file)])
    assert 1.2345679 in [run.curve(BOUND).get(390) for run in find([file])]
    # The same runs, and those of the file itself, give the same bytes.
    before = file.read_bytes()
    records.main([str(draw_runs), "--out", str(file)])
    assert file.read_bytes() == before
    with refused("a name that ends in .runs.jsonl"):
        records.main([str(draw_runs), "--out", str(file.with_suffix(".json"))])


def test_a_finished_run_stays_beside_a_longer_one_that_is_not(tmp_path, capsys):
    values, file = bounds([99.0, 98.0, 97.0]), tmp_path / "draw.runs.jsonl"
    write_run(tmp_path / "kept/a", DRAW, "none", 0, values[:2], steps=2 * 390)
    write_run(tmp_path / "long/a", DRAW, "none", 0, values, steps=4 * 390)
    # One of the same length that diverged does not replace it, however far it went.
    write_run(tmp_path / "more/a", DRAW, "none", 0, values, steps=2 * 390)
    (tmp_path / "more/a/diverged.json").write_text('{"metric": "loss", "step": 1170}')
    for folder in ("kept", "long", "more"):
        records.main([str(tmp_path / folder), "--out", str(file)])
    (run,) = find([file])
    assert (run.step, run.finished) == (780, True)
    assert "long/a: it is not finished" in capsys.readouterr().err


def test_kept_runs_have_the_settings_of_their_configs():
    """A field that goes is named once in GONE_FIELDS; else its runs stand apart."""
    files = [
        f for of in ("small", "fresh") for f in (RESULTS / of).glob("*.runs.jsonl")
    ]
    for file in sorted(files):
        name, _, variant = file.name.removesuffix(records.SUFFIX).partition("-")
        module = config_file.load_module(f"{ROOT}/configs/{name}.py")
        config = module.get_config(variant)
        for run in find([file]):
            config.optimizer.learning_rate = run.rate
            files = {"config.json": {"config": run_config.as_json(config)}}
            today = records.RecordedRun(run.folder, files, config, run.data)
            assert dict(run.settings()) == dict(today.settings()), run.folder


def verdict(*numbers):
    """One whose speed has a value and an interval."""
    return verdicts.Verdict(None, {"speed": verdicts.Number(*numbers)})


def drawn(function, *arguments):
    """The axes of a picture that a function draws."""
    with mock.patch.object(plot, "save") as save:
        function(*arguments, "stem")
    (fig, _), _ = save.call_args
    plot.plt.close(fig)
    return fig.axes[0]


def test_shares_are_drawn_with_intervals_and_answers_with_their_words():
    """A line at 100 % comes first, then an interval and a point for each number."""
    fast = verdict(0.5, 0.4, 0.6)
    row = verdicts.Row(CLAIMS[0], "data", {"same_rate": fast})
    _, interval, point = drawn(forest.draw, [row]).lines[:3]
    assert interval.get_xdata() == pytest.approx([40, 60])
    assert point.get_xdata() == [50]
    slow = verdict(1.5, 1.4, 1.6)
    answers = {
        "reproduced, made data": verdicts.Answer(claims.PLAN[0], fast, 0.01, True),
        "open": verdicts.Answer(claims.PLAN[2], fast, 0.5, False),
        "not run": verdicts.Answer(claims.PLAN[3], fast, None, False),
        "contradicted": verdicts.Answer(claims.PLAN[5], slow, 0.01, False),
    }
    ax = drawn(forest.draw_answers, list(answers.values()))
    assert [text.get_text() for text in ax.texts] == list(answers)
    assert [list(line.get_xdata()) for line in ax.lines[2::2]] == [[50], [50], [150]]
