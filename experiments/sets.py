"""The data set that a config names."""

from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.set_folder import SetFolder


def open_set(config: ConfigDict) -> SetFolder:
    """Open the data set `config.data.name`.

    Raises:
      DataError: it is missing or damaged.
    """
    return data.open_set(config.data.name, config.data.dir)
