"""Products with weights that are known by name: the `dot` of a step.

Shape letters: D inputs and N outputs of a product.
"""

from collections.abc import Callable

import jax

from lnrepro.functional.fast import products

Dot = Callable[[str, jax.Array], jax.Array]
Weights = dict[str, jax.Array]


class NamedProducts:
    """The `dot` of one call of a step or of `project`, with a record of its products.

    Attributes:
      weights: {name: weight}.
      multiply: (name, v) -> the product, computed or read from memory.
      inputs: {name: v [..., D]} of the products taken so far.
      outputs: {name: product [..., N]}.
    """

    def __init__(self, weights: Weights, multiply: Dot):
        self.weights = weights
        self.multiply = multiply
        self.inputs: dict[str, jax.Array] = {}
        self.outputs: dict[str, jax.Array] = {}

    def dot(self, name: str, v: jax.Array) -> jax.Array:
        """Multiply by the weight of that name.

        Args:
          name: name of the weight.
          v: [..., D].

        Returns:
          The product [..., N] in the weight's dtype. A carry is wider where the weights
          are narrow, and is rounded for the product alone.

        Raises:
          ValueError: there is no such weight, or its product was taken before.
        """
        if name not in self.weights:
            raise ValueError(
                f"dot: there is no weight {name!r}; the weights are "
                f"{', '.join(sorted(self.weights))}"
            )
        # The backward pass knows a product by its name, so a name stands for one.
        if name in self.outputs:
            raise ValueError(
                f"dot: the product {name!r} is used twice in one step; give the second "
                "one a name of its own in the weights"
            )
        # The inputs are needed for the gradient of the weight, and the outputs to
        # replay the step.
        self.inputs[name] = v
        self.outputs[name] = self.multiply(name, v)
        return self.outputs[name]


def compute_products(weights: Weights) -> NamedProducts:
    """Products that are computed."""

    def multiply(name, v):
        return products.multiply(v.astype(weights[name].dtype), weights[name])

    return NamedProducts(weights, multiply)


def differentiable_products(weights: Weights) -> NamedProducts:
    """Products that are computed, with `products.weight_gradient` as derivative."""

    def multiply(name, v):
        return products.product(v.astype(weights[name].dtype), weights[name])

    return NamedProducts(weights, multiply)


def replay_products(
    weights: Weights, kept: dict[str, jax.Array], probes: dict[str, jax.Array]
) -> NamedProducts:
    """Products read from memory, whose gradients go to their inputs and to `probes`.

    Args:
      weights: {name: weight}.
      kept: {name: product [..., N]}, which must be those of the same inputs.
      probes: {name: [..., N]}. Their values are not used. The gradient of a probe is
        that of the product of its name.
    """

    def multiply(name, v):
        v = v.astype(weights[name].dtype)
        return _replayed_product(v, weights[name], kept[name], probes[name])

    return NamedProducts(weights, multiply)


def named_dot(weights: Weights) -> Dot:
    """Return the `dot` for running one step by itself.

    >>> named_dot({"w": jax.numpy.ones((2, 3))})("w", jax.numpy.ones(2))
    Array([2., 2., 2.], dtype=float32)
    """
    return compute_products(weights).dot


@jax.custom_vjp
def _replayed_product(v, weight, kept, probe):
    """Return `kept`, which equals v W."""
    return kept


def _replayed_product_forward(v, weight, kept, probe):
    return kept, (v, weight)


def _replayed_product_backward(saved, d):
    v, weight = saved
    # The gradient of the weight is formed after the loop, from `d` of all steps. It
    # leaves the loop as the gradient of the probe. The order is v, weight, kept, probe.
    return products.input_gradient(d, v, weight), None, None, d


_replayed_product.defvjp(_replayed_product_forward, _replayed_product_backward)
