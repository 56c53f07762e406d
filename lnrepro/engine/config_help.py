"""What --help says about the variants and fields of a config file."""

import sys
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from lnrepro import config as defaults

# Longer values are cut.
WIDTH = 44


def text(config: str) -> str:
    """Return the help of a config file, as lines of text.

    Args:
      config: FILE[:VARIANT]. The fields have the values of this variant.

    Raises:
      UserError: there is no such file or variant.
    """
    # Imported here, because `config_file` uses the functions below.
    from lnrepro.engine import config_file

    file = config.partition(":")[0]
    module = config_file.load_module(file)
    lines = [(module.__doc__ or "").strip(), "", "variants:"]
    for name in variants(module):
        described = _sizes(config_file.read(f"{file}:{name}" if name else file))
        lines.append(f"  {file}:{name}" if name else f"  {file}")
        lines.append(f"      {described}")
    if sweeps := getattr(module, "SWEEPS", {}):
        lines += ["", f"sweeps of scripts/sweep.py {file}:"]
        for name, runs in sweeps.items():
            named = f"--name {name}" if name else "(default)"
            lines.append(f"  {named}: {len(runs)} runs")
    lines += ["", f"fields, with the values of {config}:"]
    said = helps(module)
    for name, value in fields(config_file.read(config)).items():
        shown = str(value)
        if len(shown) > WIDTH:
            shown = f"{shown[: WIDTH - 3]}..."
        lines.append(f"  --config.{name}={shown}")
        lines.append(f"      {help_of(name, said)}")
    return "\n".join(lines)


def variants(module: ModuleType) -> list[str]:
    """Return the names of the variants of a config file, "" for the default."""
    return list(getattr(module, "VARIANTS", ("",)))


def helps(module: ModuleType) -> dict[str, str]:
    """Return {field: what it means} of a config file.

    It may change the config of another file, whose fields it then has too.
    """
    said = dict(defaults.HELP)
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


def fields(config: ConfigDict, prefix: str = "") -> dict[str, Any]:
    """Return {"optimizer.learning_rate": 0.001, ...}, the fields of a config.

    Args:
      config: the config.
      prefix: what stands before each name.
    """
    found = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict) and len(value):
            found |= fields(value, f"{prefix}{name}.")
        elif not isinstance(value, ConfigDict):
            found[prefix + name] = value
    return found


def _sizes(config: ConfigDict) -> str:
    """Return the data and the length of a run in a few words."""
    if config.steps is not None:
        length = f"{config.steps:,} steps"
    else:
        length = f"{config.epochs or 0:g} epochs"
    return f"{config.data.name}, norm {config.norm}, {length} of {config.batch_size}"
