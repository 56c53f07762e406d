"""Lines of handwriting as the network sees them.

Shape letters: t steps of the pen, u characters of the text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.sets import open_set
from lnrepro.fields import Size


class Lines(Sequence):
    """Examples of normalised pen steps and their text.

    An example has "steps", float32 [t, 3]: dx and dy, normalised to mean 0 and variance
    1 over the training set, and 1 where the step ends a stroke. It has "text", the
    numbers of the symbols [u].
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        facts: Mapping[str, Any],
        length: int | None = None,
    ):
        """Wrap the columns of a split.

        Args:
          columns: "strokes", [t, 3] integers for each line, and "text", [u].
          facts: "mean" and "std" of the training set's offsets.
          length: steps of a line; those beyond are cut off. None keeps all.
        """
        self.strokes = columns["strokes"]
        self.texts = columns["text"]
        # Statistics of the training set are facts of the data set, the same for all
        # splits.
        self.mean = np.array(facts["mean"], np.float32)
        self.std = np.array(facts["std"], np.float32)
        self.length = length

    def __len__(self) -> int:
        return len(self.strokes)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        # The text of a line that is cut still has its last characters.
        strokes = self.strokes[i][: self.length]
        return {"steps": self.normalise(strokes), "text": self.texts[i]}

    def normalise(self, strokes: np.ndarray) -> np.ndarray:
        """Return offsets [t, 3] of the data as normalised float32 steps [t, 3]."""
        # A copy, because the columns are read-only.
        steps = np.array(strokes, np.float32)
        # Only dx and dy are normalised. The third column is the end of a stroke.
        steps[:, :2] = (steps[:, :2] - self.mean) / self.std
        return steps

    def denormalise(self, steps: np.ndarray) -> np.ndarray:
        """Return normalised steps [..., 3] in the coordinates of the data."""
        steps = np.array(steps, np.float64)
        steps[..., :2] = steps[..., :2] * self.std + self.mean
        return steps


def open_lines(config: ConfigDict, split: str) -> Lines:
    """Open a split.

    Raises:
      DataError: the set is missing.
    """
    opened = open_set(config)
    return Lines(opened.columns(split), opened.facts, config.model.steps)


def sizes(config: ConfigDict) -> dict[str, Size]:
    """Return what the data set says about fields of the config.

    Raises:
      DataError: the set is missing.
    """
    opened = open_set(config)
    lines = opened.splits
    longest = max(int(opened.columns(name)["text"].lengths.max()) for name in lines)
    return {
        "data.train_examples": Size(lines["train"]),
        "model.symbols": Size(len(opened.facts["symbols"])),
        "model.characters": Size(longest, least=longest),
    }
