"""An optimiser step of a config, compiled for described devices.

State and batch are shapes; nothing of them is allocated. The step and its sharding are
those of the trainer.
"""

import importlib
import importlib.util
import time
from collections.abc import Sequence

import jax
from ml_collections import ConfigDict

from lnrepro.engine import config_file, distribute, experiment, optim
from lnrepro.engine.experiment import Experiment
from lnrepro.engine.train_step import make_init, make_step
from scripts.benches.accelerators import batches, devices
from scripts.benches.accelerators.analysis import Compiled


def compile_step(
    device: str,
    config_name: str,
    count: int,
    version: str,
    flags: Sequence[str] = (),
) -> Compiled:
    """Compile an optimiser step.

    Args:
      device: name of the device.
      config_name: FILE[:VARIANT].
      count: number of devices, over which batches are split.
      version: "ours", or "direct" for scripts/benches/direct.
      flags: overrides such as "--config.norm=none".

    Raises:
      UserError: a config or a number of devices that is not possible.
    """
    config = config_file.read(config_name, flags)
    # Experiments look at the number of devices when they are made.
    with devices.instead_of_cpu(device, count):
        made = experiment.load(config) if version == "ours" else _direct(config)
        optimizer = optim.make(config.optimizer, experiment.total_steps(config))
        key = jax.random.key(config.seed)
        state = jax.eval_shape(make_init(made, optimizer), key)
        # One step a call.
        batch = jax.eval_shape(
            lambda batch: jax.tree.map(lambda x: x[None], batch),
            batches.of(config, count),
        )
        placement = distribute.make(
            "jit",
            config.batch_size,
            **config.mesh,
            devices=devices.described(device, count),
        )
        assert placement.shapes is not None
        state, batch = placement.shapes(state, batch)
        step = placement.compile(make_step(made, optimizer, key), state)
        began = time.perf_counter()
        executable = devices.compile(device, step, state, batch)
        seconds = time.perf_counter() - began
    return Compiled(executable, seconds, batches.data_dependent_trips(config, count))


def has_direct(config: ConfigDict) -> bool:
    """Whether there is a direct Flax version of an experiment."""
    name = config.experiment.rpartition(".")[2]
    return importlib.util.find_spec(f"scripts.benches.direct.{name}") is not None


def _direct(config):
    """Return the direct version as an experiment without data."""
    name = config.experiment.rpartition(".")[2]
    module = importlib.import_module(f"scripts.benches.direct.{name}")
    direct_init, direct_loss = module.make(config)

    def init(key):
        return {"params": direct_init(key)}

    def loss(vars, batch, key):
        return direct_loss(vars["params"], batch, key), ({}, {})

    def nothing(*args):
        raise NotImplementedError

    return Experiment(init, loss, nothing, nothing)
