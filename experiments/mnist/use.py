"""Use of a trained network: `lnrepro.load(run)` returns a `Model`."""

from experiments.classification.use import Classifier

from .model import MLP


class Model(Classifier):
    """A run of experiments.mnist, which classifies images."""

    _network = MLP
