"""Loader of pickles that contain only lists, dicts, numbers and text.

A pickle is a program for a stack machine, which can import and call any function. This
loader refuses imports, so that nothing can be called. This is the only module of the
package that imports pickle.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from lnrepro.data.files import quoted
from lnrepro.errors import DataError


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that refuses to import anything."""

    def find_class(self, module: str, name: str) -> None:
        raise pickle.UnpicklingError(
            f"it names {module}.{name}, and may contain plain data only"
        )


def load(content: bytes, where: object) -> Any:
    """Load a pickle. Byte strings of Python 2 are decoded as UTF-8.

    Args:
      content: the pickle.
      where: name of the file, for error messages.

    Raises:
      DataError: the pickle is damaged or names a class or a function, which is not
        called.
    """
    try:
        return _PlainUnpickler(io.BytesIO(content), encoding="utf-8").load()
    # A damaged pickle can raise any error.
    except Exception as e:
        reason = quoted(str(e) or type(e).__name__)
        raise DataError(
            f"{where}: not a plain pickle ({reason}); get the official file"
        ) from e
