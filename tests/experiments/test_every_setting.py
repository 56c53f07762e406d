"""Every experiment with every setting of the trainer that the pages promise for all.

The tests have four devices, so that most cases train on several of them. The programs
are those of the `:smoke` configs. DRAW is run with every setting; the nightly job
runs the other cases.
"""

import contextlib
import itertools
import json
import math

import jax
import numpy as np
import pytest

from lnrepro.data.stream import Stream
from lnrepro.engine import evaluate, experiment, metrics, schedule, train
from lnrepro.engine.run import Run
from lnrepro.functional.fast.platform import tracing_for
from lnrepro.functional.fast.tuning import answering, kernel_where_it_can
from scripts.paper import claims
from tests.engine.toy import assert_same_bits, final_state
from tests.experiments.small import config_of
from tests.refused import refused
from tests.runs import EXPERIMENTS, WITH_LENGTHS

SETTINGS = {
    "alone": {},
    "calls": {"steps_per_call": 2},
    "pmap": {"placement": "pmap"},
    "x64": {},
    "debug_nans": {},
}

CASES = [
    pytest.param(
        name,
        setting,
        marks=() if name == "draw" else pytest.mark.nightly,
    )
    for name, setting in itertools.product(EXPERIMENTS, SETTINGS)
    if setting != "calls" or name not in WITH_LENGTHS
]


def smoke(name, **changes):
    config = config_of(name, **{"steps": 4, "save_every": 2} | changes)
    return experiment.with_sizes(config)


def first_batches(exp, count):
    """The first training batches of an experiment."""
    with contextlib.closing(exp.batches(0)) as batches:
        return list(itertools.islice(batches, count))


def crash_before(monkeypatch, step):
    """Let a run fail as a crash would, before this step."""
    real = Run.batches

    def blocks(run, start):
        with real(run, start) as stream:
            yield from ([batch] for batch in itertools.islice(stream, step - start))
        raise KeyError("crash")

    monkeypatch.setattr(Run, "batches", lambda *args: Stream(blocks(*args)))


def losses(workdir):
    records = metrics.read(workdir / "metrics.jsonl")
    return [record["train/loss"] for record in records if "train/loss" in record]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setting"), CASES)
def test_trains_resumes_and_is_evaluated(tmp_path, monkeypatch, name, setting):
    config = smoke(name, **SETTINGS[setting])
    with jax.enable_x64(setting == "x64"), jax.debug_nans(setting == "debug_nans"):
        numbers = train.train(config, tmp_path / "whole")
        with monkeypatch.context() as m:
            crash_before(m, 2)
            with pytest.raises(KeyError):
                train.train(config, tmp_path / "resumed")
        assert train.train(config, tmp_path / "resumed") == numbers
        whole = final_state(tmp_path / "whole")
        resumed = final_state(tmp_path / "resumed")
        again = evaluate.evaluate(config, tmp_path / "whole")
    assert whole.step == resumed.step == 4
    assert_same_bits(whole.state, resumed.state)
    if setting == "x64":
        train.train(config, tmp_path / "float32")
        # Noise and batches are the same, so that only rounding differs.
        np.testing.assert_allclose(
            losses(tmp_path / "whole"), losses(tmp_path / "float32"), rtol=1e-3
        )
        dtypes = {a.dtype for a in jax.tree.leaves(whole.state.params)}
        assert dtypes == {np.dtype("float32")}
    assert all(map(math.isfinite, numbers.values()))
    known = schedule.known_metrics(config, experiment.load(config))
    for evaluation in {name.partition("/")[0] for name in known}:
        of_it = f"{evaluation}/"
        names = {name for name in known if name.startswith(of_it)}
        assert names == {name for name in numbers if name.startswith(of_it)}
    best = config.best.metric
    if best:
        assert again[best] == pytest.approx(numbers[f"best {best}"], rel=1e-5)
    record = json.loads((tmp_path / "whole/evaluation.json").read_text())
    assert record.keys() == again.keys() | {"step"}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_LENGTHS)
def test_batches_of_several_lengths_refuse_several_steps_in_a_call(tmp_path, name):
    config = smoke(name, steps_per_call=2)
    with refused(" to 1"):
        train.train(config, tmp_path)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_names_of_the_config_are_those_of_the_metrics(name):
    config = smoke(name)
    known = schedule.known_metrics(config, experiment.load(config))
    assert "train/loss" in known
    schedule.check_names(config, known)
    # Claims look the direction up by the name alone.
    for number, metric in known.items():
        assert claims.sign(number) == (-1 if metric.mode == "max" else 1)


RECURRENT = sorted(set(EXPERIMENTS) - {"mnist", "convnet"})


@pytest.mark.slow
@pytest.mark.parametrize("name", RECURRENT)
def test_kernels_reach_the_recurrences(name):
    exp = experiment.load(smoke(name, kernels="auto"))
    vars = jax.eval_shape(exp.init, jax.random.key(0))
    (batch,) = first_batches(exp, 1)
    loss = jax.jit(lambda vars: exp.loss(vars, batch, jax.random.key(1))[0])
    with tracing_for("tpu"), answering(kernel_where_it_can):
        lowered = loss.trace(vars).lower(lowering_platforms=("tpu",))
    assert "tpu_custom_call" in lowered.as_text()
