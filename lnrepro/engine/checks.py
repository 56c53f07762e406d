"""Checks of a config's fields, named as on the command line: "model.units"."""

from collections.abc import Collection
from operator import attrgetter

from ml_collections import ConfigDict

from lnrepro.engine.errors import DataError, UserError


def check_choice(config: ConfigDict, field: str, choices: Collection[str]) -> None:
    """Check that a field has one of the values in `choices`.

    Args:
      config: the config of the run.
      field: dotted name of the field, such as "norm".
      choices: the values allowed.

    Raises:
      UserError: the field has another value.
    """
    value = attrgetter(field)(config)
    if value not in choices:
        allowed = ", ".join(choices)
        raise UserError(f"config.{field} = {value!r}: choose one of {allowed}")


def check_at_least(config: ConfigDict, least: int, *fields: str) -> None:
    """Check that each field is a number of at least `least`.

    Args:
      config: the config of the run.
      least: the smallest value allowed.
      *fields: dotted names of the fields, such as "model.units".

    Raises:
      UserError: a field is smaller.
    """
    for field in fields:
        value = attrgetter(field)(config)
        if value < least:
            raise UserError(f"config.{field} = {value}: at least {least} is needed")


def check_data(config: ConfigDict, field: str, actual: object) -> None:
    """Check that a field states what the data set `config.data.name` has.

    Args:
      config: the config of the run.
      field: dotted name of the field, such as "data.train_examples".
      actual: the value that the data set has.

    Raises:
      DataError: the field has another value.
    """
    value = attrgetter(field)(config)
    if value != actual:
        raise DataError(
            f"config.{field} = {value}, but {config.data.name} has {actual}; "
            "set it to that"
        )
