"""The data set that a config names, and batches of its examples."""

from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import eval_batches, train_batches
from lnrepro.data.plan import Plan
from lnrepro.data.set_folder import SetFolder
from lnrepro.data.stream import Stream


def open_set(config: ConfigDict, name: str | None = None) -> SetFolder:
    """Open a data set.

    Args:
      config: `data.dir` is the folder of all sets.
      name: the set. Default: `config.data.name`.

    Raises:
      DataError: it is missing or damaged.
    """
    return data.open_set(name or config.data.name, config.data.dir)


def training_batches(config: ConfigDict, start_step: int) -> Stream:
    """Return endless shuffled batches of the split "train".

    Args:
      config: the config of the run.
      start_step: number of the first batch.
    """
    opened = open_set(config)
    plan = Plan(opened.splits["train"], config.batch_size, config.seed)
    return train_batches(opened.columns("train"), plan, start_step=start_step)


def evaluation_batches(config: ConfigDict, split: str) -> Stream:
    """Return batches of all examples of a split, the last one padded and masked."""
    return eval_batches(open_set(config).columns(split), config.eval_batch_size)
