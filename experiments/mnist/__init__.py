"""Permutation-invariant MNIST classification (section 6.6, Figure 6).

A multi-layer perceptron with layer, batch or no normalisation. Figure 6 compares them
at batch sizes 128 and 4. Run with configs/mnist.py.
"""

from .data import SIZES as SIZES
from .data import sizes as sizes
from .experiment import make as make
