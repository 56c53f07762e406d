"""Figures and tables show what was recorded, and name what is missing."""

import contextlib
import csv
import io
import json
import re
import sys
from unittest import mock

import numpy as np
import pytest

from experiments import paper_results
from lnrepro.errors import UserError, ended
from scripts import figures as script
from scripts import page_sections
from scripts.paper import curves, forest, pages, plot, records, tables, verdicts
from scripts.paper.axes import FIGURES
from scripts.paper.claims import CLAIMS
from scripts.paper.records import find
from tests.runs import ROOT

DRAW, BOUND = "experiments.draw", "test/bound_binarized_mnist"


def write_run(folder, experiment, norm, seed, values, data="binarized_mnist", **more):
    """Write a run directory; the `values` are records without epoch and data."""
    folder.mkdir(parents=True)
    own = paper_results.FINGERPRINTS.get(data, f"{data}/1.0.0/abc")
    fingerprint = more.pop("fingerprint", own)
    config = {"experiment": experiment, "norm": norm, "seed": seed, "batch_size": 128}
    about = {
        "config": config | {"data": {"name": data}} | more,
        "data": {"name": data, "fingerprint": fingerprint},
        "command": ["main.py", f"--config.norm={norm}"],
        "git": "0123456",
    }
    (folder / "config.json").write_text(json.dumps(about))
    lines = [json.dumps({"epoch": 1.0, "data": data} | record) for record in values]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


def change_config(folder, **fields):
    path = folder / "config.json"
    about = json.loads(path.read_text())
    about["config"] |= fields
    path.write_text(json.dumps(about))


def bounds(values, name=BOUND):
    """One record of a test bound for each epoch."""
    return [
        {"step": 390 * i, "epoch": float(i), name: value}
        for i, value in enumerate(values, 1)
    ]


@pytest.fixture
def draw_runs(tmp_path):
    """Two seeds of LN, and two of the baseline trained as one run."""
    runs = tmp_path / "runs"
    write_run(runs / "a", DRAW, "layer_cell", 0, bounds([120, 95, 90, 85]))
    # How the steps are computed makes no curve of its own.
    how = {"steps_per_call": 4, "pallas": True}
    write_run(runs / "b", DRAW, "layer_cell", 1, bounds([130, 97, 92, 87]), **how)
    both = [
        {**mean, f"{BOUND}/seed3": mean[BOUND] - 0.5, f"{BOUND}/seed4": mean[BOUND] + 1}
        for mean in bounds([117, 100, 95, 90])
    ]
    write_run(runs / "c", DRAW, "none", 3, both, seeds=2)
    return runs


def lines_of(number, *paths):
    """The lines of the only panel of a figure."""
    (subplot,) = curves.of_figure(FIGURES[number], find(paths))
    return subplot.lines


def seeds_of(line):
    return {row[4] for row in line.points}


