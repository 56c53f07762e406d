"""Layer Normalization (Ba, Kiros, Hinton 2016) in JAX: `functional`, `linen`, `nnx`, and a trainer for every experiment."""

__version__ = "0.1.0"
