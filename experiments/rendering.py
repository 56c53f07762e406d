"""Pictures of evaluations, drawn by matplotlib."""

from typing import Any

import numpy as np


def pixels_of(figure: Any) -> np.ndarray:
    """Render a matplotlib figure, and return uint8 [height, width, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
