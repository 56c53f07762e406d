"""Use of a trained network: `lnrepro.load(run)` returns a `Model`."""

from experiments.classification.use import Classifier

from .model import ConvNet


class Model(Classifier):
    """A run of experiments.convnet, which classifies images."""

    _network = ConvNet
