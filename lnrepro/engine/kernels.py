"""`config.kernels = "auto"`: measured by a command, and kept by a run."""

import contextlib
import pathlib
from collections.abc import Iterator

import jax
from ml_collections import ConfigDict

from lnrepro.engine import json_files, workdir
from lnrepro.engine.run import Run
from lnrepro.errors import UserError
from lnrepro.functional.fast import measure, tuning
from lnrepro.functional.fast.kernels import Implementation

# Batches whose shapes are looked at. Those of most experiments are all alike.
BATCHES = 1000


def autotune(config: ConfigDict, folder: pathlib.Path) -> None:
    """Measure the recurrences of a config's steps and evaluations on this device.

    Nothing is trained, and no run is made. The evaluations run once, with fresh
    parameters.

    Args:
      config: the config.
      folder: the run directory, to which nothing is written.

    Raises:
      UserError: something that the user can correct.
      OSError: a record cannot be written.
    """
    platform = jax.default_backend()
    if platform not in tuning.PLATFORMS:
        raise UserError(
            f"--autotune: there are no kernels for {platform}; run it on a "
            f"{' or a '.join(tuning.PLATFORMS)}"
        )
    run = Run(config, folder)
    run.check()
    noted = []
    with tuning.answering(noted.append):
        state = run.placement.place(run.initial())
        step, seen = run.placement.compile(run.step()), set()
        with run.batches(0) as batches:
            for _ in range(min(run.total_steps, run.steps_per_epoch, BATCHES)):
                batch = batches.take(1)
                shapes = str(jax.tree.map(jax.numpy.shape, batch))
                if shapes not in seen:
                    seen.add(shapes)
                    jax.eval_shape(step, state, run.placement.batch(batch))
        vars = run.placement.vars(state).vars
        run.evaluate(vars, (*run.evals.every, *run.evals.at_end))
    measure.measure(noted)


@contextlib.contextmanager
def kept(folder: pathlib.Path, *, writes: bool) -> Iterator[None]:
    """Let each recurrence of a run keep the implementation that it had first.

    config.json has the implementations under "kernels".

    Args:
      folder: the run directory.
      writes: whether new ones are noted there.
    """
    about = workdir.read_about(folder) or {}
    ways = about.setdefault("kernels", {})

    def choose(scan):
        name = scan.name
        if name not in ways:
            ways[name] = tuning.look_up(scan)._asdict()
            if writes:
                json_files.write(folder / "config.json", about)
        return Implementation(**ways[name])

    with tuning.answering(choose):
        yield
