"""The parameters of a functional cell as variables of an nnx module."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util

from lnrepro.functional.cells.base import Initializer, wide_dtype
from lnrepro.functional.flax_modules import parameter_names

Metadata = Mapping[str, Any]
NO_METADATA: Metadata = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Origin:
    """How a parameter is made: its initialiser, and metadata of its variable."""

    initializer: Initializer | None
    metadata: Metadata


@dataclasses.dataclass(frozen=True)
class Plain:
    """An initialiser without the metadata that `nnx.with_partitioning` adds.

    A cell draws each gate's part of a kernel by itself. The module gives the metadata
    to the variable of the joined kernel, see `set_parameters`.
    """

    initializer: Initializer

    def __call__(self, key, shape, dtype=jnp.float32):
        """Draw a value."""
        value = self.initializer(key, shape, dtype)
        if isinstance(value, nnx.VariableMetadata):
            return value.raw_value
        return value


def set_parameters(module: Any, params: Any, origins: Mapping[str, Origin]) -> None:
    """Keep the parameters of a cell in a module.

    A cell whose parameters are a dict has them in the module by their names. Where they
    are a tuple, such as those of a stack, the names are "0", "1" and so on.

    Args:
      module: gets one nnx.Param per array, and the attributes `parameter_paths` and
        `parameter_structure`.
      params: the parameters.
      origins: by the name of a parameter: "w_x", "w_h", "bias", or "gain" for all
        gains.

    Raises:
      ValueError: the module has another attribute of that name.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    paths = tuple(parameter_names(path) for path, _ in leaves)
    variables = {}
    for path, (_, value) in zip(paths, leaves, strict=True):
        # All gains have one initialiser and one metadata.
        name = "gain" if path[-1].startswith("gain_") else path[-1]
        variables[path] = _variable(value, origins.get(name))
    for name, variable in traverse_util.unflatten_dict(variables).items():
        # A parameter must not hide a method or another attribute.
        if hasattr(module, name):
            raise ValueError(
                f"{type(module).__name__}: the cell has a parameter {name!r}, which is "
                "the name of an attribute of the module"
            )
        setattr(module, name, _as_module(variable))
    module.parameter_paths = paths
    module.parameter_structure = structure


def get_parameters(module: Any) -> Any:
    """Return the parameters of a module's cell as arrays."""
    leaves = []
    # Follow the names, such as ("0", "w_h") of a stack, to the variable.
    for path in module.parameter_paths:
        node = module
        for name in path:
            node = getattr(node, name)
        leaves.append(node[...])
    return jax.tree.unflatten(module.parameter_structure, leaves)


def _variable(value, origin):
    """A variable with the metadata of its origin."""
    if origin is None:
        return nnx.Param(value)
    described = _described(origin.initializer, value)
    if described is not None:
        # The metadata of the initialiser, around the joined value.
        value = dataclasses.replace(described, raw_value=value)
    return nnx.Param(value, **origin.metadata)


def _described(initializer, value):
    """What an initialiser with metadata returns for such a value; else None."""
    if initializer is None:
        return None
    described = None

    def init(key):
        nonlocal described
        # An orthogonal initialiser has no float16 or bfloat16.
        drawn = initializer(key, value.shape, wide_dtype(value.dtype))
        if isinstance(drawn, nnx.VariableMetadata):
            described, drawn = drawn, drawn.raw_value
        return drawn

    # Nothing is computed; the metadata are static.
    jax.eval_shape(init, jax.random.key(0))
    return described


def _as_module(tree):
    """Nested dicts of variables as nested nnx.Dict."""
    if not isinstance(tree, dict):
        return tree
    return nnx.Dict({name: _as_module(value) for name, value in tree.items()})
