"""Defaults that the library and the configs share."""

# `ScanOptions(kernels=...)` and `config.kernels`.
KERNELS = "auto"
