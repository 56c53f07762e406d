"""The data set that a config names."""

from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.set_folder import SetFolder


def open_set(config: ConfigDict, name: str | None = None) -> SetFolder:
    """Open a data set.

    Args:
      config: `data.dir` is the folder of all sets.
      name: the set. Default: `config.data.name`.

    Raises:
      DataError: it is missing or damaged.
    """
    return data.open_set(name or config.data.name, config.data.dir)
