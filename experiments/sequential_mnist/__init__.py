"""MNIST read pixel by pixel: does a norm speed up an LSTM over 784 steps?

This task is not in the paper. Le, Jaitly and Hinton (2015) made it a test of recurrent
networks: the network sees one pixel in each step, and names the digit after the last
one. Run with configs/sequential_mnist.py.
"""

from experiments.classification import sizes as sizes

from .experiment import make as make

# Fields of the config that the data set determines, see `sizes`.
SIZES = ("data.train_examples", "data.features", "data.full_ink", "model.classes")
