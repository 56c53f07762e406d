"""Lines of handwriting as the network sees them: normalised steps, cut off at a number of them, and the text's symbols."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Lines(Sequence):
    """Examples {"steps" (t, 3) float32: normalised dx, dy and the end of a stroke; "text" (u,) symbol numbers}.

    columns: "strokes" (t_i, 3) integer offsets, "text" (u_i,); facts: "mean", "std" of the training set's offsets;
    length: steps beyond it are cut off, 0 keeps all.
    """

    def __init__(
        self, columns: Mapping[str, Any], facts: Mapping[str, Any], length: int = 0
    ):
        self.strokes, self.texts, self.symbols = (
            columns["strokes"],
            columns["text"],
            facts["symbols"],
        )
        self.mean, self.std = (
            np.array(facts[name], np.float32) for name in ("mean", "std")
        )
        self.length = length or None

    def __len__(self) -> int:
        return len(self.strokes)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        return {
            "steps": self.normalised(self.strokes[i][: self.length]),
            "text": self.texts[i],
        }

    def normalised(self, strokes: np.ndarray) -> np.ndarray:
        """Offsets in the data's coordinates (t, 3) -> normalised (t, 3) float32."""
        steps = np.asarray(strokes, np.float32)
        steps[:, :2] = (steps[:, :2] - self.mean) / self.std
        return steps

    def original(self, steps: np.ndarray) -> np.ndarray:
        """The inverse of `normalised`: (..., 3) in the data's coordinates."""
        steps = np.array(steps, np.float64)
        steps[..., :2] = steps[..., :2] * self.std + self.mean
        return steps

    def text(self, i: int) -> str:
        """The text of line i, "\N{REPLACEMENT CHARACTER}" for a character that is no symbol."""
        return "".join(
            self.symbols[k] if k else "\N{REPLACEMENT CHARACTER}" for k in self.texts[i]
        )
