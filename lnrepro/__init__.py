"""Layer Normalization (Ba, Kiros, Hinton 2016) in JAX.

`functional`, `linen`, `nnx` and `convert` are for use in other code. `engine`, `data`
and `main` train the experiments of the paper.
"""

__version__ = "0.1.0"
