"""Use of a trained network: `lnrepro.load(run)` returns a `Model`."""

from experiments.classification.use import Classifier

from .model import ConvNet, input_shape


class Model(Classifier):
    """A run of experiments.convnet, which classifies images."""

    _network = ConvNet
    _input_shape = staticmethod(input_shape)
