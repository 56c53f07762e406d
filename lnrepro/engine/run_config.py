"""Comparison of configs, in which a run and its checkpoints are known again."""

import json
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from lnrepro.errors import UserError

# Fields that change nothing of what is trained. `Run.fixed` names those that do in a
# run.
FREE = (
    "config.curves",
    "config.data.dir",
    "config.eval_batch_size",
    "config.save_every",
)
# `config.kernels` of a run there, and now: it goes on without kernels.
WITHOUT_KERNELS = ("off", "auto")


def as_json(config: ConfigDict) -> dict[str, Any]:
    """Return the resolved config as JSON values; tuples become lists."""
    # Values are compared with those of a config.json, which has lists for tuples.
    return json.loads(json.dumps(config.to_dict()))


# Fields of kept records that have another name now: {old: (new, {old value: new})}.
_RENAMED = {"pallas": ("kernels", {True: "on", None: "auto", False: "off"})}


def with_new_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded config with the names that its fields have now."""
    changed = dict(config)
    for old, (new, values) in _RENAMED.items():
        if old in changed:
            changed[new] = values[changed.pop(old)]
    return changed


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


def check_same(
    what: str,
    there: Any,
    now: Mapping[str, Any],
    remedy: str,
    fixed: Collection[str] = (),
) -> None:
    """Check that a run directory or a checkpoint belongs to a run.

    FREE fields may differ, and the evaluations that run at the end alone: a mistake
    there would be known after all of the training.

    Args:
      what: what is said of one that does not, such as "X holds another run".
      there: its "config", as JSON values, and other values.
      now: those of the run that are compared.
      remedy: what to do.
      fixed: fields of FREE that may not differ.

    Raises:
      UserError: they differ; all fields are named.
    """
    found = []
    if "config" in there:
        there = {**there, "config": with_new_names(there["config"])}
    for field, a, b in differences({name: there.get(name) for name in now}, now):
        if field == "config.kernels" and (a, b) == WITHOUT_KERNELS:
            continue
        at_end = (None, "end", "never")
        is_end = field.startswith("config.evals.") and a in at_end and b in at_end
        if not is_end and (field not in FREE or field in fixed):
            found.append(f"{field}: {a!r} there, {b!r} now")
    if found:
        raise UserError(f"{what} ({'; '.join(found)}); {remedy}")


def identity(config: ConfigDict, fingerprint: str) -> dict[str, Any]:
    """Return what a checkpoint says about its run.

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
    path: pathlib.Path,
    there: Mapping[str, Any],
    now: Mapping[str, Any],
    fixed: Collection[str] = (),
) -> None:
    """Check that a checkpoint belongs to a run; see `check_same`.

    Args:
      path: where it is.
      there: its notes.
      now: the `identity` of the run, or a part of it.
      fixed: see `check_same`.
    """
    check_same(
        f"{path} is a checkpoint of another run",
        there,
        now,
        "put the run's own files back, or give another --workdir",
        fixed,
    )
