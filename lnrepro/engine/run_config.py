"""Comparison of configs, in which a run and its checkpoints are known again."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from lnrepro.config import add_defaults
from lnrepro.engine import json_files
from lnrepro.errors import UserError

# What the parameters of a network depend on, besides its training.
OF_NETWORK = ("config.experiment", "config.norm", "config.model", "config.seed")


def as_json(config: ConfigDict) -> dict[str, Any]:
    """Return the resolved config as JSON values; tuples become lists."""
    # Values are compared with those of a config.json, which has lists for tuples.
    return json.loads(json.dumps(config.to_dict()))


def differences(a: Any, b: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, value in a, value in b) where JSON values differ.

    Args:
      a: one of them.
      b: the other one.
      at: name of the values, which stands before those of their fields.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b}):
            field = f"{at}.{name}" if at else name
            yield from differences(a.get(name), b.get(name), field)
    elif a != b:
        yield at, a, b


def config_differences(there: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two configs; older ones get the defaults first."""
    yield from differences(_filled(there), _filled(now), "config")


def _filled(fields: Any) -> dict[str, Any]:
    config = ConfigDict(fields)
    add_defaults(config)
    return as_json(config)


def may_change(field: str, there: Any, now: Any) -> bool:
    """Whether a field of the config may differ when a run goes on.

    These are the mesh, since a run may go on with other devices, and what a run shows
    only at its end: a mistake there would be known after all of the training.
    """
    if field.startswith("config.evals."):
        at_end = (None, "end", "never")
        return there in at_end and now in at_end
    return field.startswith(("config.mesh", "config.curves"))


def checkpoint_notes(config: ConfigDict, fingerprint: str) -> dict[str, Any]:
    """Return what a checkpoint says about its run; see `check_checkpoint`.

    Args:
      config: the config.
      fingerprint: identity of the data.
    """
    return {
        "config": as_json(config),
        "fingerprint": fingerprint,
        "devices": jax.device_count(),
    }


def check_checkpoint(
    path: pathlib.Path,
    notes: Mapping[str, Any],
    config: ConfigDict,
    fingerprint: str | None = None,
    fields: tuple[str, ...] = ("config",),
) -> None:
    """Check that a checkpoint belongs to a run.

    Args:
      path: where it is, for the message.
      notes: its notes. Earlier versions did not note their config, so that nothing is
        checked.
      config: the config of the run.
      fingerprint: identity of the data; None is not compared.
      fields: the fields that are compared, and what is below them.

    Raises:
      UserError: it belongs to a run of another config or of other data.
    """
    if "config" not in notes:
        return
    try:
        found = list(config_differences(notes["config"], as_json(config)))
    except json_files.MALFORMED:
        raise UserError(f"{path}: its notes are not those of a run") from None
    differing = [
        f"{field}: {a!r} there, {b!r} in this run"
        for field, a, b in found
        # Whether `best` may be corrected was decided when the run was opened.
        if field.startswith(fields)
        and not may_change(field, a, b)
        and not field.startswith("config.best.")
    ]
    # The same config may be trained on data of another folder or version.
    data_there = notes.get("fingerprint")
    if fingerprint not in (None, data_there):
        differing.append(f"data {data_there} there, {fingerprint} now")
    if differing:
        raise UserError(
            f"{path} is a checkpoint of another run ({'; '.join(differing)}); put the "
            "run's own files back, or give another --workdir"
        )
