"""The parameters of a functional cell as parameters of a linen module."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import traverse_util
from flax.errors import ScopeParamShapeError

from lnrepro.functional import flax_modules
from lnrepro.functional.moments import wide_dtype


def parameter_shapes(module: Any, features_in: int) -> Any:
    """Return the parameters of a module's cell as jax.ShapeDtypeStruct."""
    key = jax.random.key(0)
    return jax.eval_shape(lambda key: _draw(module, key, features_in), key)


def declare_parameters(module: Any, features_in: int) -> Any:
    """Make the parameters of a module's cell, or take the ones that the module has.

    They have the cell's names. Where they are a tuple, such as those of a stack, the
    names are "0", "1" and so on. Where an initialiser of the cell returns a box
    (`nn.with_partitioning`), the parameter gets this box.

    Args:
      module: the module that keeps them, which is bound.
      features_in: D.

    Returns:
      The parameters, without boxes.

    Raises:
      flax.errors.FlaxError: a parameter of another shape, or a missing one.
    """
    shapes = parameter_shapes(module, features_in)
    # Several modules may share a cell, whose parameters are declared once.
    stored = stored_parameters(module, shapes)
    if stored is not None:
        _check_shapes(module, shapes, stored)
        return stored
    names = _nested(shapes)
    if module.is_mutable_collection("params"):
        # All parameters are drawn at once by the cell, and then declared one by one.
        key = module.make_rng("params")
        fresh = _nested(_draw(module, key, features_in), module.functional_cell)
    else:
        # Not mutable: `scope.param` raises Flax's error for the missing parameter.
        fresh = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), names)

    values = {}
    for name in names:
        # The scope's own method works outside of the module's call too, where `RNN`
        # makes the parameters of its cell.
        values[name] = module.scope.param(name, lambda key, name=name: fresh[name])
    return _like(shapes, values)


def stored_parameters(module: nn.Module, shapes: Any) -> Any | None:
    """Return the parameters of a module in the structure of shapes, None if missing."""
    names = _nested(shapes)
    if not all(module.has_variable("params", name) for name in names):
        return None
    values = {name: module.get_variable("params", name) for name in names}
    return _like(shapes, nn.meta.unbox(values))


def _draw(module, key, features_in):
    """Fresh parameters of a module's cell, without the boxes of `nn.with_partitioning`.

    A cell draws each gate's part of a kernel by itself. `declare_parameters` puts the
    joined kernel back into a box.
    """

    def unboxed(name, initializer):
        if initializer is None:
            return None

        def draw(key, shape, dtype=jnp.float32):
            # The only leaf of a box is its value. `unbox` also constrains its sharding.
            (value,) = jax.tree.leaves(initializer(key, shape, dtype))
            return value

        return draw

    cell = flax_modules.map_initializers(module.functional_cell, unboxed)
    return cell.init(key, features_in, module.param_dtype)


def _check_shapes(module, shapes, params):
    """Raise Flax's error where a parameter has another shape than the cell's."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(shapes)
    for (path, own), given in zip(leaves, jax.tree.leaves(params), strict=True):
        if own.shape != jnp.shape(given):
            raise ScopeParamShapeError(
                "/".join(flax_modules.parameter_names(path)),
                module.scope.path_text,
                jnp.shape(given),
                own.shape,
            )


def _nested(params, cell=None):
    """Parameters as nested dicts, in the boxes that the cell's initialisers give."""
    leaves = {}
    for path, value in jax.tree_util.tree_flatten_with_path(params)[0]:
        path = flax_modules.parameter_names(path)
        initializer = None if cell is None else flax_modules.initializer_of(cell, path)
        leaves[path] = value if initializer is None else _boxed(initializer, value)
    return traverse_util.unflatten_dict(leaves)


def _boxed(initializer, value):
    """The value in the box, or boxes, that the initialiser returns."""

    def init(key):
        # An orthogonal initialiser has no float16 or bfloat16.
        return initializer(key, value.shape, wide_dtype(value.dtype))

    # As in `_draw`, the only leaf of a box is its value.
    box = jax.eval_shape(init, jax.random.key(0))
    return jax.tree.map(lambda shape: value, box)


def _like(shapes, nested):
    """Nested dicts in the structure of the cell's own parameters."""
    leaves = traverse_util.flatten_dict(nested)
    paths, structure = jax.tree_util.tree_flatten_with_path(shapes)
    names = [flax_modules.parameter_names(path) for path, _ in paths]
    missing = ["/".join(name) for name in names if name not in leaves]
    if missing:
        raise ValueError(f"the parameters of the cell have no {', '.join(missing)}")
    return jax.tree.unflatten(structure, [leaves[name] for name in names])
