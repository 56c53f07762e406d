"""Reading of small official files in tests."""

import contextlib
import pathlib
from collections.abc import Iterator

import pytest

from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader
from lnrepro.errors import DataError


def read(reader: Reader, folder: pathlib.Path, official: bool = False) -> Content:
    """Read the files of a folder without preparing the set."""
    assert reader.read is not None
    return reader.read(RawFolder("set", folder, reader.files, official=official))


@contextlib.contextmanager
def refused(message: str) -> Iterator[None]:
    """Check that files are refused in one line that matches a message."""
    with pytest.raises(DataError, match=message) as e:
        yield
    assert str(e.value).isprintable()


def write(folder: pathlib.Path, files: dict[str, str | bytes]) -> pathlib.Path:
    """Write files, by their paths in a folder, and return the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder
