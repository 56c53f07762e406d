"""What every computation asks of arrays: precision, rank, and where they lie.

Shape letters: H hidden units, N features, units or pre-activations.
"""

from typing import Any

import jax
import jax.numpy as jnp


def wide_dtype(dtype: jax.typing.DTypeLike) -> Any:
    """Return the dtype of floating-point numbers, or float32 where it is narrower."""
    # `jnp.promote_types` refuses bfloat16 under strict promotion.
    if jnp.finfo(dtype).bits < 32:
        return jnp.float32
    return jnp.dtype(dtype)


def at_least_f32(a: Any) -> jax.Array:
    """Return a in float32 at least, for statistics and gates, if it is floating point.

    A count or a flag, as the carry of a user's cell may have, keeps its dtype.
    """
    a = jnp.asarray(a)
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return a
    return a.astype(wide_dtype(a.dtype))


def tree_at_least_f32(tree: Any) -> Any:
    """Return a pytree with its floating-point arrays in float32 at least."""
    return jax.tree.map(at_least_f32, tree)


def floating(tree: Any) -> Any:
    """Return a pytree with None in place of what is neither floating point nor complex.

    What is left has gradients.
    """

    def choose(a):
        return a if jnp.issubdtype(a.dtype, jnp.inexact) else None

    return jax.tree.map(choose, tree)


def with_floating(tree: Any, arrays: Any) -> Any:
    """Return a pytree with its floating-point arrays from another one.

    Args:
      tree: the pytree.
      arrays: as `floating` returns them.
    """
    return jax.tree.map(lambda a, new: a if new is None else new, tree, arrays)


def clone_keys(tree: Any) -> Any:
    """Return a pytree whose keys are copies, which may be read once more."""

    def clone(a):
        is_key = jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
        return jax.random.clone(a) if is_key else a

    return jax.tree.map(clone, tree)


def row(vector: jax.Array, a: jax.Array) -> jax.Array:
    """Give a vector [N] as many axes as a [..., N], in the dtype of a."""
    return vector.astype(a.dtype).reshape((1,) * (a.ndim - 1) + vector.shape)


def add_row(a: jax.Array, params: dict, name: str) -> jax.Array:
    """Add a bias where there is one.

    Args:
      a: [..., N].
      params: parameters, which may have the bias [N].
      name: name of the bias.

    Returns:
      The sum, or a as it is.
    """
    if name not in params:
        return a
    return a + row(params[name], a)


def gather_from(a: jax.Array, axis: int = 0) -> jax.Array:
    """Return an array whose axes from `axis` on are whole on every device."""
    spec = jax.typeof(a).sharding.spec
    # Without a mesh, and with Auto axes, nothing stands here.
    if not any(spec[axis:]):
        return a
    # Axes that a spec does not name are whole.
    return jax.sharding.reshard(a, jax.sharding.PartitionSpec(*spec[:axis]))


def zeros_for(x: jax.Array, features: int) -> jax.Array:
    """Zeros [..., H] with the batch axes and sharding of x, in float32 at least."""
    x = gather_from(x, x.ndim - 1)
    column = x[..., :1]
    # Nothing is less than itself, not even NaN: x gives its axes and sharding alone.
    zeros = (column < column).astype(wide_dtype(x.dtype))
    return jnp.broadcast_to(zeros, (*x.shape[:-1], features))


def unify_manual_axes(tree: Any) -> Any:
    """Inside shard_map, make all arrays vary over the axes over which any of them does.

    The carry of a loop then keeps one type, and gradients are summed over devices once,
    not at every step.
    """
    # No array varies outside shard_map, and then there is nothing to do.
    axes = frozenset().union(*map(varying_axes, jax.tree.leaves(tree)))
    if not axes:
        return tree

    def vary(a):
        missing = tuple(axes - varying_axes(a))
        return jax.lax.pcast(a, missing, to="varying") if missing else a

    return jax.tree.map(vary, tree)


def varying_axes(a: Any) -> frozenset[str]:
    """Return the manual axes of shard_map over which an array varies."""
    kind = jax.typeof(a)
    # The attribute was renamed in JAX 0.11.
    if hasattr(kind, "manual_axis_type"):
        return kind.manual_axis_type.varying
    return kind.vma
