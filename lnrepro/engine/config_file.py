"""Reading of config files, with overrides as on the command line.

Values are parsed by `ml_collections.config_flags`. It has no way to unset a field, its
messages have several lines, and it runs each further file in the module of the one
before. `read` has code of its own for these three.
"""

import difflib
import pathlib
import re
import runpy
import traceback
import types
from collections.abc import Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

from lnrepro.config import FIELDS, flat, no_field
from lnrepro.errors import UserError
from lnrepro.paths import is_path, local_path


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
      UserError: there is no such file, variant or field, or a value does not fit.
    """
    file, _, variant = config.partition(":")
    module = load_module(file)
    found = _get_config(module, file, variant)
    known, last = flat(found), {}
    for flag in overrides:
        name, _, value = flag.partition("=")
        field = re.sub(r"^--?(no)?config\.", "", name)
        if field not in known:
            raise UserError(f"{file}: {no_field(field, known)}")
        last[field] = flag, value
    set_to = [flag for flag, value in last.values() if value != "None"]
    parsed = _override(found, set_to)
    for field, (_, value) in last.items():
        if value == "None":
            parsed.update_from_flattened_dict({field: None})
    for field, value in flat(parsed).items():
        if isinstance(value, str) and is_path(value):
            path = str(local_path(value, f"config.{field}"))
            parsed.update_from_flattened_dict({field: path})
    return parsed


def load_module(file: str) -> types.SimpleNamespace:
    """Return what a config file defines.

    Raises:
      UserError: there is no such file, or it fails; its line is named.
    """
    if not pathlib.Path(file).is_file():
        near = difflib.get_close_matches(file, configs(), 1, 0.4)
        hint = f"did you mean {near[0]}?" if near else "run the command in the checkout"
        raise UserError(f"there is no config file {file}; {hint}")
    try:
        return types.SimpleNamespace(**runpy.run_path(file))
    except Exception as e:
        raise UserError(_failure(file, e)) from None


def _get_config(module, file, variant):
    """Return what get_config of a config file returns."""
    if not hasattr(module, "get_config"):
        raise UserError(f"{file} has no get_config(variant), which returns its config")
    try:
        found = module.get_config(variant) if variant else module.get_config()
    # An unknown variant or field. Its message says enough.
    except ValueError as e:
        raise UserError(f"{file}: {' '.join(str(e).split())}") from None
    except Exception as e:
        raise UserError(_failure(file, e)) from None
    needed = {name.partition(".")[0] for name in FIELDS}
    if not isinstance(found, ConfigDict) or not needed <= set(found):
        raise UserError(
            f"{file}: get_config must return a config with all fields of "
            "lnrepro.config.FIELDS, as that of lnrepro.config.variants has"
        )
    return found


def _failure(file, error):
    """Return a line about an exception that the code of a config file raised."""
    # The last frame within the file is the line that its author can change.
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    where = f"{file}, line {lines[-1]}" if lines else file
    return f"{where}: {type(error).__name__}: {' '.join(str(error).split())}"


def _override(config, overrides):
    """Return a config with the values of flags."""
    argv = ["lnrepro", *overrides]
    values = flags.FlagValues()
    config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
    try:
        values(argv)
    except (flags.Error, ValueError, TypeError, SyntaxError) as e:
        raise UserError(" ".join(str(e).split())) from None
    return values.config
