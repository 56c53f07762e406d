"""The precisions of the products of a traced function."""

from collections.abc import Iterator
from typing import Any

from jax.extend import core


def precisions(jaxpr: Any) -> Iterator[Any]:
    """The precision of every dot_general of a jaxpr, inner ones included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]
        for inner in core.jaxprs_in_params(equation.params):
            yield from precisions(inner)
