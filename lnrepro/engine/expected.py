"""Whether a finished run of a default ends as its config file expects."""

import pathlib

from ml_collections import ConfigDict

from lnrepro.engine import config_file, run_config, workdir
from lnrepro.engine.run import Run
from lnrepro.errors import RunError, UserError


def check(config: ConfigDict, file: str, folder: pathlib.Path) -> str:
    """Compare the results of a run with `EXPECTED` of its config file.

    Args:
      config: the config of the run.
      file: the config file; the limit is not that of a variant.
      folder: the run directory.

    Returns:
      A line that says that the run passes.

    Raises:
      RunError: it does not.
      UserError: nothing is expected, or there is no finished run of this config.
    """
    name, _, variant = file.partition(":")
    expected = getattr(config_file.load_module(name), "EXPECTED", None)
    if variant or expected is None:
        raise UserError(f"--check: nothing is expected of {file}; give a default")
    run = Run(config, folder)
    workdir.check_run(folder, {"config": run_config.as_json(run.config)})
    value = (workdir.read_results(folder) or {}).get(expected.metric)
    if value is None:
        raise UserError(
            f"--check: {folder} has no results with {expected.metric}; train it to its "
            "end, or give its --workdir"
        )
    mode = run.metrics[expected.metric].mode
    found = f"{expected.metric} is {value:.4g}, expected {expected.words(mode)}"
    if not expected.holds(value, mode):
        raise RunError(f"{folder}: fail: {found}")
    return f"{folder}: pass: {found}"
