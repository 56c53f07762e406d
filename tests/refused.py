"""Mistakes of users: an error of the right type, in one line that names the place."""

import contextlib
from collections.abc import Iterator

import pytest

from lnrepro.errors import UserError


@contextlib.contextmanager
def refused(*named: str, error: type[Exception] = UserError) -> Iterator[None]:
    """Check that the body raises `error` in one line that has every text of `named`."""
    with pytest.raises(error) as caught:
        yield caught
    line = str(caught.value)
    assert "\n" not in line, line
    for text in named:
        assert text in line, line
