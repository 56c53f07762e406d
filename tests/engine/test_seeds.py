"""Several seeds in one run: each equals its own run."""

import functools
import operator

import jax
import numpy as np
import pytest

from lnrepro.engine import seeds, train, workdir
from tests.engine import toy
from tests.engine.toy import config, final_state, records

pytestmark = pytest.mark.usefixtures("toy_data")


@pytest.mark.parametrize("steps_per_call", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_each_seed_equals_its_own_run(tmp_path, steps_per_call):
    changes = {"steps_per_call": steps_per_call, "optimizer__clip": 1.0}
    c = config(seeds=2, seed=5, **changes)
    train.train(c, tmp_path / "all")
    whole = final_state(tmp_path / "all", c).state.vars
    for i, seed in enumerate((5, 6)):
        own = config(seed=seed, **changes)
        train.train(own, tmp_path / str(seed))
        of_seed = jax.tree.map(operator.itemgetter(i), whole)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
        jax.tree.map(close, of_seed, final_state(tmp_path / str(seed), own).state.vars)
        pairs = zip(
            records(tmp_path / str(seed)), records(tmp_path / "all"), strict=True
        )
        for mine, together in pairs:
            assert mine["step"] == together["step"]
            for name in mine.keys() - {"step", "epoch", "data"}:
                np.testing.assert_allclose(
                    together[f"{name}/seed{seed}"], mine[name], rtol=1e-4
                )
    last = next(r for r in records(tmp_path / "all")[::-1] if "test/error" in r)
    of_seeds = [last[f"test/error/seed{seed}"] for seed in (5, 6)]
    np.testing.assert_allclose(last["test/error"], np.mean(of_seeds))


def test_a_seed_may_lack_a_number_that_the_first_has(tmp_path, monkeypatch):
    """Such as the step at which an error was first below a limit."""
    made = []

    def evaluate(real, vars, name):
        made.append(name)
        found = real(vars, name)
        # Seed 0 is evaluated before seed 1.
        extra = {"reached": 3.0} if len(made) % 2 else {"failed": 1.0}
        return found._replace(scalars={**found.scalars, **extra})

    toy.change(monkeypatch, evaluate=evaluate)
    numbers = train.train(config(seeds=2, steps=10, evals__picture="never"), tmp_path)
    assert numbers["test/reached/seed0"] == 3.0
    assert numbers["test/failed/seed1"] == 1.0
    # A mean over some of the seeds would not compare with others.
    assert not {"test/reached", "test/reached/seed1", "test/failed"} & numbers.keys()
    assert {"test/error", "best test/error"} <= numbers.keys()


def test_pictures_of_each_seed_are_kept_apart(tmp_path):
    train.train(config(seeds=2, steps=2), tmp_path)
    folder = tmp_path / "artifacts"
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*.*")}
    of_seeds = {f"seed{s}/{n}" for s in (0, 1) for n in ("square.png", "note.html")}
    assert found == {"curves.png", *of_seeds}


def test_batches_of_different_lengths_are_padded_to_the_longest():
    streams = [iter([{"t": np.full((2, n), n), "n": np.full(2, n)}]) for n in (3, 5)]
    (batch,) = seeds.stacked(streams)
    assert batch["t"].shape == (2, 2, 5)
    np.testing.assert_array_equal(batch["t"][0, 0], [3, 3, 3, 0, 0])
    np.testing.assert_array_equal(batch["n"], [[3, 3], [5, 5]])


def test_names():
    assert workdir.default(config(seeds=3, seed=4), "paper").name.endswith("seed4to6")
    # Metrics at a length or at a rank are no seeds.
    named = {"test/error/seed12": 1.0, "test/error": 2.0, "valid/5": 3.0}
    assert seeds.without_single(named).keys() == {"test/error", "valid/5"}
