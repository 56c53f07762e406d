"""Arrays that are split over devices: the run is the same, wherever they lie."""

import jax
import numpy as np
import pytest

from lnrepro.engine import distribute, train
from lnrepro.engine.run import Run
from lnrepro.engine.train_step import take
from tests.engine.toy import config as toy_config
from tests.engine.toy import crash_at, final_state
from tests.refused import refused

pytestmark = pytest.mark.usefixtures("toy_data")

SHARED = {"model": 2, "shard": (("w", 1),)}
ALONE = {"model": 1, "shard": (("w", 1),)}


def config(mesh, **changes):
    return toy_config(mesh__model=mesh["model"], mesh__shard=mesh["shard"], **changes)


def test_state_lies_where_the_config_says(tmp_path):
    run = Run(config(SHARED), tmp_path)
    state = run.placement.place(run.initial())
    spec = jax.sharding.PartitionSpec
    assert state.params["w"].sharding.spec == spec(None, "model")
    assert {
        m.sharding.spec for m in jax.tree.leaves(state.opt_state) if m.ndim == 2
    } == {spec(None, "model")}
    assert state.collections["stats"]["seen"].sharding.spec == spec()
    compiled = run.placement.compile(run.step(), state)
    before = jax.tree.map(lambda x: x.sharding, state)
    batch = run.placement.batch(take(run.batches(0), 1))
    with_one, _ = compiled(state, batch)
    assert jax.tree.map(lambda x: x.sharding, with_one) == before


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_shared_parameters_give_the_same_run(tmp_path, seeds):
    ends = []
    for mesh, name in ((ALONE, "alone"), (SHARED, "shared")):
        c = config(mesh, seeds=seeds)
        numbers = train.train(c, tmp_path / name)
        ends.append((final_state(tmp_path / name, c).state, numbers))
    (alone, numbers), (shared, same) = ends
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        alone,
        shared,
    )
    assert numbers.keys() == same.keys()
    for name, value in numbers.items():
        assert same[name] == pytest.approx(value, rel=1e-5)


@pytest.mark.slow
def test_a_run_goes_on_with_another_mesh(tmp_path, monkeypatch):
    with monkeypatch.context() as m:
        crash_at(m, 17)
        with pytest.raises(KeyError):
            train.train(config(SHARED), tmp_path / "changed")
    train.train(config(ALONE), tmp_path / "changed")
    train.train(config(ALONE), tmp_path / "whole")
    a, b = (
        final_state(tmp_path / name, config(ALONE)).state
        for name in ("changed", "whole")
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), a, b
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"model": 3, "shard": (("w", 0),)},
            "config.mesh.model = 3 does not divide the 4 devices",
        ),
        ({"model": 2}, "config.mesh.shard names nothing"),
        (
            {"kind": "pmap", "model": 2, "shard": (("w", 0),)},
            "config.mesh.model = 2 needs config.placement = 'jit'",
        ),
        ({"kind": "pmap", "seeds": 2}, "config.seeds = 2 needs config.placement ="),
        ({"kind": "xmap"}, "config.placement = 'xmap': choose jit or pmap"),
        ({"batch_size": 6}, "config.batch_size = 6 does not divide over 4 devices"),
    ],
)
def test_refusals(options, says):
    with refused(says):
        distribute.make(**{"kind": "jit", "batch_size": 8} | options)


def test_pmap_is_refused_with_several_processes(monkeypatch):
    assert distribute.make("pmap", 8)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with refused("the number of processes = 2 needs"):
        distribute.make("pmap", 8)


def test_an_axis_that_does_not_divide():
    placement = distribute.make("jit", 8, model=2, shard=(("w", 0),))
    with refused("config.mesh.shard: axis 0 of params/w (3, 2) does not divide over"):
        placement.place({"params": {"w": np.zeros((3, 2))}})