def figures(*flags) -> tuple[int, str, str]:
    """Run the command in this process: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["figures.py", *map(str, flags)])
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with argv, streams[0], streams[1], pytest.raises(SystemExit) as e:
        ended(script.main, "drawing figures")
    return e.value.code or 0, out.getvalue(), err.getvalue()


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_curves_are_medians_over_seeds_with_their_range(draw_runs):
    base, ours = lines_of(4, draw_runs)
    assert (base.label, seeds_of(base)) == ("Baseline", {3, 4})
    assert (ours.label, seeds_of(ours)) == ("LN", {0, 1})
    np.testing.assert_allclose(ours.x, [1, 2, 3, 4])
    np.testing.assert_allclose(ours.y, [125, 96, 91, 86])
    np.testing.assert_allclose(ours.low, [120, 95, 90, 85])
    np.testing.assert_allclose(ours.high, [130, 97, 92, 87])
    np.testing.assert_allclose(base.y, [117.25, 100.25, 95.25, 90.25])


def test_each_protocol_has_panels_of_its_own(tmp_path):
    """Runs of the small size with their own rates, and with the common one."""
    size = {"batch_size": 64, "steps": 9000}
    for norm in ("none", "layer_cell"):
        for rate in (3e-3, 1e-3, 1e-2):
            record, own = {"step": 9000, BOUND: rate}, {"learning_rate": rate}
            folder = tmp_path / f"{norm}-{rate}"
            write_run(folder, DRAW, norm, 0, [record], optimizer=own, **size)
    runs = find([tmp_path])
    panels = curves.of_figure(FIGURES[4], runs)
    assert "Not drawn: 2 of neither protocol." in curves.caption(FIGURES[4], runs)
    assert [panel.labels["title"] for panel in panels] == ["tuned", "same_rate"]
    for panel, rate in zip(panels, (3e-3, 1e-3), strict=True):
        assert [(line.label, line.y[0]) for line in panel.lines] == [
            ("Baseline", rate),
            ("LN", rate),
        ]


def test_runs_with_other_settings_are_not_averaged(draw_runs):
    rate = {"learning_rate": 3e-4}
    write_run(draw_runs / "d", DRAW, "none", 0, bounds([99]), optimizer=rate)
    # A field that an earlier version lacks is not set.
    change_config(draw_runs / "b", decay=None)
    assert sorted(line.label for line in lines_of(4, draw_runs)) == [
        "Baseline",
        "Baseline (learning_rate 0.0003)",
        "LN",
    ]


@pytest.mark.parametrize("name", ["binarized_mnist", "coco_captions"])
def test_other_data_of_the_same_name_is_other_data(tmp_path, name):
    """Two fingerprints make two data sets, also where none is known to be official."""
    own = f"{name}/1.0.0/0123456789abcdef"
    values = bounds([99], f"test/bound_{name}")
    write_run(tmp_path / "a", DRAW, "none", 0, values, name)
    write_run(tmp_path / "b", DRAW, "none", 1, values, name, fingerprint=own)
    first, other = find([tmp_path])
    is_official = name == "binarized_mnist"
    assert (first.data, other.data) == (
        name if is_official else f"{name} abc",
        f"{name} 01234567",
    )
    assert all(len(seeds_of(line)) == 1 for line in lines_of(4, tmp_path))
    assert "not to be compared" in curves.caption(FIGURES[4], [other])


def test_the_command_writes_pictures_points_and_the_page(draw_runs, tmp_path):
    small = [{"step": 11, "train/nll": 1.5, "test/error": 0.4}]
    write_run(draw_runs / "m", "experiments.mnist", "layer", 0, small, "digits")
    values = [{"step": s, "mine/error": e, "other": 1.0} for s, e in ((1, 3), (2, 2))]
    own = [["error", ["mine/error", "other"], "log"]]
    write_run(draw_runs / "o", "mine.linear", "rms", 0, values, "d", curves=own)
    out = tmp_path / "out"
    code, said, err = figures(draw_runs, "--out", out)
    assert (code, err) == (0, "")
    for line in ("figure 4: 3 runs, without weight", "linear: 1 run"):
        assert line in said.splitlines()
    files = [f"{n}.{kind}" for n in ("figure4", "figure6", "linear") for kind in KINDS]
    assert {path.name for path in out.iterdir()} == {
        *files,
        *("index.md", "verdicts.md", "table2.md", "table3.md"),
    }
    rows = rows_of(out / "figure4.csv")
    assert len(rows) == 16
    assert {row["norm"] + row["seed"] for row in rows} == {
        *("layer_cell0", "layer_cell1", "none3", "none4")
    }
    assert [row["value"] for row in rows_of(out / "linear.csv")] == ["3", "2", "1", "1"]
    page = (out / "index.md").read_text()
    for text in ("scripts/sweep.py configs/draw.py:paper", "(figure4.png)", "digits"):
        assert text in page
    for name in re.findall(r"\]\((\S+)\)", page):
        assert (out / name).exists()


KINDS = ("png", "svg", "csv")


def test_any_metric_of_any_experiment_is_drawn(tmp_path):
    """Norms are compared at equal settings; numbers are those of the definition."""
    metric = "valid/accuracy"
    values = {
        ("none", 0.1): ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.6]),
        ("rms", 0.1): ([0.2, 0.5, 0.6, 0.7], [0.2, 0.5, 0.6, 0.9]),
        ("rms", 0.2): ([0.0, 0.0, 0.0, 0.1], [0.0, 0.0, 0.0, 0.3]),
    }
    for (norm, rate), of_seeds in values.items():
        for seed, curve in enumerate(of_seeds):
            found = [{"step": 10 * i, metric: y} for i, y in enumerate(curve, 1)]
            folder = tmp_path / "runs" / f"{norm}{rate}{seed}"
            more = {"steps": 40, "optimizer": {"learning_rate": rate}}
            write_run(folder, "mine.a", norm, seed, found, "d", **more)
    out = tmp_path / "out"
    flags = (tmp_path / "runs", "--out", out, "--best", "max", "--metric")
    code, _, err = figures(*flags, metric)
    assert (code, err) == (0, "")
    assert len(rows_of(out / "valid_accuracy.csv")) == 24
    assert (out / "valid_accuracy.md").read_text().splitlines()[2:] == [
        "| learning_rate 0.1 | none | 2 | 0.5 +- 0.141 |  |  |",
        # The mean of rms at step 20 is the best of none, 0.5 at step 40.
        "| learning_rate 0.1 | rms | 2 | 0.8 +- 0.141 | 50 % | +0.3 |",
        "| learning_rate 0.2 | rms | 2 | 0.2 +- 0.141 |  |  |",
    ]
    code, _, err = figures(*flags, "valid/acuracy")
    assert code == 2
    assert err.endswith("'valid/acuracy'; did you mean 'valid/accuracy'?\n")


def test_paper_numbers_stand_beside_its_own_data_only(draw_runs, tmp_path):
    values = np.linspace(99, 82, 100)
    write_run(tmp_path / "long", DRAW, "none", 0, bounds(values))
    other = bounds(values, "test/bound_digits")
    write_run(tmp_path / "other", DRAW, "none", 0, other, "digits")
    # Four epochs end early on an axis of 100.
    for path, expected in (("long", True), ("other", False), ("runs", False)):
        (panel,) = curves.of_figure(FIGURES[4], find([tmp_path / path]))
        assert bool(panel.printed) == bool(panel.frame) == expected


@pytest.mark.parametrize(("outlier", "widens"), [(50, False), (80, True)])
def test_only_the_end_of_a_curve_widens_the_papers_range(tmp_path, outlier, widens):
    values = np.linspace(99, 82, 100)
    values[outlier] = 190
    write_run(tmp_path / "y", DRAW, "none", 0, bounds(values))
    (panel,) = curves.of_figure(FIGURES[4], find([tmp_path / "y"]))
    with plot.plt.rc_context():
        _, ax = plot.plt.subplots()
        plot._draw(ax, panel)
        assert ax.get_ylim() == (80, 190 if widens else 100)
        plot.plt.close()


def test_rows_of_tables_2_and_3(tmp_path):
    columns = paper_results.TABLE_2_COLUMNS
    last = {"step": 9} | {f"final/{c}": i + 0.25 for i, c in enumerate(columns)}
    for seed, rule in enumerate(("last", "sorted")):
        more = {"model": {"similarity": "order"}}
        more["evaluation"] = {"fold": 50, "folds": 1, "ties": rule}
        run = "experiments.order_embeddings", "layer", seed, [last], "scenes"
        write_run(tmp_path / f"oe{seed}", *run, **more)
    scores = {task: i + 0.5 for i, task in enumerate(paper_results.TABLE_3_COLUMNS)}
    values = [{"step": s} | scores | {"mr/accuracy": 70.0 + s} for s in (1, 2)]
    run = "experiments.skip_thoughts", "none", 0, [*values, {"step": 3}], "gutenberg"
    write_run(tmp_path / "st", *run, model={"units": 256})
    generated = {"step": 7} | {f"story_{task}": y for task, y in scores.items()}
    run = "experiments.skip_thoughts", "layer", 0, [generated], "stories"
    write_run(tmp_path / "tt", *run, model={"units": 128})
    two, three = (TABLE(find([tmp_path]))[0] for TABLE, _ in tables.TABLES.values())
    numbers = " | ".join(f"{i}.2" for i in range(8))
    data = "scenes, 1 x 50 images, 9 steps"
    assert f"| OE + LN (seed 0) | {data} | {numbers} |" in two
    assert f"| OE + LN (seed 1) | {data}, ties in the order of the data |" in two
    assert "Ties count against the model unless a row says otherwise." in two
    assert "gutenberg; 256-d, 2 steps | 0.500 | 1.500 | 2.500 | 72.0 |" in three
    generated = "stories and generated tasks; 128-d, 7 steps | 0.500 | 1.500 | 2.500"
    assert f"{generated} | 3.5 |" in three
    panel = curves.of_figure(FIGURES[3], find([tmp_path / "tt"]))[0]
    assert (panel.lines[0].x, panel.lines[0].y) == (7 / 50_000, 50.0)


@pytest.fixture(scope="module")
def kept():
    """The sections of the pages, by the page and the name."""
    return {(page, name): text for page, name, text in pages.sections()}


def test_the_pages_have_the_numbers_of_the_kept_runs(kept):
    for (page, name), text in kept.items():
        section = page_sections.read(page, f"scripts.paper.pages: {name}")
        assert section == text.strip("\n"), name


@pytest.mark.parametrize("page", ["README.md", "docs/should-i-normalise.md"])
def test_shares_in_the_text_of_a_page_are_those_of_the_kept_runs(kept, page):
    """Such as "40 % (30 to 45)" and "37 % of the steps (17 to 55)"."""
    known = re.sub(r" ?%", "", "".join(kept.values()))
    written = re.compile("<!-- written by.*?<!-- end -->", re.DOTALL)
    text = written.sub("", (ROOT / page).read_text())
    quoted = re.findall(r"(\d+) %(?: of\s+the\s+steps)?\s+\((\d+) to (\w+)\)", text)
    assert quoted
    for share, low, high in quoted:
        assert f"{share} ({low} to {high})" in known


@pytest.mark.parametrize("number", FIGURES)
def test_kept_figures_are_those_of_the_kept_runs(tmp_path, number):
    results, figure = ROOT / "experiments/results", FIGURES[number]
    kept = results / f"figures/figure{number}.csv"
    found = find([results / "runs"])
    own = [run for run in found if run.experiment == figure.experiment]
    assert bool(own) == kept.exists()
    if own:
        assert {run.config["norm"] for run in own} == set(figure.curves)
        panels = curves.of_figure(figure, own)
        curves.write_points(figure, panels, tmp_path / "points.csv")
        assert (tmp_path / "points.csv").read_text() == kept.read_text()


@pytest.mark.parametrize("number", tables.TABLES)
def test_kept_tables_are_those_of_the_kept_runs(number):
    results = ROOT / "experiments/results"
    table, _ = tables.TABLES[number][0](find([results / "runs"]))
    assert table == (results / f"figures/table{number}.md").read_text()


def test_the_forest_plot_has_a_point_for_each_verdict_and_fills_the_significant(
    tmp_path,
):
    found = find([ROOT / "experiments/results/decay"])
    (row, _) = verdicts.of_runs(found, [c for c in CLAIMS if c.part == "Figure 5"])
    (verdict,) = row.verdicts.values()
    drawn = []
    with mock.patch.object(plot, "save", lambda fig, stem: drawn.append(fig)):
        for p in (0.04, 0.06):
            verdicts_of_row = {"same_rate": verdict._replace(p=p, value=0.5, low=0.4)}
            assert forest.draw([row._replace(verdicts=verdicts_of_row)], tmp_path)
    fills = []
    for fig in drawn:
        lines = [line for line in fig.axes[0].lines if list(line.get_xdata()) == [50]]
        fills += [line.get_markerfacecolor() for line in lines]
        plot.plt.close(fig)
    assert fills == ["C0", "white"]
    assert not forest.draw([], tmp_path)


def test_bad_input(tmp_path):
    code, _, err = figures(tmp_path / "none", "--out", tmp_path / "out")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "there is no run directory (with a config.json) at or below it" in err
    assert not (tmp_path / "out").exists()


def test_a_broken_run_is_named_and_the_rest_is_drawn(tmp_path, capsys):
    write_run(tmp_path / "run", DRAW, "none", 0, bounds([90.0]))
    # The trainer sets aside what was recorded before a start without a checkpoint.
    aside = tmp_path / "run" / "without-checkpoint-1"
    write_run(aside, DRAW, "none", 1, bounds([99.0]))
    for name, text in (("broken", '{"config": 3}'), ("deep", "[" * 100_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    assert [run.config.seed for run in find([tmp_path])] == [0]
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"left out: {tmp_path / 'broken/config.json'}: not a run's")
    assert str(tmp_path / "deep") in second


def test_the_same_seed_in_two_folders_counts_once(tmp_path, capsys):
    for name, values in (("short", [90.0]), ("long", [90.0, 85.0])):
        write_run(tmp_path / name, DRAW, "none", 0, bounds(values))
    (run,) = find([tmp_path])
    assert run.folder.name == "long"
    assert f"left out: {tmp_path / 'short'}: the config" in capsys.readouterr().err


@pytest.fixture
def packed(draw_runs, tmp_path):
    """The runs of `draw_runs`, finished, in a file."""
    for folder in draw_runs.iterdir():
        change_config(folder, steps=4 * 390)
    file = tmp_path / "packed" / "draw.runs.jsonl"
    records.main([str(draw_runs), "--out", str(file)])
    return file


def test_packed_runs_are_the_runs(draw_runs, packed):
    for own, other in zip(find([draw_runs]), find([packed]), strict=True):
        assert (own.folder.name, own.files) == (other.folder.name, other.files)
        assert own.config.to_dict() == other.config.to_dict()
    # The same runs, and those of the file itself, give the same bytes.
    before = packed.read_bytes()
    records.main([str(draw_runs), "--out", str(packed)])
    assert packed.read_bytes() == before


def test_what_diverged_and_all_commits_of_a_run_are_packed(draw_runs, packed, capsys):
    step = {"metric": "train/loss", "step": 5}
    (draw_runs / "a/diverged.json").write_text(json.dumps(step))
    resumed = json.dumps({"step": 5, "git": "89abcde"})
    (draw_runs / "a/resumes.jsonl").write_text(resumed)
    # Runs that are not finished are left out.
    change_config(draw_runs / "b", steps=10_000)
    file = packed.with_name("b.runs.jsonl")
    records.main([str(draw_runs), "--out", str(file)])
    assert "runs/b: it is not finished" in capsys.readouterr().err
    diverged, finished = find([file])
    assert (diverged.folder.name, diverged.diverged, diverged.finished) == (
        *("a", True, False),
    )
    assert diverged.files["config.json"]["git"] == "0123456, 89abcde"
    assert finished.finished
    with pytest.raises(UserError, match=r"a name that ends in \.runs\.jsonl"):
        records.main([str(draw_runs), "--out", str(file.with_suffix(".json"))])


@pytest.mark.parametrize("line", ["{", "[]", '{"run": "a", "config.json": {}}'])
def test_a_broken_line_of_a_file_is_named_and_the_rest_is_read(packed, capsys, line):
    packed.write_text(line + "\n" + packed.read_text())
    assert len(find([packed])) == 3
    (message,) = capsys.readouterr().err.splitlines()[-1:]
    assert message.startswith(f"left out: {packed}:1: not the records of a run (")


def test_numbers_that_were_not_finite_are_no_points(tmp_path):
    values = bounds([90.0, None, float("nan"), 85.0])
    write_run(tmp_path / "run", DRAW, "none", 0, values)
    (line,) = lines_of(4, tmp_path)
    assert list(line.x) == [1.0, 4.0]
