"""Pickles of plain data from strangers: lists, dicts, ints and strings, nothing else, and nothing is executed.

A pickle is a program: it may name any function and call it. This reader knows no function and no class at all, so there
is nothing to call, and afterwards looks at every value's type. The only place of the package that imports pickle.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from lnrepro.errors import DataError


class _Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise DataError(f"the pickle names {f'{module}.{name}'[:80]!a}, and may hold plain data only")

    def persistent_load(self, pid):
        raise DataError("the pickle refers to data outside itself, and may hold plain data only")


def load(content: bytes, where: object) -> Any:
    """The pickled value: dicts, lists, ints and strings in any nesting (Python 2's byte strings are read as UTF-8).

    Raises DataError that begins with `where` for anything else, before any of it runs, and for damaged files.
    """
    try:
        value = _Plain(io.BytesIO(content), encoding="utf-8").load()
    except DataError as e:
        raise DataError(f"{where}: refused, {e}; do not trust it") from None
    except Exception as e:  # a damaged pickle raises whatever its bytes lead to
        what = (str(e).splitlines() or [type(e).__name__])[0]
        raise DataError(f"{where}: not a pickle that can be read ({what}); get the official file") from e
    waiting, seen = [value], set()
    while waiting:  # no recursion: nesting may be as deep as the file is long
        v = waiting.pop()
        if type(v) in (int, str):
            continue
        if type(v) not in (list, dict):
            raise DataError(f"{where}: refused, it holds a {type(v).__name__}, and may hold plain data only")
        if id(v) in seen:  # shared, or within itself
            continue
        seen.add(id(v))
        waiting.extend(v if type(v) is list else (*v, *v.values()))
    return value
