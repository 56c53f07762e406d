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
from scripts.paper import claims, page, picture, records, shares, tables, verdicts
from scripts.paper import own as own_curves
from scripts.paper.axes import FIGURES
from scripts.paper.records import find, of_figure
from tests.runs import ROOT


def write_run(
    folder,
    experiment,
    norm,
    seed,
    records,
    data="binarized_mnist",
    fingerprint=None,
    **config,
):
    folder.mkdir(parents=True)
    fingerprint = fingerprint or paper_results.FINGERPRINTS.get(
        data, f"{data}/1.0.0/abc"
    )
    about = {
        "config": {
            "experiment": experiment,
            "norm": norm,
            "seed": seed,
            "batch_size": 128,
            "data": {"name": data},
        }
        | config,
        "data": {"name": data, "fingerprint": fingerprint},
        "command": ["main.py", f"--config.norm={norm}"],
        "versions": {"jax": "0.10"},
        "git": "0123456",
        "devices": ["cpu:cpu"],
    }
    (folder / "config.json").write_text(json.dumps(about))
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(r | {"data": data}) + "\n" for r in records)
    )


def bounds(values):
    return [
        {"step": 390 * (i + 1), "epoch": i + 1.0, "test/bound_binarized_mnist": v}
        for i, v in enumerate(values)
    ]


@pytest.fixture
def draw_runs(tmp_path):
    """Two seeds of LN, and two of the baseline trained as one run."""
    ours = "experiments.draw"
    write_run(tmp_path / "runs/a", ours, "layer_cell", 0, bounds([120, 95, 90, 85]))
    write_run(
        tmp_path / "runs/b",
        ours,
        "layer_cell",
        1,
        bounds([130, 97, 92, 87]),
        # How the steps are computed makes no curve of its own.
        steps_per_call=4,
        pallas=True,
    )
    both = [
        {
            "step": r["step"],
            "epoch": r["epoch"],
            "test/bound_binarized_mnist": r["test/bound_binarized_mnist"] + 0.5,
        }
        | {
            f"test/bound_binarized_mnist/seed{s}": r["test/bound_binarized_mnist"] + s
            for s in (3, 4)
        }
        for r in bounds([117, 100, 95, 90])
    ]
    write_run(tmp_path / "runs/c", ours, "none", 3, both, seeds=2)
    return tmp_path / "runs"


def test_curves_are_medians_over_seeds_with_their_range(draw_runs):
    figure = FIGURES[4]
    ((_, lines, _),) = picture.curves_of(figure, of_figure(find([draw_runs]), figure))
    base, ours = lines
    assert (base.norm, base.seeds) == ("none", (3, 4))
    assert (ours.norm, ours.seeds) == ("layer_cell", (0, 1))
    np.testing.assert_allclose(ours.x, [1, 2, 3, 4])
    np.testing.assert_allclose(ours.median, [125, 96, 91, 86])
    np.testing.assert_allclose(
        [ours.low, ours.high], [[120, 95, 90, 85], [130, 97, 92, 87]]
    )
    np.testing.assert_allclose(base.median, [120.5, 103.5, 98.5, 93.5])


def test_sentences_and_shares_are_those_of_the_comparison(draw_runs, tmp_path):
    for name, values in (("none3", [117, 100, 95, 90]), ("none4", [118, 101, 96, 91])):
        seed = int(name[-1]) - 3
        write_run(
            tmp_path / name,
            "experiments.draw",
            "none",
            seed,
            bounds(values),
            steps=1560,
        )
    for name in "ab":
        config = draw_runs / name / "config.json"
        about = json.loads(config.read_text())
        about["config"]["steps"] = 1560
        config.write_text(json.dumps(about))
    figure = FIGURES[4]
    runs = find(
        [draw_runs / "a", draw_runs / "b", tmp_path / "none3", tmp_path / "none4"]
    )
    rows = verdicts.of_runs(runs, claims.of_figure(figure))
    speed, end = verdicts.sentences(rows)
    # The mean of none is best at the last step, 90.5. That of LN is 91 one before.
    assert "layer_cell against none" in speed
    assert ": 100 % (same_rate, binarized_mnist, 2 seeds)." in speed
    assert ": -4.5 (same_rate, binarized_mnist, 2 seeds)." in end
    assert shares.draw(figure, rows, tmp_path / "figure4-shares")
    with open(tmp_path / "figure4-shares.csv", newline="") as file:
        points = list(csv.DictReader(file))
    assert [(p["step"], p["share"]) for p in points] == [
        ("390", "2"),
        ("780", "1"),
        ("1170", "1"),
        ("1560", "1"),
    ]
    assert {p["norm"] + p["other"] + p["protocol"] for p in points} == {
        "layer_cellnonesame_rate"
    }
    assert (tmp_path / "figure4-shares.svg").exists()
    assert not shares.draw(figure, [], tmp_path / "none")


