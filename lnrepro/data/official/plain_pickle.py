"""Pickles of plain data from strangers: lists, dicts, ints and strings, nothing else, and nothing is executed.

A pickle is a program: it may name any function and call it. This reader knows no function and no class at all, so there
is nothing to call, and afterwards looks at every value. The only place of the package that imports pickle.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from lnrepro.data.text import is_text
from lnrepro.engine.errors import DataError


class _Plain(pickle._Unpickler):
    # Python's own unpickler, a third as fast as C's: that one fills gigabytes when six bytes tell it to remember a value
    # as number 2^32 - 1 of an array, where this one has a dict.
    def find_class(self, module, name):
        raise DataError(
            f"the pickle names {f'{module}.{name}'[:80]!a}, and may hold plain data only"
        )

    def persistent_load(self, pid):
        raise DataError(
            "the pickle refers to data outside itself, and may hold plain data only"
        )

    def _bytearray(self):  # would be reserved whole before any of it is read
        raise DataError("the pickle holds a bytearray, and may hold plain data only")

    dispatch = pickle._Unpickler.dispatch | {pickle.BYTEARRAY8[0]: _bytearray}


def load(content: bytes, where: object) -> Any:
    """The pickled value: dicts, lists, ints and strings in any nesting (Python 2's byte strings are read as UTF-8).

    Raises DataError that begins with `where` for anything else, before any of it runs, for damaged files, and for values
    that hold one another so often that walking them is longer than the file, or without end.
    """
    try:
        value = _Plain(io.BytesIO(content), encoding="utf-8").load()
    except DataError as e:
        raise DataError(f"{where}: refused, {e}; do not trust it") from None
    except Exception as e:  # a damaged pickle raises whatever its bytes lead to
        what = ascii(str(e)[:80] or type(e).__name__)
        raise DataError(
            f"{where}: not a pickle that can be read ({what}); get the official file"
        ) from e
    waiting, left = [value], len(content)  # every value takes a byte at least
    while waiting:  # no recursion: nesting may be as deep as the file is long
        v = waiting.pop()
        if type(v) in (list, dict):
            left -= len(v) * (1 if type(v) is list else 2)
            if left < 0:
                raise DataError(
                    f"{where}: refused, its values hold one another again and again; do not trust it"
                )
            waiting.extend(v if type(v) is list else (*v, *v.values()))
        elif type(v) is str:
            if not is_text(v):
                raise DataError(
                    f"{where}: refused, {v[:20]!a} is no text; get the official file"
                )
        elif type(v) is not int:
            raise DataError(
                f"{where}: refused, it holds a {type(v).__name__}, and may hold plain data only"
            )
    return value
