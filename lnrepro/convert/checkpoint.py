"""A whole Flax checkpoint: every recurrent cell in a tree, at any depth.

A cell of Flax is told by the names of its layers. Ours takes its place in the tree, as
it does when a program writes `linen.LSTMCell(H, norm="none")` for `nn.LSTMCell(H)`.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lnrepro.convert import flax, nnx
from lnrepro.convert.derivatives import gradients

# Names of first and second moments in the states of optax's optimizers, and whether
# they are of squares. Everything else is converted as weights are.
MOMENTS = {
    "mu": False,
    "trace": False,
    "nu": True,
    "nu_max": True,
    "sum_of_squares": True,
}


class _Kind(NamedTuple):
    """A kind of cell: the names of its layers, gates of a kernel, and converters."""

    layers: frozenset[str]
    gates: int | None
    converter: Callable
    inverse: Callable


def _kind(layers, gates, *converters):
    return _Kind(frozenset(layers.split()), gates, *converters)


_DENSE = "dense_i dense_h"
_optimized_lstm_to_nnx = functools.partial(nnx.lstm_to_nnx, optimized=True)
KINDS = (
    _kind("ii if ig io hi hf hg ho", None, flax.lstm_from_flax, flax.lstm_to_flax),
    _kind("ir iz in hr hz hn", None, flax.gru_from_flax, flax.gru_to_flax),
    _kind("i h", None, flax.rnn_from_flax, flax.rnn_to_flax),
    _kind("ii if_ ig io hi hf hg ho", None, nnx.lstm_from_nnx, nnx.lstm_to_nnx),
    _kind(_DENSE, 4, nnx.lstm_from_nnx, _optimized_lstm_to_nnx),
    _kind(_DENSE, 3, nnx.gru_from_nnx, nnx.gru_to_nnx),
    _kind(_DENSE, 1, nnx.rnn_from_nnx, nnx.rnn_to_nnx),
)


def flax_checkpoint(tree: Any, renames: Mapping[str, str] | None = None) -> Any:
    """Convert every LSTM, GRU and simple cell of Flax in a checkpoint.

    Args:
      tree: nested dicts, tuples and lists: parameters, or a whole training state with
        the states of optax's optimizers, of flax.linen or flax.nnx.
      renames: {name in the tree: new name}, at any depth, where "/" makes further
        levels: {"OptimizedLSTMCell_0": "LSTMCell_0", "GRUCell_0": "RNN_0/cell"}. What
        else is at the new place stays beside it.

    Returns:
      The tree with our parameters where each cell was. Moments are told by the names
      that optax gives them, such as "mu" and "nu". Everything else stays.

    Raises:
      ValueError: there is no cell of Flax in the tree, one is incomplete, or two arrays
        would stand at one place.

    >>> gates = {f"i{gate}": {"kernel": np.ones((3, 2))} for gate in "ifgo"}
    >>> gates |= {f"h{gate}": {"kernel": np.ones((2, 2))} for gate in "ifgo"}
    >>> tree = {"params": {"encoder": {"cell": gates}, "head": np.ones(2)}}
    >>> converted = flax_checkpoint(tree)["params"]
    >>> converted["encoder"]["cell"]["w_x"].shape, converted["head"].shape
    ((3, 8), (2,))
    """
    new_names = {} if renames is None else renames
    found = []

    def convert(node: Any, squared: bool | None) -> Any:
        kind = _kind_of(node)
        if kind is not None:
            found.append(kind)
            if squared is None:
                return kind.converter(node)
            return gradients(kind.converter, kind.inverse, node, squared=squared)
        if isinstance(node, Mapping):
            converted = {}
            for name, value in node.items():
                value = convert(value, MOMENTS.get(name, squared))
                # Lists of nnx modules have numbers as names.
                path = new_names[name].split("/") if name in new_names else [name]
                for part in reversed(path):
                    value = {part: value}
                _merge(converted, value)
            return converted
        # A NamedTuple, such as the states of optax.
        fields = getattr(node, "_fields", None)
        if fields is not None:
            pairs = zip(fields, node, strict=True)
            values = [convert(v, MOMENTS.get(name, squared)) for name, v in pairs]
            return type(node)(*values)
        if isinstance(node, tuple | list):
            return type(node)(convert(value, squared) for value in node)
        return node

    converted = convert(tree, None)
    if not found:
        raise ValueError(
            "convert: there is no LSTMCell, GRUCell or SimpleCell of Flax in this tree"
        )
    return converted


def _merge(tree, other):
    """Add the leaves of a tree to another one, in place."""
    for name, value in other.items():
        if name not in tree:
            tree[name] = value
        elif isinstance(tree[name], dict) and isinstance(value, dict):
            _merge(tree[name], value)
        else:
            raise ValueError(f"convert: two arrays would be renamed to {name!r}")


def _kind_of(node):
    """The kind of cell that a tree holds the layers of, or None."""
    if not isinstance(node, Mapping):
        return None
    for kind in KINDS:
        if set(node) != kind.layers:
            continue
        if kind.gates is None or kind.gates == _gates(node):
            return kind
    return None


def _gates(node):
    """The gates of a cell with one recurrent kernel [H, gates * H] for all of them."""
    kernel = node["dense_h"]["kernel"]
    return np.shape(kernel)[1] // np.shape(kernel)[0]
