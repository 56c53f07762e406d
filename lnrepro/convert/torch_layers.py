"""All layers and directions of a torch.nn.LSTM, GRU or RNN at once.

A network of several layers becomes a tuple with one entry per layer: the parameters of
the layer's cell, or a pair (forward, backward) of them where the network is
bidirectional. The tuple holds the parameters of `functional.Stack`, and each pair those
of `functional.bidirectional`:

    params = lstm_layers_from_torch(module.state_dict())
    unroll(stack(LSTMCell(H), LSTMCell(H)), params, x)                # one direction

    for pair in params:                                               # two directions
        x = bidirectional(LSTMCell(H), LSTMCell(H), pair, x).outputs
"""

from collections.abc import Callable, Sequence

import numpy as np

from lnrepro.convert.layout import Params, Weights, has
from lnrepro.convert.torch import (
    gru_from_torch,
    gru_to_torch,
    lstm_from_torch,
    lstm_to_torch,
    rnn_from_torch,
    rnn_to_torch,
)

Layer = Params | tuple[Params, Params]


def lstm_layers_from_torch(weights: Weights, *, prefix: str = "") -> tuple[Layer, ...]:
    """Convert all layers of a torch.nn.LSTM into LSTMCell(H, norm="none").

    Args:
      weights: the state dict.
      prefix: what stands before the names in the state dict, such as "encoder.".

    Returns:
      One entry per layer: parameters, or a pair (forward, backward).

    Raises:
      ValueError: a missing weight, a wrong shape, or an LSTM with proj_size.

    >>> weights = {"weight_ih_l0": np.ones((8, 3)), "weight_hh_l0": np.ones((8, 2))}
    >>> weights |= {"weight_ih_l1": np.ones((8, 2)), "weight_hh_l1": np.ones((8, 2))}
    >>> [params["w_x"].shape for params in lstm_layers_from_torch(weights)]
    [(3, 8), (2, 8)]
    """
    return _layers(lstm_from_torch, weights, prefix)


def lstm_layers_to_torch(
    layers: Sequence[Layer], *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Convert layers of LSTMCell(H, norm="none") into one torch.nn.LSTM.

    Args:
      layers: one entry per layer: parameters, or a pair (forward, backward).
      prefix: the start of the names.

    Returns:
      The state dict.

    Raises:
      ValueError: a missing parameter, or one that torch has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8))}
    >>> sorted(lstm_layers_to_torch([(params, params)]))[:2]
    ['weight_hh_l0', 'weight_hh_l0_reverse']
    """
    return _state_dict(lstm_to_torch, layers, prefix)


def gru_layers_from_torch(weights: Weights, *, prefix: str = "") -> tuple[Layer, ...]:
    """Convert all layers of a torch.nn.GRU.

    Each becomes GRUCell(H, norm="none", recurrent_bias=True), or with bias=False
    GRUCell(H, norm="none", use_bias=False).

    Args:
      weights: the state dict.
      prefix: the start of the names.

    Returns:
      One entry per layer: parameters, or a pair (forward, backward).

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"weight_ih_l0": np.ones((6, 3)), "weight_hh_l0": np.ones((6, 2))}
    >>> [params["w_x"].shape for params in gru_layers_from_torch(weights)]
    [(3, 6)]
    """
    return _layers(gru_from_torch, weights, prefix)


def gru_layers_to_torch(
    layers: Sequence[Layer], *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Convert layers of GRUCell(H, norm="none") into one torch.nn.GRU.

    Args:
      layers: one entry per layer: parameters, or a pair (forward, backward).
      prefix: the start of the names.

    Returns:
      The state dict.

    Raises:
      ValueError: a missing parameter, or one that torch has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6))}
    >>> sorted(gru_layers_to_torch([params]))
    ['weight_hh_l0', 'weight_ih_l0']
    """
    return _state_dict(gru_to_torch, layers, prefix)


def rnn_layers_from_torch(weights: Weights, *, prefix: str = "") -> tuple[Layer, ...]:
    """Convert all layers of a torch.nn.RNN into SimpleCell(H, norm="none").

    Args:
      weights: the state dict.
      prefix: the start of the names.

    Returns:
      One entry per layer: parameters, or a pair (forward, backward).

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"weight_ih_l0": np.ones((2, 3)), "weight_hh_l0": np.ones((2, 2))}
    >>> [params["w_x"].shape for params in rnn_layers_from_torch(weights)]
    [(3, 2)]
    """
    return _layers(rnn_from_torch, weights, prefix)


def rnn_layers_to_torch(
    layers: Sequence[Layer], *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Convert layers of SimpleCell(H, norm="none") into one torch.nn.RNN.

    Args:
      layers: one entry per layer: parameters, or a pair (forward, backward).
      prefix: the start of the names.

    Returns:
      The state dict.

    Raises:
      ValueError: a missing parameter, or one that torch has no place for.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2))}
    >>> sorted(rnn_layers_to_torch([params]))
    ['weight_hh_l0', 'weight_ih_l0']
    """
    return _state_dict(rnn_to_torch, layers, prefix)


def _layers(convert: Callable, weights, prefix):
    """Convert layer 0, and every further layer that the state dict has."""
    layers = []
    while not layers or has(weights, f"{prefix}weight_ih_l{len(layers)}"):
        suffix = f"_l{len(layers)}"
        layer = convert(weights, suffix, prefix=prefix)
        if has(weights, f"{prefix}weight_ih{suffix}_reverse"):
            backward = convert(weights, f"{suffix}_reverse", prefix=prefix)
            layer = (layer, backward)
        layers.append(layer)
    return tuple(layers)


def _state_dict(convert: Callable, layers, prefix):
    """Join the state dicts of all layers and directions."""
    weights = {}
    for k, layer in enumerate(layers):
        if isinstance(layer, tuple | list):
            forward, backward = layer
            weights |= convert(forward, f"_l{k}", prefix=prefix)
            weights |= convert(backward, f"_l{k}_reverse", prefix=prefix)
        else:
            weights |= convert(layer, f"_l{k}", prefix=prefix)
    return weights
