"""`config.kernels`: recurrences as one kernel, on the devices that have one."""

import types

import jax
import pytest

from lnrepro import functional
from lnrepro.config import base
from lnrepro.engine import distribute, provenance, run_config
from tests.refused import refused


def test_a_kernel_of_a_tpu_is_for_one_device_of_a_program(monkeypatch):
    """XLA does not split it, and pmap gives each device its rows."""
    tpu = types.SimpleNamespace(platform="tpu")
    monkeypatch.setattr(jax, "devices", lambda: [tpu, tpu])
    with refused("does not split a TPU's kernel over the 2 devices", "pmap"):
        distribute.check_kernels("on", "jit")
    distribute.check_kernels("on", "pmap")
    distribute.check_kernels("off", "jit")
    monkeypatch.setattr(jax, "devices", lambda: [tpu])
    distribute.check_kernels("on", "jit")


def test_configs_have_the_default_of_scans():
    assert base("lnrepro").kernels == functional.ScanOptions().kernels


def test_there_is_no_kernel_for_cpus():
    with refused("needs a TPU or a GPU"):
        distribute.check_kernels("on", "jit")
    distribute.check_kernels("auto", "jit")


@pytest.mark.parametrize("old", [{"pallas": None}, {"kernels": "auto"}])
def test_records_with_the_old_name_stay_readable(old):
    there = {"config": {"seed": 0} | old}
    now = {"config": {"seed": 0, "kernels": "auto"}}
    run_config.check_same("it", there, now, "no remedy")
    assert run_config.with_new_names(there["config"]) == now["config"]
    with refused("config.kernels: 'auto' there, 'off' now"):
        other = {"config": {"seed": 0, "kernels": "off"}}
        run_config.check_same("it", there, other, "no remedy")


def test_what_recurrences_run_as_is_recorded(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    options = functional.ScanOptions(kernels="auto")
    cell = functional.SimpleCell(2)
    params = jax.eval_shape(lambda: cell.init(jax.random.key(0), 3))
    x = jax.ShapeDtypeStruct((2, 3, 3), "float32")
    with provenance.watched_kernels() as seen:
        for _ in range(2):
            jax.eval_shape(
                lambda p, x: functional.unroll(cell, p, x, options=options), params, x
            )
    assert seen == ["scan: there are no kernels for cpu"]
    lines = provenance.record_kernels(tmp_path, seen)
    assert lines == ["recurrences: scan: there are no kernels for cpu"]
    assert provenance.starts(tmp_path)[0]["recurrences"] == seen
    # On a GPU, from a checkpoint.
    lines = provenance.record_kernels(tmp_path, ["kernel"])
    assert lines == [
        "recurrences: kernel",
        "recurrences before: scan: there are no kernels for cpu",
    ]
