"""Several seeds in one run: each equals its own run."""

import functools
import json
import operator

import jax
import numpy as np
import pytest

from lnrepro.engine import seeds, train, train_step, workdir
from lnrepro.errors import UserError
from tests.engine import toy
from tests.engine.test_train import assert_same_bits, final_state, interrupt


@pytest.fixture(autouse=True)
def _no_data_set(monkeypatch):
    monkeypatch.setattr(train, "_data_identity", lambda config: ("toy/1", {}))


def config(**changes):
    c = toy.get_config()
    c.seeds = 1
    c.update_from_flattened_dict(changes)
    return c


def records(folder):
    return [
        json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_call", [1, 4])
def test_each_seed_equals_its_own_run(tmp_path, steps_per_call):
    changes = {"steps_per_call": steps_per_call, "optimizer.clip": 1.0, "seed": 5}
    c = config(seeds=3, **changes)
    train.train(c, tmp_path / "all")
    whole = final_state(tmp_path / "all", c).state
    for i, seed in enumerate((5, 6, 7)):
        own = config(**changes | {"seed": seed})
        train.train(own, tmp_path / str(seed))
        state = final_state(tmp_path / str(seed), own).state
        of_seed = jax.tree.map(operator.itemgetter(i), whole)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
        jax.tree.map(close, of_seed, state)
        for mine, together in zip(
            records(tmp_path / str(seed)), records(tmp_path / "all"), strict=True
        ):
            assert mine["step"] == together["step"]
            for name in mine.keys() - {"step", "epoch", "data"}:
                np.testing.assert_allclose(
                    together[f"{name}/seed{seed}"], mine[name], rtol=1e-4
                )
    last = records(tmp_path / "all")[-2]
    np.testing.assert_allclose(
        last["test/error"], np.mean([last[f"test/error/seed{s}"] for s in (5, 6, 7)])
    )


@pytest.mark.slow
def test_an_interrupted_run_of_several_seeds_ends_with_the_same_bits(
    tmp_path, monkeypatch
):
    c = config(seeds=2, steps_per_call=2)
    train.train(c, tmp_path / "whole")
    for at in (3, 17):
        with monkeypatch.context() as m:
            interrupt(m, at)
            with pytest.raises(KeyError):
                train.train(c, tmp_path / "broken")
    train.train(c, tmp_path / "broken")
    assert_same_bits(
        final_state(tmp_path / "whole", c).state,
        final_state(tmp_path / "broken", c).state,
    )
    assert records(tmp_path / "whole") == records(tmp_path / "broken")
    before = json.loads((tmp_path / "whole/results.json").read_text())
    again = train.evaluate(c, tmp_path / "broken")
    assert again["test/error/seed1"] == pytest.approx(before["test/error/seed1"])


def test_pictures_of_each_seed_are_kept_apart(tmp_path):
    train.train(config(seeds=2, steps=2), tmp_path)
    found = {
        p.relative_to(tmp_path / "artifacts").as_posix()
        for p in (tmp_path / "artifacts").rglob("*.*")
    }
    assert found == {
        "curves.png",
        *(f"seed{s}/{name}" for s in (0, 1) for name in ("square.png", "note.html")),
    }


def test_batches_of_different_lengths_are_padded_to_the_longest():
    streams = [iter([{"t": np.full((2, n), n), "n": np.full(2, n)}]) for n in (3, 5)]
    batch = seeds.StackedBatches(streams).take(1)
    assert batch["t"].shape == (1, 2, 2, 5)
    np.testing.assert_array_equal(batch["t"][0, 0, 0], [3, 3, 3, 0, 0])
    np.testing.assert_array_equal(batch["n"], [[[3, 3], [5, 5]]])


def test_refusals_and_names():
    with pytest.raises(
        UserError, match=r"config\.seeds = 2 needs config\.placement = 'jit'"
    ):
        train.Run(config(seeds=2, placement="pmap"), None)
    assert (
        workdir.default(config(seeds=3, seed=4), "paper").name == "paper-none-seed4to6"
    )
    assert seeds.is_of_one_seed("test/error/seed12")
    assert not seeds.is_of_one_seed("test/error")
    # Metrics at a length or at a rank.
    assert not seeds.is_of_one_seed("valid/5")
    assert not seeds.is_of_one_seed("valid/seed")


def test_batches_of_every_seed_are_closed():
    closed = []

    def stream(name):
        try:
            yield {"n": np.zeros(2)}
        finally:
            closed.append(name)

    streams = [stream("a"), stream("b")]
    for one in streams:
        next(one)
    # An iterator that cannot be closed need not be.
    train_step.close(seeds.StackedBatches([*streams, iter([])]))
    assert closed == ["a", "b"]
