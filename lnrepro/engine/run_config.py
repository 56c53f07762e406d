"""Comparison of configs, in which a run and its checkpoints are known again."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from lnrepro.errors import UserError


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


def changes(there: Any, now: Any) -> list[str]:
    """Return what differs between two configs, where it may not differ.

    What a run shows at its end alone may differ: a mistake there would be known after
    all of the training.

    Args:
      there: the config of a run, as JSON values.
      now: the config it goes on with.

    Returns:
      "config.FIELD: VALUE there, VALUE now" for each field.
    """
    found = []
    for field, a, b in differences(there, now, "config"):
        at_end = (None, "end", "never")
        is_end = field.startswith("config.evals.") and a in at_end and b in at_end
        may_differ = is_end or field.startswith("config.curves")
        if not may_differ:
            found.append(f"{field}: {a!r} there, {b!r} now")
    return found


def checkpoint_notes(config: ConfigDict, fingerprint: str) -> dict[str, Any]:
    """Return what a checkpoint says about its run; see `check_checkpoint`.

    Args:
      config: the config.
      fingerprint: identity of the data.
    """
    notes = {"config": as_json(config), "fingerprint": fingerprint}
    # With pmap, each device has statistics and noise of its own.
    if config.placement == "pmap":
        notes["devices"] = jax.device_count()
    return notes


def check_checkpoint(
    path: pathlib.Path, there: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Check that a checkpoint belongs to a run.

    Args:
      path: where it is, for the message.
      there: its notes.
      now: the `checkpoint_notes` of the run, or some of them.

    Raises:
      UserError: it belongs to a run of another config or of other data, or with
        another number of devices where these count.
    """
    differing = changes(there.get("config"), now["config"])
    for name in now.keys() - {"config"}:
        if there.get(name) != now[name]:
            differing.append(f"{name}: {there.get(name)} there, {now[name]} now")
    if differing:
        raise UserError(
            f"{path} is a checkpoint of another run ({'; '.join(differing)}); put the "
            "run's own files back, or give another --workdir"
        )
