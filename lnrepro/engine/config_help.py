"""The text of --help about the variants and fields of a config file."""

from lnrepro.config import FIELDS, flat
from lnrepro.engine import config_file


def text(config: str) -> str:
    """Return the help of a config file, as lines of text.

    Args:
      config: FILE[:VARIANT]. The fields have the values of this variant.

    Raises:
      UserError: there is no such file or variant.
    """
    file = config.partition(":")[0]
    module = config_file.load_module(file)
    lines = [(module.__doc__ or "").strip(), "", "variants:"]
    for name in getattr(module, "VARIANTS", ("",)):
        lines.append(f"  {file}:{name}" if name else f"  {file}")
    if sweeps := getattr(module, "SWEEPS", {}):
        lines += ["", f"sweeps of scripts/sweep.py {file}:"]
        for name, runs in sweeps.items():
            named = f"--name {name}" if name else "(default)"
            lines.append(f"  {named}: {len(runs)} runs")
    lines += ["", f"fields, with the values of {config}:"]
    known = {**FIELDS, **getattr(module, "FIELDS", {})}
    for name, value in flat(config_file.read(config)).items():
        lines.append(f"  --config.{name}={value}")
        group = name.partition(".")[0]
        if name in known:
            lines += [f"      {known[name].help}", f"      {known[name].words}"]
        elif group in known:
            lines.append(f"      {known[group].help}")
    return "\n".join(lines)
