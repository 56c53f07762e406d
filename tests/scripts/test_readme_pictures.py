"""The moving picture of README: its size, its frames and their order."""

import numpy as np
from PIL import Image

from scripts.readme_pictures import shrink


def test_an_animation_is_half_as_large_and_fast_without_its_caption(tmp_path):
    frames = []
    for level in (0, 255):
        # A caption of 20 rows above the grid of 2 x 8 images.
        page = np.full((20 + 227, 905, 3), 100, np.uint8)
        page[20:] = level
        frames.append(Image.fromarray(page))
    first, last = frames
    path = tmp_path / "run.gif"
    first.save(path, save_all=True, append_images=[last], duration=[80, 960])
    shrink(path, tmp_path / "draw.gif")
    with Image.open(tmp_path / "draw.gif") as small:
        assert small.size == (452, 113)
        durations = []
        for i, level in enumerate((0, 255)):
            small.seek(i)
            durations.append(small.info["duration"])
            assert np.asarray(small.convert("L")).min() == level
            assert np.asarray(small.convert("L")).max() == level
        assert durations == [160, 1920]
