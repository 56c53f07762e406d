"""Reading of config files, with overrides as on the command line."""

import difflib
import importlib.util
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Sequence
from operator import attrgetter
from types import ModuleType

from absl import flags
from ml_collections import ConfigDict, config_flags

from lnrepro.checks import is_path, local_path
from lnrepro.config import HELP, add_defaults, fields
from lnrepro.errors import UserError


def configs() -> list[str]:
    """Return the files configs/*.py of the current directory, sorted."""
    return sorted(str(path) for path in pathlib.Path("configs").glob("*.py"))


def read(config: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """Read a config. Fields of `lnrepro.config.base` that it lacks are added.

    Args:
      config: FILE[:VARIANT].
      overrides: flags such as "--config.seed=1". The value None unsets a field.

    Returns:
      The config, to which no field can be added.

    Raises:
      UserError: there is no such file, variant or field, or a value does not fit.
    """
    file, colon, variant = config.partition(":")
    module = load_module(file)
    if not hasattr(module, "get_config"):
        raise UserError(f"{file} has no get_config(variant), which returns its config")
    plain = _get_config(module, file, (variant,) if colon else ())
    if not isinstance(plain, ConfigDict) or "experiment" not in plain:
        raise UserError(
            f"{file}: get_config must return a ConfigDict with the field experiment, "
            "as lnrepro.config.base does"
        )
    add_defaults(plain)
    _check_declared(fields(plain), helps(module), file)
    # A wrong name is reported here, with the nearest field. absl would list all flags.
    unset, rest = [], []
    for flag in overrides:
        field, equals, value = re.sub(r"^--?(no)?config\.", "", flag).partition("=")
        _check_field(plain, field, file)
        _check_number(plain, field, flag)
        if equals and value == "None":
            if isinstance(attrgetter(field)(plain), ConfigDict):
                raise UserError(
                    f"config.{field} = None: it is a group of fields; set one of them"
                )
            unset.append(field)
        else:
            rest.append(flag)
    parsed = _override(config, plain, rest)
    # ml_collections does not read None for a number.
    parsed.update_from_flattened_dict(dict.fromkeys(unset))
    for field, value in fields(parsed).items():
        if isinstance(value, str) and is_path(value):
            path = str(local_path(value, f"config.{field}"))
            parsed.update_from_flattened_dict({field: path})
    return parsed


def check_file(file: str) -> None:
    """Raise UserError where there is no such config file."""
    if not pathlib.Path(file).is_file():
        near = difflib.get_close_matches(file, configs(), 1, 0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        if not configs():
            hint = "; run the command in the folder of the checkout"
        raise UserError(f"there is no config file {file}{hint}")
    if not file.endswith(".py"):
        raise UserError(
            f"{file} is no config file: that is a Python file with get_config"
        )


def load_module(file: str) -> ModuleType:
    """Import a config file as a module.

    Raises:
      UserError: there is no such file, or it fails; its line is named.
    """
    check_file(file)
    # Imported by its path: configs of different folders may have one name.
    spec = importlib.util.spec_from_file_location("config_module", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as e:
        raise UserError(f"{e.filename}, line {e.lineno}: {e.msg}") from None
    except Exception as e:
        raise UserError(_failure(file, e)) from None
    return module


def variants(module: ModuleType) -> list[str]:
    """Return the names of the variants of a config file, "" for the default."""
    return list(getattr(module, "VARIANTS", ("",)))


def helps(module: ModuleType) -> dict[str, str]:
    """Return {field: what it means} of a config file.

    It may change the config of another file, whose fields it then has too.
    """
    said = dict(HELP)
    for value in vars(module).values():
        of = value if isinstance(value, ModuleType) else None
        imported = of or sys.modules.get(getattr(value, "__module__", None) or "")
        found = getattr(imported, "HELP", {})
        said |= found if isinstance(found, dict) else {}
    return said | getattr(module, "HELP", {})


def help_of(field: str, said: dict[str, str]) -> str:
    """Return what a field means, or else what the group that it is in means.

    Args:
      field: such as "evals.valid".
      said: what `helps` returned.
    """
    while field:
        if field in said:
            return said[field]
        field = field.rpartition(".")[0]
    return ""


def _failure(file, error):
    """Return a line about an exception that the code of a config file raised."""
    # The last frame within the file is the line that its author can change.
    frames = traceback.extract_tb(error.__traceback__)
    where, path = [file], os.path.abspath(file)
    lines = [f.lineno for f in frames if os.path.abspath(f.filename) == path]
    if lines:
        where.append(f"line {lines[-1]}")
    words = " ".join(str(error).split())
    return f"{', '.join(where)}: {type(error).__name__}: {words}"


def _get_config(module, file, arguments):
    """Return what get_config of a config file returns."""
    try:
        return module.get_config(*arguments)
    # A config file raises ValueError for an unknown variant. Its message says enough.
    except ValueError as e:
        raise UserError(f"{file}: {' '.join(str(e).split())}") from None
    except Exception as e:
        raise UserError(_failure(file, e)) from None


def _override(config, plain, overrides):
    """Return a config with the values of flags."""
    argv = ["lnrepro", *overrides]
    values = flags.FlagValues()
    config_flags.DEFINE_config_dict("config", plain, flag_values=values, sys_argv=argv)
    try:
        values(argv)
    # What a wrong value raises.
    except (flags.Error, ValueError) as e:
        raise UserError(" ".join(str(e).split())) from None
    except Exception as e:
        raise UserError(_failure(config.partition(":")[0], e)) from None
    return values.config


def _check_field(config, field, file):
    """Raise UserError where the config has no such field."""
    # The first part of the name that is wrong gets the suggestion.
    inner, names = config, field.split(".")
    for depth, name in enumerate(names):
        there = inner.keys() if isinstance(inner, ConfigDict) else ()
        if name not in there:
            near = difflib.get_close_matches(name, there, 1)
            hint = ""
            if near:
                names[depth] = near[0]
                hint = f"; did you mean {'.'.join(names)!r}?"
            elif found := [f for f in fields(config) if f.endswith(f".{field}")]:
                hint = f"; did you mean {found[0]!r}?"
            raise UserError(f"{file} has no field {field!r}{hint}")
        inner = inner[name]


def _check_declared(names, said, file):
    """Raise UserError where get_config sets a field that nothing declares.

    Args:
      names: the fields of the config.
      said: what `helps` returned. It names all fields of `lnrepro.config.base`.
      file: the config file.
    """
    for field in names:
        if help_of(field, said) or field.startswith("data."):
            continue
        near = difflib.get_close_matches(field, said, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"{file}: get_config sets {field!r}, which is no field{hint}. A field of "
            "your own stands in the dict HELP of the file, or in model or data"
        )


def _check_number(config, field, flag):
    """Raise UserError where the value of a flag is not a number as the field has."""
    group, _, name = field.rpartition(".")
    kind = (attrgetter(group)(config) if group else config).get_type(name)
    value = flag.partition("=")[2]
    if kind not in (int, float) or value == "None":
        return
    try:
        kind(value)
    except ValueError:
        needed = "a whole number is needed" if kind is int else "a number is needed"
        raise UserError(f"{flag}: {needed}{_as_number(kind, value)}") from None


def _as_number(kind, value):
    """Return how to write a number that was written otherwise, such as 1e3 or 0,01."""
    try:
        number = float(value.replace(",", "."))
        same = number if kind is float else int(number)
    except (ValueError, OverflowError):
        return ""
    return f"; write {same!r}" if same == number else ""
