"""Checks of the fields of a class and of arguments, each with one clear message."""

import operator
from typing import Any


def positive_integer(owner: str, name: str, value: Any) -> None:
    """Check a field that counts something.

    Args:
      owner: name of the class or function, for the message.
      name: name of the field, for the message.
      value: what the user gave.

    Raises:
      ValueError: value is no positive integer.
    """
    # NumPy's integers are integers too, and True is one to Python only.
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{owner}: {name}={value!r}; it must be a positive integer")


def choice(owner: str, name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Check a field that has a few allowed values.

    Args:
      owner: name of the class or function, for the message.
      name: name of the field, for the message.
      value: what the user gave.
      allowed: the values that the field may have.

    Raises:
      ValueError: value is none of them.
    """
    if value not in allowed:
        raise ValueError(
            f"{owner}: {name}={value!r}; choose one of {', '.join(map(repr, allowed))}"
        )


def not_negative(owner: str, name: str, value: Any) -> None:
    """Check a number that may be zero, if it is known while tracing.

    Args:
      owner: name of the class or function, for the message.
      name: name of the field, for the message.
      value: what the user gave.

    Raises:
      ValueError: value is below 0, or is no number.
    """
    if isinstance(value, int | float) and not value >= 0:
        raise ValueError(f"{owner}: {name}={value} must be 0 or more")
