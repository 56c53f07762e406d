"""Single examples of a prepared set, read from its ArrayRecord files by TFDS."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from lnrepro.errors import DataError


def open_records(folder: pathlib.Path, split: str, name: str) -> Source:
    """Open the ArrayRecord files of a split.

    Args:
      folder: the prepared folder.
      split: the split.
      name: the set, for the message.

    Raises:
      DataError: there are no such files, or TFDS would import a module that they name.
    """
    features = folder / "features.json"
    if not features.exists():
        raise DataError(
            f"{folder} ({split}): it has columns only, no ArrayRecord; use "
            f"open_columns, or remove the folder and prepare {name} with --records"
        )
    _check_modules(features)
    import tensorflow_datasets as tfds

    builder: Any = tfds.builder_from_directory(str(folder))
    return Source(builder.as_data_source(split), f"{folder} ({split})")


def _check_modules(file: pathlib.Path) -> None:
    """Check that features.json names no module outside TFDS.

    TFDS imports each module that this file names. A prepared set may come from somebody
    else, so that it must not choose what is executed.

    Raises:
      DataError: it names another module, or cannot be read.
    """
    try:
        # The file is walked with a list and not by recursion, which nested JSON could
        # exhaust.
        pending = [json.loads(file.read_bytes())]
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(
            f"{file}: cannot be read ({e}); remove that folder and prepare the set "
            "again"
        ) from None
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif _is_foreign_module(value):
            raise DataError(
                f"{file}: names {value!r:.80}, which TFDS would import; "
                "do not trust it, prepare the set again"
            )


def _is_foreign_module(value: Any) -> bool:
    """Return whether a JSON value can name a module outside TFDS."""
    own = "tensorflow_datasets.core.features."
    return isinstance(value, str) and "." in value and not value.startswith(own)


class Source:
    """Random access to the examples of a split, each a dict of NumPy arrays.

    `source[i]` is one example and `source.__getitems__(indices)` is a list of them, as
    Grain asks for. Negative numbers count from the end.
    """

    def __init__(self, records: Any, label: str):
        """Wrap an open split.

        Args:
          records: the data source of TFDS.
          label: what error messages call it.
        """
        self._records, self._label = records, label

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        """Return several examples.

        Raises:
          IndexError: there is no such example.
          DataError: a file is damaged.
        """
        size = len(self)
        for index in indices:
            if not -size <= index < size:
                raise IndexError(
                    f"{self._label} has {size} examples; there is no number {index}"
                )
        # Negative numbers count from the end.
        rows = [int(index) % size for index in indices]
        try:
            return self._records.__getitems__(rows)
        except Exception as e:
            # The reader has no error class of its own. Every error of it means damage.
            reason = (str(e).splitlines() or [type(e).__name__])[0]
            raise DataError(
                f"{self._label}: cannot be read ({reason}); remove that folder and "
                "prepare the set again"
            ) from e

    def __repr__(self) -> str:
        return f"Source({self._label}, {len(self)} examples)"
