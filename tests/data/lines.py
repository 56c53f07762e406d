"""Small text files for the tests: binary images, and pairs of sentences."""

import numpy as np

from lnrepro.data.readers.sentences import HEADER

IMAGES = (np.random.RandomState(0).rand(5, 28, 28) < 0.3).astype(np.uint8)
AMAT = "".join(" ".join(map(str, image.ravel())) + "\n" for image in IMAGES).encode()
# A pair of sentences in a file of SICK.
ROW = "1\tA dog is running\tThe dog runs\t4.5\tENTAILMENT"


def table(*rows, header=HEADER, end="\n"):
    """A file of SICK."""
    return (end.join([header, *rows]) + end).encode()
