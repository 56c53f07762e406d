"""The parameters of a functional cell as variables of an nnx module."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util

from lnrepro import functional
from lnrepro.functional import flax_modules
from lnrepro.functional.moments import wide_dtype

Metadata = Mapping[str, Any]
NO_METADATA: Metadata = MappingProxyType({})


def init_key(module: Any, rngs: Any) -> jax.Array:
    """Return a key for initialisers, of the stream "params".

    Args:
      module: the module, for the message.
      rngs: its argument.

    Raises:
      TypeError: it is no nnx.Rngs.
    """
    if not isinstance(rngs, nnx.Rngs):
        raise TypeError(
            f"{type(module).__name__}: rngs has the type "
            f"{type(rngs).__name__}; give rngs=nnx.Rngs(0), with a seed or key of yours"
        )
    return rngs.params()


def with_default_initializers(cell: functional.Cell) -> functional.Cell:
    """Return the cell with the default initialisers in place of its own.

    Two modules that were drawn by different functions then have equal graph
    definitions.
    """
    defaults = functional.LSTMCell(1)
    return flax_modules.map_initializers(cell, lambda name, _: getattr(defaults, name))


def make_parameters(
    module: Any,
    cell: functional.Cell,
    key: jax.Array,
    metadata: Mapping[str, Metadata],
) -> None:
    """Draw the parameters of a cell, and keep them in a module.

    They have the cell's names. Where they are a tuple, such as those of a stack, the
    names are "0", "1" and so on. Variables have the metadata that initialisers add.

    Args:
      module: gets the variables, and what `get_parameters` finds them by. Its fields
        in_features and param_dtype are read.
      cell: the cell.
      key: random key.
      metadata: more metadata, by the names of the parameters: "w_x", "w_h", "bias", or
        "gain" for all gains.

    Raises:
      ValueError: the module has another attribute of that name.
    """

    def without_metadata(name, initializer):
        if initializer is None:
            return None

        # A cell draws each gate's part of a kernel by itself. The variable of the
        # joined kernel gets what `nnx.with_partitioning` adds, see `_described`.
        def draw(key, shape, dtype=jnp.float32):
            value = initializer(key, shape, dtype)
            is_described = isinstance(value, nnx.VariableMetadata)
            return value.raw_value if is_described else value

        return draw

    cell_of_arrays = flax_modules.map_initializers(cell, without_metadata)
    params = cell_of_arrays.init(key, module.in_features, module.param_dtype)
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    paths = tuple(flax_modules.parameter_names(path) for path, _ in leaves)
    variables = {}
    for path, (_, value) in zip(paths, leaves, strict=True):
        value = _described(flax_modules.initializer_of(cell, path), value)
        name = "gain" if path[-1].startswith("gain_") else path[-1]
        variables[path] = nnx.Param(value, **metadata.get(name, {}))
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


def _described(initializer, value):
    """The value with the metadata that an initialiser adds, if any."""
    if initializer is None:
        return value
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
    if described is None:
        return value
    return dataclasses.replace(described, raw_value=value)


def _as_module(tree):
    """Nested dicts of variables as nested nnx.Dict."""
    if not isinstance(tree, dict):
        return tree
    return nnx.Dict({name: _as_module(value) for name, value in tree.items()})
