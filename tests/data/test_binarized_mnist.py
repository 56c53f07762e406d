"""The parser of .amat files."""

import numpy as np

from lnrepro.data.readers import binarized_mnist

IMAGES = (np.random.RandomState(0).rand(5, 28, 28) < 0.3).astype(np.uint8)
TEXT = "".join(" ".join(map(str, image.ravel())) + "\n" for image in IMAGES).encode()


def test_images_are_read():
    found = binarized_mnist.parse(TEXT, "f")
    np.testing.assert_array_equal(found, IMAGES, strict=True)
