"""Use of a trained network: `lnrepro.load(run)` returns a `Model`.

Shape letters: n points.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from lnrepro.data.readers.handwriting import encode
from lnrepro.data.text import plain_text
from lnrepro.engine import inputs
from lnrepro.engine.loaded_run import LoadedRun, logger
from lnrepro.errors import UserError
from lnrepro.fields import check_seed

from .data import Lines
from .model import Network
from .writing import WrittenLine, strokes_of
from .writing import write as sample

MAX_CHARACTERS = 1000
# A line takes at most STEPS_PER_CHARACTER * characters + EXTRA_STEPS pen steps.
STEPS_PER_CHARACTER = 40
EXTRA_STEPS = 50


class Line(NamedTuple):
    """A written line.

    Attributes:
      text: the text, with plain quotation marks and dashes.
      other: its characters that are not symbols, which are written as one of them.
      strokes: points [n, 2] of each stroke of the pen, in the units of the data, with y
        downwards.
      written: what the network computed.
    """

    text: str
    other: tuple[str, ...]
    strokes: list[np.ndarray]
    written: WrittenLine


class Model(LoadedRun):
    """A run of experiments.handwriting, which writes texts."""

    def write(
        self,
        text: str,
        seed: int = 0,
        *,
        bias: float = 1.0,
        steps: int | None = None,
    ) -> list[np.ndarray]:
        """Write one line, see `write_lines`.

        Args:
          text: at most 1,000 characters. The network was trained on lines of at most
            `config.model.characters`.
          seed: another seed writes another line; below 2^32.
          bias: 0 samples from the density itself, larger values are neater; up to 20.
          steps: largest number of pen steps. None takes 40 for each character and 50.

        Returns:
          The points [n, 2] of each stroke of the pen, in the units of the data, with y
          downwards.

        Raises:
          UserError: an argument that is not possible, or a point that is not finite.
        """
        (line,) = self.write_lines([text], seed, bias=bias, steps=steps)
        return line.strokes

    def write_lines(
        self,
        texts: Sequence[str],
        seed: int = 0,
        *,
        bias: float = 1.0,
        steps: int | None = None,
    ) -> list[Line]:
        """Write several lines together.

        What was not written as it should is logged, by the logger "lnrepro".

        Args:
          texts: the text of each line.
          seed: as for `write`.
          bias: as for `write`.
          steps: as for `write`; None takes that of the longest line.

        Raises:
          UserError: an argument that is not possible, or a point that is not finite.
        """
        texts = [plain_text(t) for t in inputs.texts(texts, "texts")]
        for text in texts:
            if not text.strip():
                raise UserError("the text is empty: give the text to write")
            if len(text) > MAX_CHARACTERS:
                raise UserError(
                    f"the text has {len(text):,} characters: at most "
                    f"{MAX_CHARACTERS:,} are written at once"
                )
        check_seed(seed)
        if not 0 <= bias <= 20:
            raise UserError(f"bias = {bias}: it must lie between 0 and 20")
        if steps is not None and steps < 1:
            raise UserError(f"steps = {steps}: at least 1 is needed")
        # All lines are written as one batch, so the longest one sets the limit.
        longest = max(len(text) for text in texts)
        written = sample(
            self._network,
            self.params,
            [encode(text, self._numbers) for text in texts],
            jax.random.key(seed),
            bias=bias,
            steps=steps or STEPS_PER_CHARACTER * longest + EXTRA_STEPS,
        )
        lines = []
        for text, one in zip(texts, written, strict=True):
            other = tuple(sorted(set(text) - self._numbers.keys()))
            # From normalised offsets to strokes in the units of the data.
            steps = self.scale.denormalise(one.steps)
            inputs.finite(steps, f"points of {text[:40]!a}", inputs.BROKEN)
            strokes = strokes_of(steps)
            lines.append(Line(text, other, strokes, one))
            if other:
                count, listed = len(self._numbers), " ".join(other)
                logger.warning(
                    "not among the %d symbols, written as 'other': %s", count, listed
                )
            if not one.ended:
                logger.warning(
                    "%r was not finished; train longer, or raise steps or bias", text
                )
        return lines

    @functools.cached_property
    def scale(self) -> Lines:
        """The scale of the pen steps in the training set, stored in the run."""
        return Lines({"strokes": [], "text": []}, self.facts)

    @functools.cached_property
    def _network(self):
        return Network(self.config)

    @functools.cached_property
    def _numbers(self):
        return {symbol: i for i, symbol in enumerate(self.facts["symbols"])}
