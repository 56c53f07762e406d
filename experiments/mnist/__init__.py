"""Permutation-invariant MNIST classification (section 6.6, Figure 6).

A multi-layer perceptron with layer, batch or no normalisation. Figure 6 compares them
at batch sizes 128 and 4. Run with configs/mnist.py.
"""

from experiments.classification import sizes as sizes

from .experiment import make as make

# Fields of the config that the data set determines, see `sizes`.
SIZES = ("data.train_examples", "data.features", "data.full_ink", "model.classes")