def test_each_protocol_has_panels_of_its_own(tmp_path):
    """Runs of the small size with their own rates, and with the common one."""
    own = {"none": 3e-3, "layer_cell": 3e-3}
    for norm, rate in own.items():
        for seed, other in ((0, rate), (0, 1e-3), (0, 1e-2)):
            write_run(
                tmp_path / f"{norm}-{other}",
                "experiments.draw",
                norm,
                seed,
                [{"step": 9000, "epoch": 1.0, "test/bound_binarized_mnist": other}],
                batch_size=64,
                steps=9000,
                optimizer={"learning_rate": other},
            )
    runs = find([tmp_path])
    panels = picture.curves_of(FIGURES[4], runs)
    assert "Not drawn: 2 of neither protocol." in page.caption(FIGURES[4], runs)
    assert [panel.panel.title for panel in panels] == ["tuned", "same_rate"]
    for (_, lines, _), rate in zip(panels, (3e-3, 1e-3), strict=True):
        assert [(line.norm, line.median[0]) for line in lines] == [
            ("none", rate),
            ("layer_cell", rate),
        ]


def test_runs_with_other_settings_are_not_averaged(draw_runs):
    write_run(
        draw_runs / "d",
        "experiments.draw",
        "none",
        0,
        bounds([99]),
        optimizer={"learning_rate": 3e-4},
    )
    figure = FIGURES[4]
    ((_, lines, _),) = picture.curves_of(figure, of_figure(find([draw_runs]), figure))
    assert sorted((line.norm, line.note) for line in lines) == [
        ("layer_cell", ""),
        ("none", ""),
        ("none", "learning_rate 0.0003"),
    ]


@pytest.mark.parametrize("name", ["binarized_mnist", "coco_captions"])
def test_other_data_of_the_same_name_is_other_data(tmp_path, name):
    """Two fingerprints make two data sets, also where none is known to be official."""
    own = f"{name}/1.0.0/0123456789abcdef"
    write_run(tmp_path / "a", "experiments.draw", "none", 0, bounds([99]), data=name)
    write_run(
        tmp_path / "b",
        "experiments.draw",
        "none",
        1,
        bounds([98]),
        data=name,
        fingerprint=own,
    )
    official, other = find([tmp_path])
    assert other.data == f"{name} 01234567"
    if name == "binarized_mnist":
        assert official.data == name
        ((_, lines, _),) = picture.curves_of(FIGURES[4], [official, other])
        assert [(line.data, line.seeds) for line in lines] == [
            ("binarized_mnist", (0,)),
            ("binarized_mnist 01234567", (1,)),
        ]
        text = page.caption(FIGURES[4], [other])
        assert "not to be compared" in text
    else:
        assert official.data == f"{name} abc"


