"""All layers and directions of a torch.nn.LSTM, GRU or RNN at once.

A network of several layers becomes a tuple with one entry per layer: the parameters of
the layer's cell, or a pair (forward, backward) of them where the network is
bidirectional. The tuple holds the parameters of `functional.Stack`, and each pair those
of `functional.bidirectional`:

    params = lstm_layers_from_torch(module.state_dict())
    cell = LSTMCell(H, norm="none")
    unroll(stack(cell, cell), params, x)                # one direction

    for pair in params:                                 # two directions
        x = bidirectional(cell, cell, pair, x).outputs

Source: the state dicts of torch.nn, see `lnrepro.convert.torch` for the equations.

Shape letters: D input features, H hidden units, L layers.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lnrepro.convert.layout import Params, Weights, check_mapping, has, take
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
      weights: the state dict, with weight_ih_l<k> [4H, D], weight_hh_l<k> [4H, H],
        bias_ih_l<k> and bias_hh_l<k> [4H] for k = 0 to L - 1, and the same names with
        "_reverse" where the network is bidirectional. D of a further layer is H or 2H.
      prefix: what stands before the names in the state dict, such as "encoder.".

    Returns:
      One entry per layer: parameters, or a pair (forward, backward).

    Raises:
      ValueError: a missing weight, layer or direction, a wrong shape, or an LSTM with
        proj_size.

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
      The state dict, see `lstm_layers_from_torch`.

    Raises:
      ValueError: a missing parameter, one that torch has no place for, or layers that
        do not fit together.

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
      weights: the state dict, as in `lstm_layers_from_torch`, with 3H in place of 4H.
      prefix: the start of the names.

    Returns:
      One entry per layer: parameters, or a pair (forward, backward).

    Raises:
      ValueError: a missing weight, layer or direction, or a wrong shape.

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
      The state dict, see `gru_layers_from_torch`.

    Raises:
      ValueError: a missing parameter, one that torch has no place for, or layers that
        do not fit together.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6))}
    >>> sorted(gru_layers_to_torch([params]))
    ['weight_hh_l0', 'weight_ih_l0']
    """
    return _state_dict(gru_to_torch, layers, prefix)


def rnn_layers_from_torch(weights: Weights, *, prefix: str = "") -> tuple[Layer, ...]:
    """Convert all layers of a torch.nn.RNN into SimpleCell(H, norm="none").

    Args:
      weights: the state dict, as in `lstm_layers_from_torch`, with H in place of 4H.
      prefix: the start of the names.

    Returns:
      One entry per layer: parameters, or a pair (forward, backward).

    Raises:
      ValueError: a missing weight, layer or direction, or a wrong shape.

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
      The state dict, see `rnn_layers_from_torch`.

    Raises:
      ValueError: a missing parameter, one that torch has no place for, or layers that
        do not fit together.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2))}
    >>> sorted(rnn_layers_to_torch([params]))
    ['weight_hh_l0', 'weight_ih_l0']
    """
    return _state_dict(rnn_to_torch, layers, prefix)


def _layers(convert: Callable, weights, prefix):
    """Convert layers 0 to L - 1, in one or two directions."""
    check_mapping(weights)
    # Layers and directions are told by the names of their input kernels.
    pattern = re.compile(re.escape(prefix) + r"weight_ih_l(\d+)(_reverse)?")
    matches = [pattern.fullmatch(name) for name in weights]
    found = {match.groups() for match in matches if match}
    if not found:
        # This raises the message of a missing weight.
        take(weights, f"{prefix}weight_ih_l0")
    # A layer missing in between is then reported by `convert`.
    count = max(int(number) for number, _ in found) + 1
    bidirectional = any(direction for _, direction in found)
    layers = []
    for k in range(count):
        layer = convert(weights, f"_l{k}", prefix=prefix)
        if bidirectional:
            layer = (layer, convert(weights, f"_l{k}_reverse", prefix=prefix))
        layers.append(layer)
    _check_layers(layers)
    return tuple(layers)


def _state_dict(convert: Callable, layers, prefix):
    """Join the state dicts of all layers and directions."""
    _check_layers(layers)
    weights = {}
    for k, layer in enumerate(layers):
        forward, *backward = _directions(layer)
        weights |= convert(forward, f"_l{k}", prefix=prefix)
        if backward:
            weights |= convert(*backward, f"_l{k}_reverse", prefix=prefix)
    return weights


def _directions(layer):
    """Return the parameters of one or two directions as a tuple."""
    return tuple(layer) if isinstance(layer, tuple | list) else (layer,)


def _is_biased(params):
    """Whether there is a bias; torch's bias=False is for all layers at once."""
    return any(has(params, name) for name in ("bias", "bias_recurrent"))


def _check_layers(layers):
    """Raise ValueError unless the layers can be those of one torch module."""
    if not layers:
        raise ValueError("convert: no layers; torch has one at least")
    if isinstance(layers, Mapping):
        raise ValueError("convert: the layers are one dict, not a sequence of layers")
    first = _directions(layers[0])
    if len(first) not in (1, 2):
        raise ValueError(f"convert: a layer has 1 or 2 directions, not {len(first)}")
    # torch has one number of units for all layers and directions.
    units = take(first[0], "w_h").shape[0]
    inputs = take(first[0], "w_x").shape[0]
    for k, layer in enumerate(layers):
        directions = _directions(layer)
        if len(directions) != len(first):
            raise ValueError(
                f"convert: layer {k} has {len(directions)} directions, but layer 0 has "
                f"{len(first)}"
            )
        for params in directions:
            shape = take(params, "w_x").shape[0], take(params, "w_h").shape[0]
            if shape != (inputs, units):
                raise ValueError(
                    f"convert: layer {k} has {shape[0]} inputs and {shape[1]} units; "
                    f"beside the layers below it needs {inputs} and {units}"
                )
            if _is_biased(params) != _is_biased(first[0]):
                raise ValueError(
                    f"convert: layer {k} has the parameters {', '.join(params)}, but "
                    f"layer 0 has {', '.join(first[0])}"
                )
        # The next layer reads the outputs of all directions, side by side.
        inputs = units * len(first)
