"""Loader of untrusted pickles that contain only lists, dicts, ints and strings.

A pickle is a program for a stack machine, which can import and call any function. This
loader refuses imports, so that nothing can be called. It checks every value afterwards.
This is the list ["red", 7] in protocol 0:

    (lp0          begin a list, and remember it as number 0
    S'red'        a string
    p1            remember it as number 1
    aI7           append it to the list; an int
    a.            append it to the list; end

This is the only module of the package that imports pickle.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from lnrepro.data.encodings import quoted
from lnrepro.data.text import is_text
from lnrepro.errors import DataError

# Values that a pickle may remember by numbers.
LARGEST_NUMBER = 1 << 32
# What each opcode does.
KNOWN: Any = pickle._Unpickler.dispatch


class _PlainUnpickler(pickle._Unpickler):
    """Unpickler that refuses to import anything.

    It is the Python implementation, which takes three times as long as the C one. The C
    one allocates gigabytes if six bytes tell it to remember a value as number 2^32 - 1.
    """

    stack: list
    memo: dict
    readline: Callable[[], bytes]

    def find_class(self, module, name):
        shown = f"{module}.{name}"[:80]
        raise DataError(f"the pickle names {shown!a}, and may contain plain data only")

    def persistent_load(self, pid):
        raise DataError(
            "the pickle refers to data outside itself, and may contain plain data only"
        )

    def _load_bytearray(self) -> None:
        # The unpickler would allocate it before it reads its bytes.
        raise DataError(
            "the pickle contains a bytearray, and may contain plain data only"
        )

    # Few bytes describe values whose hash takes years: tuples of the same tuple twice,
    # many levels deep, or integers of the same hash. Only text is hashed here.

    def _load_set(self) -> None:
        raise DataError("it contains a value of type set, and may contain plain data")

    def _load_dict(self) -> None:
        self._check_keys(self.stack[::2])
        KNOWN[pickle.DICT[0]](self)

    def _load_setitem(self) -> None:
        self._check_keys(self.stack[-2:-1])
        KNOWN[pickle.SETITEM[0]](self)

    def _load_setitems(self) -> None:
        self._check_keys(self.stack[::2])
        KNOWN[pickle.SETITEMS[0]](self)

    def _check_keys(self, keys: list) -> None:
        for key in keys:
            if type(key) is not str:
                raise DataError(
                    f"the pickle contains a dict with a key of type "
                    f"{type(key).__name__}, and may contain text as keys only"
                )

    def _load_put(self) -> None:
        number = int(self.readline())
        if not 0 <= number < LARGEST_NUMBER:
            raise DataError("the pickle numbers more values than it can have")
        self.memo[number] = self.stack[-1]

    dispatch: Any = KNOWN | {
        pickle.BYTEARRAY8[0]: _load_bytearray,
        pickle.EMPTY_SET[0]: _load_set,
        pickle.FROZENSET[0]: _load_set,
        pickle.DICT[0]: _load_dict,
        pickle.SETITEM[0]: _load_setitem,
        pickle.SETITEMS[0]: _load_setitems,
        pickle.PUT[0]: _load_put,
    }


def load(content: bytes, where: object) -> Any:
    """Load a pickle. Byte strings of Python 2 are decoded as UTF-8.

    Args:
      content: the pickle.
      where: name of the file, for error messages.

    Returns:
      Dicts, lists, ints and strings.

    Raises:
      DataError: the pickle is damaged or contains anything else, of which nothing is
        executed. Or its values contain each other so often that there are more of them
        than bytes, or a key of a dict is not text.
    """
    try:
        value = _PlainUnpickler(io.BytesIO(content), encoding="utf-8").load()
    except DataError as e:
        raise DataError(f"{where}: refused, {e}; do not trust it") from None
    # A damaged pickle can raise any error.
    except Exception as e:
        reason = quoted(str(e) or type(e).__name__)
        raise DataError(
            f"{where}: not a pickle that can be read ({reason}); get the official file"
        ) from e
    # Every value takes at least one byte. There is no recursion, because values can be
    # nested as deeply as the file is long.
    waiting, left = [value], len(content)
    while waiting:
        v = waiting.pop()
        if type(v) is dict:
            waiting += (*v, *v.values())
            left -= 2 * len(v)
        elif type(v) is list:
            waiting += v
            left -= len(v)
        elif type(v) is str:
            if not is_text(v):
                raise DataError(
                    f"{where}: refused, {v[:20]!a} cannot be encoded as UTF-8; get the "
                    "official file"
                )
        elif type(v) is not int:
            raise DataError(
                f"{where}: refused, it contains a value of type {type(v).__name__}, "
                "and may contain plain data only"
            )
        if left < 0:
            raise DataError(
                f"{where}: refused, its values contain each other again and again; do "
                "not trust it"
            )
    return value
