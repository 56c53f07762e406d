"""Products with weights that are known by name: the `dot` of a step, and gradients.

Shape letters: D inputs and N outputs of a product, G blocks, K gates, U units of a gate
in a block.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from lnrepro.functional.arrays import at_least_f32, gather_from, wide_dtype
from lnrepro.functional.fast import platform

Dot = Callable[[str, jax.Array], jax.Array]
# Arrays by the names of weights.
Weights = dict[str, jax.Array]


@dataclasses.dataclass
class NamedProducts:
    """The `dot` of one call of a step, with a record of its products.

    Attributes:
      weights: {name: weight}.
      compute: (name, v [..., D], weight) -> product. None multiplies.
      inputs: {name: v [..., D]} of the products taken so far.
      computed: {name: product [..., N]} of them, in the weights' dtypes.
      level: of JAX's transformations, where the step was called.
      is_inner: whether a product was taken inside of another one, such as
        `jax.checkpoint`. It is not recorded, since its values do not leave that.
    """

    weights: Weights
    compute: Callable[[str, jax.Array, jax.Array], jax.Array] | None = None
    inputs: Weights = dataclasses.field(default_factory=dict)
    computed: Weights = dataclasses.field(default_factory=dict)
    level: Any = dataclasses.field(default_factory=get_opaque_trace_state)
    is_inner: bool = False

    def dot(self, name: str, v: jax.Array) -> jax.Array:
        """Multiply by the weight of that name.

        Args:
          name: name of the weight.
          v: [..., D].

        Returns:
          The product [..., N] in float32 at least. Where the weights are narrow, v is
          rounded to their dtype, and the product is not: a gate near 1 that is rounded
          to bfloat16 forgets within some hundred steps, or never.

        Raises:
          ValueError: there is no such weight, or its product was taken before.
        """
        if name not in self.weights:
            raise ValueError(
                f"dot: there is no weight {name!r}; the weights are "
                f"{', '.join(sorted(self.weights))}"
            )
        if get_opaque_trace_state() != self.level:
            self.is_inner = True
            return wide_product(v, self.weights[name])
        # The backward pass knows a product by its name, so a name stands for one.
        if name in self.inputs:
            raise ValueError(
                f"dot: the product {name!r} is used twice in one step; give the second "
                "one a name of its own in the weights"
            )
        self.inputs[name] = v
        weight = self.weights[name]
        if self.compute is None:
            product = wide_product(v, weight)
        else:
            product = at_least_f32(self.compute(name, v, weight))
        # A product that is kept takes no more memory than its weight's dtype asks for.
        self.computed[name] = product.astype(weight.dtype)
        return product


def named_dot(weights: Weights) -> Dot:
    """Return the `dot` for running one step by itself.

    >>> named_dot({"w": jax.numpy.ones((2, 3))})("w", jax.numpy.ones(2))
    Array([2., 2., 2.], dtype=float32)
    """
    return NamedProducts(weights).dot


def multiply(v: jax.Array, weight: jax.Array, is_wide: bool = False) -> jax.Array:
    """Multiply by a dense or block-diagonal weight.

    Under a mesh with Explicit axes the units of the result are gathered, so that a
    weight may be sharded along its units while the carry of a scan is not.

    Args:
      v: [..., D], which is cast to the weight's dtype.
      weight: [D, N], or blocks [G, D / G, N / G], or [G, D / G, K, U] for K gates,
        where N = K G U.
      is_wide: whether the product is in float32 at least. Otherwise it has the
        weight's dtype.

    Returns:
      The product [..., N]. With K gates its units are in the order gate, block, unit,
      as those of a dense weight are.
    """
    # A carry may be wider than the weights.
    v = v.astype(weight.dtype)
    dtype = None
    if is_wide:
        dtype = wide_dtype(weight.dtype)
    if weight.ndim == 2:
        product = jnp.matmul(v, weight, preferred_element_type=dtype)
        return gather_from(product, v.ndim - 1)
    parts = v.reshape(*v.shape[:-1], *weight.shape[:2])
    split = jax.typeof(weight).sharding.spec[0]
    if split is not None:
        # A mesh that splits the blocks of the weight splits those of v alike.
        rows = jax.typeof(parts).sharding.spec[:-2]
        parts = jax.sharding.reshard(parts, jax.sharding.PartitionSpec(*rows, split))
    # With K gates the blocks of a gate stand side by side, as jnp.split wants them.
    by_block = "...gd,gdn->...gn" if weight.ndim == 3 else "...gd,gdku->...kgu"
    if is_wide and "cpu" in (platform.current(), jax.default_backend()):
        # With jax 0.12, XLA has no such products of bfloat16 on a CPU, for which the
        # process of a GPU may trace too. In float32 they are the same numbers.
        parts, weight = parts.astype(dtype), weight.astype(dtype)
    y = jnp.einsum(by_block, parts, weight, preferred_element_type=dtype)
    y = gather_from(y, v.ndim - 1)
    return y.reshape(*v.shape[:-1], weight.size // weight.shape[1])


def plain_product(name: str, v: jax.Array, weight: jax.Array) -> jax.Array:
    """Return `multiply` in float32 at least, with JAX's own derivative.

    Args:
      name: name of the weight, which changes nothing.
      v, weight: as for `multiply`.
    """
    del name
    return multiply(v, weight, is_wide=True)


def wide_product(v: jax.Array, weight: jax.Array) -> jax.Array:
    """Return `multiply` in float32 at least; the products of its gradient are narrow.

    JAX's own derivative of a product with a wider result multiplies a wide array by a
    narrow one, which GPUs do in the wider dtype.

    Args:
      v: [..., D].
      weight: [D, N] or blocks, as for `multiply`.
    """
    if wide_dtype(weight.dtype) == weight.dtype:
        return multiply(v, weight)
    return _wide_product(v.astype(weight.dtype), weight)


@jax.custom_jvp
def _wide_product(v, weight):
    return multiply(v, weight, is_wide=True)


@_wide_product.defjvp
def _(primals, tangents):
    return _wide_product(*primals), at_least_f32(
        jax.jvp(multiply, primals, tangents)[1]
    )


def weight_gradient(v: jax.Array, d: jax.Array, weight: jax.Array) -> jax.Array:
    """Gradient of multiply(v, weight) with respect to the weight.

    Args:
      v: [..., D], the inputs of the product, all steps at once.
      d: [..., N], the cotangents of the product.
      weight: [D, N] or blocks, as for `multiply`.
    """
    # Explicit axes restrict reshapes.
    is_sharded = any(any(jax.typeof(a).sharding.spec) for a in (d, v, weight))
    if weight.ndim != 2 or platform.current() != "cpu" or is_sharded:
        return jax.vjp(lambda w: multiply(v, w), weight)[1](d)[0]
    # As one product of two matrices, XLA's CPU backend needs no transposed copies.
    # Elsewhere the axes stay apart: where a mesh splits the batch, time and batch as
    # one axis would be gathered on every device.
    rows_v = v.astype(weight.dtype).reshape(-1, v.shape[-1])
    rows_d = d.reshape(-1, d.shape[-1])
    return jax.lax.dot_general(rows_v, rows_d, (((0,), (0,)), ((), ())))


@jax.custom_vjp
def replayed(v: jax.Array, weight: jax.Array, kept: jax.Array) -> jax.Array:
    """Return `kept`, which equals multiply(v, weight), without computing it again.

    Args:
      v: [..., D].
      weight: [D, N] or blocks, as for `multiply`. It gets no gradient.
      kept: [..., N]. Its gradient is that of the product, from which the gradient of
        the weight is formed later for many steps at once.
    """
    return kept


def _replayed_forward(v, weight, kept):
    return kept, (v, weight)


def _replayed_backward(saved, d):
    v, weight = saved
    (d_v,) = jax.vjp(lambda v: multiply(v, weight), v)[1](d)
    # The order is v, weight, kept.
    return d_v, None, d


replayed.defvjp(_replayed_forward, _replayed_backward)
