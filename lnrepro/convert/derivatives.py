"""Gradients and moments of optimizers from and to other libraries.

A converter maps weights w to parameters p = A w + b, and its inverse maps them back,
w = B p + c. The loss is a function of either, so that by the chain rule

    dL/dp = B^T dL/dw
    dL/dw = A^T dL/dp

Constants, such as the 1 that Haiku adds to the forget gate, have no part in this. Two
biases of which only the sum counts have the same gradient. The entries of A and B are
0, 1 and -1; second moments follow with the squares of these entries.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lnrepro.convert.layout import to_numpy

Tree = Any
Path = tuple


def gradients(
    converter: Callable[..., Tree],
    inverse: Callable[..., Tree],
    tree: Tree,
    *,
    squared: bool = False,
    **options: Any,
) -> Tree:
    """Convert gradients, or moments of Adam, in the layout of weights.

    Args:
      converter: the function that converts the weights, such as `lstm_from_haiku`.
      inverse: the function that converts them back, such as `lstm_to_haiku`.
      tree: gradients, first or second moments, laid out as what `converter` takes.
      squared: whether they are second moments, which have no sign.
      **options: arguments of the converters, such as `prefix`.

    Returns:
      The gradients, laid out as what `converter` returns.

    Raises:
      ValueError: as the converters, or they do not belong together. Those of the
        authors' LSTM do not tell what part of a gradient belongs to `bias` and what to
        `inner_bias`.

    >>> from lnrepro import convert
    >>> tree = {"lstm/linear": {"w": np.ones((5, 8)), "b": np.full(8, 0.5)}}
    >>> pair = convert.lstm_from_haiku, convert.lstm_to_haiku
    >>> convert.gradients(*pair, tree)["bias"]
    array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    """
    converter, inverse = _with(options, converter, inverse)
    if not isinstance(tree, Mapping | tuple | list) or not list(_leaves(tree)):
        raise ValueError("convert: gradients are a tree of arrays, and here are none")
    given = {path: to_numpy(str(path[-1]), a) for path, a in _leaves(tree)}
    dtype = np.result_type(*given.values())
    # The layout of the result, whose values do not matter.
    layout = converter(_filled(tree, {p: np.zeros(a.shape) for p, a in given.items()}))
    zeros = {path: np.zeros(a.shape) for path, a in _leaves(layout)}
    constants = dict(_leaves(inverse(_filled(layout, zeros))))
    if given.keys().isdisjoint(constants):
        first = next(iter(constants))
        raise ValueError(
            "convert: the second converter does not undo the first; it returns "
            f"{first[-1]!r}"
        )
    converted = {}
    for path, zero in zeros.items():
        # With its entries numbered from 1, the inverse tells where each of them goes.
        numbers = np.arange(1.0, zero.size + 1).reshape(zero.shape)
        numbered = dict(_leaves(inverse(_filled(layout, zeros | {path: numbers}))))
        total = np.zeros(zero.size, dtype)
        for target in given.keys() & numbered.keys():
            found = (numbered[target] - constants[target]).ravel()
            there = found != 0
            sign = np.ones_like(found) if squared else np.sign(found)
            values = (sign * given[target].ravel())[there].astype(dtype)
            np.add.at(total, np.abs(found[there]).astype(int) - 1, values)
        converted[path] = total.reshape(zero.shape)
    return _filled(layout, converted)


def _with(options, *functions):
    """The functions, each with those of the options that it takes."""
    known = [inspect.signature(function).parameters for function in functions]
    for name in options:
        if not any(name in parameters for parameters in known):
            raise ValueError(f"convert: neither converter has an option {name!r}")
    made = []
    for function, parameters in zip(functions, known, strict=True):
        taken = {name: v for name, v in options.items() if name in parameters}
        made.append(functools.partial(function, **taken))
    return made


def _leaves(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and value of every leaf; None is no leaf."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _leaves(value, (*path, name))
    elif isinstance(tree, tuple | list):
        for number, value in enumerate(tree):
            yield from _leaves(value, (*path, number))
    elif tree is not None:
        yield path, tree


def _filled(tree: Tree, leaves: Mapping[Path, Any], path: Path = ()) -> Tree:
    """Return a tree of the same structure with other leaves."""
    if isinstance(tree, Mapping):
        return {name: _filled(v, leaves, (*path, name)) for name, v in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(_filled(v, leaves, (*path, i)) for i, v in enumerate(tree))
    return leaves.get(path)
