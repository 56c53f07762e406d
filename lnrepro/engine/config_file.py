"""Reading of config files, with overrides as on the command line.

Values are parsed by `ml_collections.config_flags`. It has no way to unset a field, its
messages have several lines, and it runs each further file in the module of the one
before. `read` has code of its own for these three.
"""

import pathlib
import re
import runpy
import types
from collections.abc import Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

from lnrepro.config import flat, no_field
from lnrepro.errors import UserError


def configs() -> list[str]:
    """Return the files configs/*.py of the current directory, sorted."""
    return sorted(str(path) for path in pathlib.Path("configs").glob("*.py"))


def read(config: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """Read a config.

    Args:
      config: FILE[:VARIANT].
      overrides: flags such as "--config.seed=1". The value None unsets a field. Of
        several flags for one field, the last one counts.

    Returns:
      The config, to which no field can be added.

    Raises:
      UserError: there is no such file, variant or field, a value does not fit, or it
        would change nothing.
    """
    file, _, variant = config.partition(":")
    module = load_module(file)
    try:
        found = module.get_config(variant) if variant else module.get_config()
    # An unknown variant or field. Its message says enough.
    except ValueError as e:
        raise UserError(f"{file}: {' '.join(str(e).split())}") from None
    known, last = flat(found), {}
    for flag in overrides:
        name, _, value = flag.partition("=")
        field = re.sub(r"^--?(no)?config\.", "", name)
        if field not in known:
            raise UserError(f"{file}: {no_field(field, known)}")
        last[field] = flag, value
    # All at once: each call of absl takes milliseconds.
    set_to = [flag for flag, value in last.values() if value != "None"]
    parsed = _override(found, set_to)
    unset = [field for field, (_, value) in last.items() if value == "None"]
    parsed.update_from_flattened_dict(dict.fromkeys(unset))
    if "epochs" in last and None not in (parsed.epochs, parsed.steps):
        raise UserError(
            f"config.epochs = {parsed.epochs} changes nothing, since config.steps = "
            f"{parsed.steps}; add --config.steps=None"
        )
    return parsed


def load_module(file: str) -> types.SimpleNamespace:
    """Return what a config file defines.

    Raises:
      UserError: there is no such file, or it is no config file.
    """
    if not pathlib.Path(file).is_file():
        there = ", ".join(configs()) or "none here: run the command in the checkout"
        raise UserError(f"there is no config file {file}; there are {there}")
    try:
        module = types.SimpleNamespace(**runpy.run_path(file))
    # The message names the file and the line.
    except SyntaxError as e:
        raise UserError(f"--config={file}: {e}") from None
    if not hasattr(module, "get_config"):
        raise UserError(f"{file} has no get_config(variant), which returns its config")
    return module


def _override(config, overrides):
    """Return a config with the values of flags."""
    argv = ["lnrepro", *overrides]
    values = flags.FlagValues()
    define = config_flags.DEFINE_config_dict
    try:
        define("config", config, flag_values=values, sys_argv=argv)
        values(argv)
    except (flags.Error, ValueError, TypeError, SyntaxError) as e:
        raise UserError(" ".join(str(e).split())) from None
    return values.config
