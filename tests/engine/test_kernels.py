"""`config.kernels`: recurrences as one kernel, on the devices that have one."""

import json
import types

import jax

from lnrepro import functional
from lnrepro.config import FIELDS
from lnrepro.engine import distribute, kernels, provenance, run, run_config
from lnrepro.functional.fast import tuning
from lnrepro.functional.fast.kernels import Implementation, watched
from tests.engine import toy
from tests.functional import made_up_gpu
from tests.refused import refused


def test_a_kernel_of_a_tpu_is_for_one_device_of_a_program(monkeypatch):
    """XLA does not split it, and pmap gives each device its rows."""
    assert FIELDS["kernels"].default == functional.ScanOptions().kernels
    with refused("needs a TPU or a GPU"):
        distribute.check_kernels("on", "jit")
    distribute.check_kernels("auto", "jit")
    tpu = types.SimpleNamespace(platform="tpu")
    monkeypatch.setattr(jax, "devices", lambda: [tpu, tpu])
    with refused("does not split a TPU's kernel over the 2 devices", "pmap"):
        distribute.check_kernels("on", "jit")
    for choice, placement in (("on", "pmap"), ("off", "jit"), ("auto", "jit")):
        distribute.check_kernels(choice, placement)
    monkeypatch.setattr(jax, "devices", lambda: [tpu])
    distribute.check_kernels("on", "jit")


def test_a_run_without_kernels_goes_on_without_them(tmp_path):
    """Also where the config now says "auto"."""
    config = toy.get_config()
    own = {"config": run_config.as_json(config)}
    for there in ("off", "auto"):
        about = {"config": own["config"] | {"kernels": there}}
        (tmp_path / "config.json").write_text(json.dumps(about))
        assert run.Run(config, tmp_path).config.kernels == there
        run_config.check_same("it", about, own, "")
    config.kernels = "off"
    with refused("config.kernels: 'auto' there, 'off' now"):
        own = {"config": run_config.as_json(config)}
        run_config.check_same("it", about, own, "no remedy")


CELL = functional.SimpleCell(2, "none")


def runs_as():
    """What a recurrence on a made-up GPU runs as."""
    params = jax.eval_shape(lambda: CELL.init(jax.random.key(0), 3))
    x = jax.ShapeDtypeStruct((2, 3, 3), "float32")
    with watched() as seen:
        jax.eval_shape(lambda p, x: functional.unroll(CELL, p, x), params, x)
    return seen


def test_a_run_keeps_the_way_of_its_first_start(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"config": {"experiment": "a"}}')
    assert runs_as() == []  # A CPU has nothing to say.
    made_up_gpu.pretend(monkeypatch, tmp_path / "none")
    with kernels.kept(tmp_path, writes=True):
        seen = runs_as()
    assert seen == ["kernels are not measured here"]
    first, advice = provenance.about_kernels(seen)
    assert first == f"recurrences: scan: {seen[0]}"
    assert advice.endswith(" --autotune")
    assert provenance.about_kernels(["kernel"]) == ["recurrences: kernel"]
    (way,) = provenance.starts(tmp_path)[0]["kernels"].values()
    assert not way["kernel"]
    # Records that came since.
    monkeypatch.setattr(
        tuning, "look_up", lambda scan: Implementation(False, reason="another")
    )
    with kernels.kept(tmp_path, writes=True):
        assert runs_as() == seen


def test_autotune_needs_a_platform_with_kernels(tmp_path):
    with refused("--autotune: there are no kernels for cpu; run it on a gpu or a tpu"):
        kernels.autotune(toy.get_config(), tmp_path)
