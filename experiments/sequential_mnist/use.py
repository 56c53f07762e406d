"""Use of a trained network: `lnrepro.load(run)` returns a `Model`."""

from experiments.classification.use import Classifier

from .model import PixelLSTM


class Model(Classifier):
    """A run of experiments.sequential_mnist, which classifies images."""

    _network = PixelLSTM
