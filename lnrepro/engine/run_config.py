"""The config that is trained, and the comparison in which a run is known again."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from lnrepro import config as configs
from lnrepro import fields
from lnrepro.engine import experiment
from lnrepro.errors import UserError

# `config.kernels` of a run there, and now: it goes on without kernels.
WITHOUT_KERNELS = ("off", "auto")


def resolved(config: ConfigDict) -> ConfigDict:
    """Return the config that is trained: as its config.json has it, with all sizes.

    The data is touched only where the config leaves a size open.

    Raises:
      UserError: a field may not have its value, or a config.json does not keep it.
    """
    read_back = from_json(as_json(config))
    known = experiment.fields(read_back.experiment)
    fields.check(configs.flat(read_back), known)
    return experiment.with_sizes(read_back)


def as_json(config: ConfigDict) -> dict[str, Any]:
    """Return a config as JSON values; tuples become lists.

    Raises:
      UserError: a value is read back as another one, or not at all.
    """
    values = config.to_dict()
    # A text stands for what JSON cannot hold, and differs from it.
    text = json.dumps(values, default=repr, skipkeys=True)
    read_back = json.loads(text, parse_constant=str)
    for field, value, _ in differences(values, read_back, "config"):
        raise UserError(
            f"{field} = {' '.join(repr(value).split())}: a config.json does not keep "
            "it; give Python's own finite numbers, texts, True, False, None, or tuples "
            "and dicts of them"
        )
    return read_back


def from_json(values: Mapping[str, Any]) -> ConfigDict:
    """Return the config of JSON values, locked; lists become tuples."""
    return ConfigDict(_with_tuples(values)).lock()


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_tuples(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return tuple(_with_tuples(inner) for inner in value)
    return value


def differences(a: Any, b: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, value in a, value in b) where values differ, or their types.

    A tuple is equal to a list of the same entries.

    Args:
      a: one of them.
      b: the other one.
      at: name of the values, which stands before those of their fields.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b}, key=str):
            field = f"{at}.{name}" if at else name
            yield from differences(a.get(name), b.get(name), field)
    # Where a value is equal to one of another type, such as 1 and True, their texts
    # differ.
    elif repr(_with_tuples(a)) != repr(_with_tuples(b)):
        yield at, a, b


def check_same(
    what: str,
    recorded: Any,
    now: Mapping[str, Any],
    remedy: str,
) -> None:
    """Check that a run directory or a checkpoint belongs to a run.

    Fields that are described so may differ, and the evaluations that run at the end
    alone: a mistake there would be known after all of the training.

    Args:
      what: what is said of one that does not, such as "X holds another run".
      recorded: its "config", as JSON values, and other values.
      now: those of the run that are compared.
      remedy: what to do.

    Raises:
      UserError: they differ; all fields are named.
    """
    found, free = [], set()
    config = from_json(now["config"])
    for name, field in experiment.fields(config.experiment).items():
        may_change = field.may_change
        if may_change(config) if callable(may_change) else may_change:
            free.add(f"config.{name}")
    for field, a, b in differences({name: recorded.get(name) for name in now}, now):
        if field == "config.kernels" and (a, b) == WITHOUT_KERNELS:
            continue
        at_end = (None, "end", "never")
        is_end = field.startswith("config.evals.") and a in at_end and b in at_end
        if not is_end and field not in free:
            found.append(f"{field}: {a!r} there, {b!r} now")
    if found:
        raise UserError(f"{what} ({'; '.join(found)}); {remedy}")


def check_checkpoint(
    path: pathlib.Path,
    recorded: Mapping[str, Any],
    now: Mapping[str, Any],
) -> None:
    """Check that a checkpoint belongs to a run; see `check_same`.

    Args:
      path: where it is.
      recorded: its notes.
      now: `Run.identity`, or a part of it.
    """
    check_same(
        f"{path} is a checkpoint of another run",
        recorded,
        now,
        "put the run's own files back, or give another --workdir",
    )