def figures(*flags) -> tuple[int, str, str]:
    """Run the command in this process: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["figures.py", *map(str, flags)])
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with argv, streams[0], streams[1], pytest.raises(SystemExit) as e:
        ended(script.main, "drawing figures")
    return e.value.code or 0, out.getvalue(), err.getvalue()


def test_the_command_writes_pictures_points_and_the_page(draw_runs, tmp_path):
    small = [{"step": 11, "epoch": 1.0, "train/nll": 1.5, "test/error": 0.4}]
    write_run(draw_runs / "m", "experiments.mnist", "layer", 0, small, "digits")
    out = tmp_path / "out"
    code, said, err = figures(draw_runs, "--out", out)
    assert (code, err) == (0, "")
    assert "figure 4: 3 runs, without weight" in said
    assert (
        "figure 2: no runs of experiments.attentive_reader; python scripts/sweep.py "
        "configs/attentive_reader.py" in said
    )
    names = {p.name for p in out.iterdir()}
    assert names == {
        "index.html",
        "verdicts.md",
        *(f"figure{n}.{kind}" for n in (4, 6) for kind in ("png", "svg", "csv")),
        *(f"table{n}.{kind}" for n in (1, 2, 3) for kind in ("png", "svg", "md")),
    }
    rows = list(csv.DictReader((out / "figure4.csv").open()))
    assert len(rows) == 16
    assert {(r["norm"], r["seed"]) for r in rows} == {
        ("layer_cell", "0"),
        ("layer_cell", "1"),
        ("none", "3"),
        ("none", "4"),
    }
    page = (out / "index.html").read_text()
    assert "--config=configs/draw.py:paper --config.norm=weight" in page
    assert paper_results.FINGERPRINTS["binarized_mnist"] in page
    assert "commit 0123456" in page
    assert "http" not in page.replace("https://", "").partition("<body>")[0]
    assert (
        "not to be compared with its curves"
        in page[page.index("Figure 6") : page.index("Table 1")]
    )
    assert (
        "not to be compared with its curves"
        not in page[page.index("id='figure4'") : page.index("id='figure6'")]
    )


def test_any_metric_of_any_experiment_is_drawn_without_the_papers_axes(tmp_path):
    root = tmp_path / "runs"
    for seed, values in enumerate(([300, 200], [320, 180], [310, 150])):
        records = [{"step": 1, "epoch": 0.1, "train/nll": 3.0}]
        records += [
            {"step": 10 * (i + 1), "epoch": i + 1.0, "valid/perplexity": value}
            for i, value in enumerate(values)
        ]
        write_run(root / f"l{seed}", "mine.language", "rms", seed, records, "books")
    write_run(root / "d", "experiments.draw", "none", 0, bounds([90]))
    other = [{"step": 5, "epoch": 1.0, "valid/perplexity": 99.0}]
    write_run(root / "o", "experiments.skip_thoughts", "none", 0, other, "bookcorpus")
    out = tmp_path / "out"
    code, said, err = figures(root, "--out", out, "--metric", "valid/perplexity")
    assert (code, err) == (0, "")
    assert "valid/perplexity: 4 runs" in said
    names = {path.name for path in out.iterdir()}
    files = {f"valid_perplexity.{kind}" for kind in ("png", "svg", "csv", "md")}
    assert names == files | {"index.html"}
    rows = list(csv.DictReader((out / "valid_perplexity.csv").open()))
    points = {(r["panel"], r["norm"], r["seed"], r["step"], r["value"]) for r in rows}
    assert len(points) == len(rows) == 7
    assert ("language", "rms", "2", "20", "150") in points
    assert ("skip_thoughts", "none", "0", "5", "99") in points
    page = (out / "index.html").read_text()
    assert "valid/perplexity: median and range over seeds. Data: bookcorpus" in page
    picture = (out / "valid_perplexity.svg").read_text()
    for text in (page.partition("<h2")[2], picture):
        assert "aper's" not in text
    code, _, err = figures(root, "--out", out, "--metric", "valid/perplexty")
    assert code == 2
    assert "no run has recorded the metric 'valid/perplexty'; did you mean" in err
    assert len(err.splitlines()) == 1


def test_table_of_a_metric(tmp_path):
    """Norms are compared at equal settings; numbers are those of the definition."""
    steps = (10, 20, 30, 40)
    accuracies = {
        ("none", 0.1): ([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.6]),
        ("rms", 0.1): ([0.2, 0.5, 0.6, 0.7], [0.2, 0.5, 0.6, 0.9]),
        ("rms", 0.2): ([0.0, 0.0, 0.0, 0.1], [0.0, 0.0, 0.0, 0.3]),
    }
    for (norm, rate), of_seeds in accuracies.items():
        for seed, values in enumerate(of_seeds):
            records = [
                {"step": step, "epoch": 1.0, "valid/accuracy": value}
                for step, value in zip(steps, values, strict=True)
            ]
            optimizer = {"name": "adam", "learning_rate": rate}
            folder = tmp_path / "runs" / f"{norm}{rate}{seed}"
            write_run(
                folder,
                "mine.a",
                norm,
                seed,
                records,
                "d",
                optimizer=optimizer,
                steps=40,
            )
    out = tmp_path / "out"
    flags = ["--metric", "valid/accuracy", "--best", "max"]
    code, _, err = figures(tmp_path / "runs", "--out", out, *flags)
    assert (code, err) == (0, "")
    assert (out / "valid_accuracy.md").read_text().splitlines()[2:] == [
        "| learning_rate 0.1 | none | 2 | 0.5 +- 0.141 |  |  |",
        # The mean of rms at step 20 is the best of none, 0.5 at step 40.
        "| learning_rate 0.1 | rms | 2 | 0.8 +- 0.141 | 50 % | +0.3 |",
        "| learning_rate 0.2 | rms | 2 | 0.2 +- 0.141 |  |  |",
    ]
    assert "0.8 +- 0.141" in (out / "index.html").read_text()


def test_an_experiment_of_ones_own_is_drawn_by_its_curves(tmp_path):
    """Norms lie over one another, seeds are a band, and the page begins with it."""
    curves = [["error", ["valid/error", "test/error"], "log"]]
    for norm, ends in (("none", (0.5, 0.3)), ("layer", (0.2, 0.4))):
        for seed, end in enumerate(ends):
            values = [
                {"step": step, "epoch": 1.0, "valid/error": value, "test/error": end}
                for step, value in ((10, 0.9), (20, end))
            ]
            folder = tmp_path / "runs" / f"{norm}{seed}"
            write_run(folder, "mine.linear", norm, seed, values, "d", curves=curves)
    write_run(tmp_path / "runs/d", "experiments.draw", "none", 0, bounds([90]))
    (own,) = own_curves.of_experiments(find([tmp_path / "runs"])).values()
    figure = own_curves.figure_of_curves("mine.linear", own)
    valid, test = picture.curves_of(figure, own)
    assert (valid.panel.metric, test.panel.metric) == ("valid/error", "test/error")
    assert valid.panel.yscale == "log"
    ends = {c.norm: (c.low[-1], c.median[-1], c.high[-1]) for c in valid.curves}
    assert ends["none"] == pytest.approx((0.3, 0.4, 0.5))
    assert ends["layer"] == pytest.approx((0.2, 0.3, 0.4))
    out = tmp_path / "out"
    code, said, err = figures(tmp_path / "runs", "--out", out)
    assert (code, err) == (0, "")
    assert "linear: 4 runs" in said.splitlines()
    files = {path.name for path in out.iterdir()}
    assert {"linear.png", "linear.svg", "linear.csv"} <= files
    rows = list(csv.DictReader((out / "linear.csv").open()))
    assert len(rows) == 16
    titles = re.findall(r"<h2 id='(\w+)'", (out / "index.html").read_text())
    assert titles[:2] == ["linear", "figure4"]
    assert titles[-1] == "verdicts"


def test_paper_numbers_stand_beside_its_own_data_only(draw_runs, tmp_path):
    write_run(
        tmp_path / "other/x", "experiments.draw", "none", 0, [], "binarized_digits"
    )
    figure = FIGURES[4]
    long = tmp_path / "long/y"
    write_run(long, "experiments.draw", "none", 0, bounds(np.linspace(99, 82, 100)))
    for runs, expected in (
        (find([long]), True),
        (find([draw_runs]), False),
    ):  # four epochs end early on an axis of 100
        ((_, lines, _),) = picture.curves_of(figure, runs)
        assert picture.on_the_papers_axes(figure, lines) is expected
    assert not picture.on_the_papers_axes(figure, [])


@pytest.mark.parametrize(
    ("outlier", "widens"), [(0, False), (50, False), (80, True), (99, True)]
)
def test_only_the_end_of_a_curve_widens_the_papers_range(tmp_path, outlier, widens):
    values = np.linspace(99, 82, 100)
    values[outlier] = 190
    write_run(tmp_path / "y", "experiments.draw", "none", 0, bounds(values))
    figure = FIGURES[4]
    ((panel, lines, _),) = picture.curves_of(figure, find([tmp_path / "y"]))
    _, ax = picture.plt.subplots()
    picture._set_limits(ax, figure, panel, lines)
    low, high = ax.get_ylim()
    picture.plt.close()
    assert low == 80
    assert high == 100 if not widens else high > 190


def test_table_1_is_the_papers():
    assert [row[1:] for row in tables.invariances().rows] == [
        ("Invariant", "No", "Invariant", "Invariant", "Invariant", "No"),
        ("Invariant", "No", "Invariant", "No", "No", "No"),
        ("Invariant", "Invariant", "No", "Invariant", "No", "Invariant"),
    ]


def test_rows_of_tables_2_and_3(tmp_path):
    columns = paper_results.TABLE_2_COLUMNS
    last = {"step": 9, "epoch": 1.0} | {
        f"final/{c}": i + 0.25 for i, c in enumerate(columns)
    }
    write_run(
        tmp_path / "oe",
        "experiments.order_embeddings",
        "layer",
        0,
        [last],
        "scenes",
        model={"similarity": "order"},
        evaluation={"fold": 50, "folds": 1},
    )
    scores = {task: i + 0.5 for i, task in enumerate(paper_results.TABLE_3_COLUMNS)}
    records = [
        {"step": s, "epoch": 0.0} | scores | {"mr/accuracy": 70.0 + s} for s in (1, 2)
    ] + [{"step": 3, "epoch": 0.0}]
    write_run(
        tmp_path / "st",
        "experiments.skip_thoughts",
        "none",
        0,
        records,
        "gutenberg",
        model={"units": 256},
    )
    generated = [
        {"step": 7, "epoch": 0.0}
        | {f"story_{task}": score for task, score in scores.items()}
    ]
    write_run(
        tmp_path / "tt",
        "experiments.skip_thoughts",
        "layer",
        0,
        generated,
        "stories",
        model={"units": 128},
    )
    runs = find([tmp_path])
    two, three = tables.order_embeddings(runs), tables.skip_thoughts(runs)
    assert two.rows[-1] == (
        "OE + LN (seed 0)",
        "scenes, 1 x 50 images, 9 steps",
        "0.2",
        "1.2",
        "2.2",
        "3.2",
        "4.2",
        "5.2",
        "6.2",
        "7.2",
    )
    assert three.rows[-2][1:6] == (
        "gutenberg; 256-d, 2 steps",
        "0.500",
        "1.500",
        "2.500",
        "72.0",
    )
    assert three.rows[-1][1:6] == (
        "stories and generated tasks; 128-d, 7 steps",
        "0.500",
        "1.500",
        "2.500",
        "3.5",
    )
    (_, (curve,), _), *_ = picture.curves_of(
        FIGURES[3], of_figure(runs[-1:], FIGURES[3])
    )
    assert (curve.data, curve.points) == ("stories", ((0, 7 / 50_000, 50.0),))
    assert "not to be compared" in two.markdown()
    assert two.rows[3][2] == "48.5"


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (["last", "last"], "Ties count against the model."),
        (["last", "sorted"], "Ties count against the model unless a row says"),
        (["sorted", "sorted"], None),
    ],
)
def test_table_2_says_how_ties_count(tmp_path, rules, says):
    scores = {f"final/{column}": 1.0 for column in paper_results.TABLE_2_COLUMNS}
    for seed, rule in enumerate(rules):
        write_run(
            tmp_path / str(seed),
            "experiments.order_embeddings",
            "none",
            seed,
            [{"step": 9, "epoch": 1.0} | scores],
            "scenes",
            model={"similarity": "order"},
            evaluation={"fold": 50, "folds": 1, "ties": rule},
        )
    table = tables.order_embeddings(find([tmp_path]))
    for row, rule in zip(table.rows[-len(rules) :], rules, strict=True):
        assert ("ties in the order of the data" in row[1]) == (rule == "sorted")
    if says:
        assert says in table.note
    else:
        assert "count against" not in table.note


@pytest.mark.parametrize("number", FIGURES)
def test_kept_figures_are_those_of_the_kept_runs(tmp_path, number):
    results, figure = ROOT / "experiments/results", FIGURES[number]
    kept = results / f"figures/figure{number}.csv"
    own = of_figure(find([results / "runs"]), figure)
    assert bool(own) == kept.exists()
    if own:
        assert {run.config["norm"] for run in own} == set(figure.curves)
        picture.write_points(
            figure, picture.curves_of(figure, own), tmp_path / "points.csv"
        )
        assert (tmp_path / "points.csv").read_text() == kept.read_text()


def test_kept_verdicts_are_those_of_the_kept_runs():
    results = ROOT / "experiments/results/small"
    text = verdicts.markdown(verdicts.of_runs(find([results]), claims.CLAIMS))
    assert text == (results / "verdicts.md").read_text()
    assert text in (ROOT / "experiments/README.md").read_text()


PAGES = ["README.md", "experiments/results/small.md", "docs/should-i-normalise.md"]


@pytest.mark.parametrize("page", PAGES)
def test_shares_of_the_steps_on_a_page_are_those_of_the_verdicts(page):
    known = (ROOT / "experiments/results/small/verdicts.md").read_text()
    text = (ROOT / page).read_text()
    for share, low, high in re.findall(
        r"(\d+) % \((\d+) to (\w+)\) (?:of|\| better)", text
    ):
        number = f"{share} % ({low} % to {high}"
        assert f"{number} %)" in known or f"{number})" in known, number


@pytest.mark.parametrize("number", [2, 3])
def test_kept_tables_are_those_of_the_kept_runs(number):
    results = ROOT / "experiments/results"
    table = (tables.order_embeddings, tables.skip_thoughts)[number - 2](
        find([results / "runs"])
    )
    assert table.markdown() == (results / f"figures/table{number}.md").read_text()


def test_bad_input(tmp_path):
    code, _, err = figures(tmp_path / "none", "--out", tmp_path / "out")
    assert (code, err) == (
        2,
        f"error: {tmp_path / 'none'}: there is no run directory (with a config.json) "
        "at or below it, and no file of runs (*.runs.jsonl)\n",
    )
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/config.json").write_text("{}")
    code, _, err = figures(tmp_path / "odd", "--out", tmp_path / "out")
    assert code == 2
    assert "not a run's config.json (KeyError)" in err
    assert not (tmp_path / "out").exists()


def test_a_broken_run_is_named_and_the_rest_is_drawn(tmp_path, capsys):
    for seed in (0, 1):
        write_run(
            tmp_path / f"seed{seed}",
            "experiments.draw",
            "none",
            seed,
            bounds([90.0, 85.0 + seed]),
        )
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"config": 3}')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "config.json").write_text("[" * 100_000)
    found = find([tmp_path])
    assert [run.config.seed for run in found] == [0, 1]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"left out: {broken / 'config.json'}: not a run's")
    assert len(lines) == 2


def test_the_same_seed_in_two_folders_counts_once(tmp_path, capsys):
    for name, values in (("short", [90.0]), ("long", [90.0, 85.0])):
        write_run(tmp_path / name, "experiments.draw", "none", 0, bounds(values))
    (run,) = find([tmp_path])
    assert run.folder.name == "long"
    assert capsys.readouterr().err == (
        f"left out: {tmp_path / 'short'}: the config and the seed of "
        f"{tmp_path / 'long'}\n"
    )


def test_records_that_the_trainer_set_aside_are_no_run(tmp_path, capsys):
    write_run(tmp_path / "run", "experiments.draw", "none", 0, bounds([90.0]))
    aside = tmp_path / "run" / "without-checkpoint-1"
    write_run(aside, "experiments.draw", "none", 1, bounds([99.0]))
    assert [run.folder.name for run in find([tmp_path])] == ["run"]
    assert capsys.readouterr().err == ""


def test_a_caption_names_the_papers_data_where_the_paper_does(tmp_path):
    record = {"step": 9, "epoch": 1.0, "test/error": 0.1}
    write_run(tmp_path / "run", "experiments.convnet", "none", 0, [record], "mnist")
    caption = page.caption(FIGURES[7], find([tmp_path]))
    assert caption.endswith("Data: mnist; 9 steps. The paper names no data.")


def test_no_cell_of_the_points_is_a_formula(tmp_path):
    records = [{"step": 390, "epoch": 1.0, "test/bound_=1+1": -90.0}]
    write_run(tmp_path / "run", "experiments.draw", "none", 0, records, data="=1+1")
    panels = picture.curves_of(FIGURES[4], find([tmp_path]))
    picture.write_points(FIGURES[4], panels, tmp_path / "points.csv")
    with open(tmp_path / "points.csv", newline="") as file:
        _, (*_, data, _, _, value) = csv.reader(file)
    # A number may begin with a sign.
    assert (data, value) == ("'=1+1", "-90")


@pytest.fixture
def packed(draw_runs, tmp_path):
    """The runs of `draw_runs`, finished, in a file."""
    for config in draw_runs.rglob("config.json"):
        about = json.loads(config.read_text())
        about["config"]["steps"] = 4 * 390
        config.write_text(json.dumps(about))
    file = tmp_path / "packed" / "draw.runs.jsonl"
    records.main([str(draw_runs), "--out", str(file)])
    return file


def test_packed_runs_are_the_runs(draw_runs, packed):
    fields = ("about", "records", "data", "evaluation", "step")
    apart, together = find([draw_runs]), find([packed.parent])
    for own, other in zip(apart, together, strict=True):
        assert own.folder.name == other.folder.name
        assert own.config.to_dict() == other.config.to_dict()
        assert all(getattr(own, name) == getattr(other, name) for name in fields)
    # The same runs, and those of the file itself, give the same bytes.
    before = packed.read_bytes()
    records.main([str(draw_runs), "--out", str(packed)])
    assert packed.read_bytes() == before


def test_what_diverged_and_all_commits_of_a_run_are_packed(draw_runs, packed):
    step = {"metric": "train/loss", "step": 5}
    (draw_runs / "a/diverged.json").write_text(json.dumps(step))
    lines = [json.dumps({"step": 5, "git": git}) for git in ("89abcde", "89abcde")]
    (draw_runs / "a/resumes.jsonl").write_text("\n".join(lines))
    records.main([str(draw_runs), "--out", str(packed.with_name("b.runs.jsonl"))])
    for path in (draw_runs, packed.with_name("b.runs.jsonl")):
        (run,) = [run for run in find([path]) if run.diverged]
        assert not run.finished
        assert run.folder.name == "a"
        assert run.about["git"] == "0123456, 89abcde"


def test_unfinished_runs_are_not_packed(draw_runs, packed, capsys):
    config = draw_runs / "a/config.json"
    about = json.loads(config.read_text())
    about["config"]["steps"] = 10_000
    config.write_text(json.dumps(about))
    records.main([str(draw_runs), "--out", str(packed.parent / "b.runs.jsonl")])
    shown = capsys.readouterr()
    assert shown.err == f"left out: {draw_runs / 'a'}: it is not finished\n"
    assert "2 runs are in" in shown.out


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"run": 3}', '{"run": "a", "config.json": {}}', "[" * 10**5]
)
def test_a_broken_line_of_a_file_is_named_and_the_rest_is_read(packed, capsys, line):
    packed.write_text(line + "\n" + packed.read_text())
    assert len(find([packed])) == 3
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"left out: {packed}:1: not the records of a run (")


def test_records_are_packed_into_files_of_their_own_name_only(draw_runs, tmp_path):
    with pytest.raises(UserError, match=r"a name that ends in \.runs\.jsonl"):
        records.main([str(draw_runs), "--out", str(tmp_path / "draw.json")])


def test_a_field_that_an_earlier_version_lacks_is_not_set(draw_runs):
    """Otherwise a new field of the configs would part old runs from new ones."""
    config = draw_runs / "b/config.json"
    about = json.loads(config.read_text())
    about["config"]["decay"] = None
    config.write_text(json.dumps(about))
    ((_, lines, _),) = picture.curves_of(FIGURES[4], find([draw_runs]))
    assert [line.seeds for line in lines] == [(3, 4), (0, 1)]


@pytest.mark.parametrize("value", [None, float("nan")])
def test_numbers_that_were_not_finite_are_no_points(tmp_path, value):
    values = bounds([90.0, value, 85.0])
    write_run(tmp_path / "run", "experiments.draw", "none", 0, values)
    ((_, (curve,), _),) = picture.curves_of(FIGURES[4], find([tmp_path]))
    assert list(curve.x) == [1.0, 3.0]
