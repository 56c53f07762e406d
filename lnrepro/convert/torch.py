"""torch.nn.LSTM, GRU and RNN: one layer and direction of a state dict.

    (i, f, g, o) = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh                (LSTM)
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(c_t)

    r, z = sigmoid(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)               (GRU)
    n = tanh(W_ih x_t + b_ih + r * (W_hh h_{t-1} + b_hh))
    h_t = (1 - z) * n + z * h_{t-1}

    h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)                   (RNN)

Source: docs.pytorch.org/docs/stable/generated/torch.nn.LSTM, torch.nn.GRU and
torch.nn.RNN.

`lnrepro.convert.torch_layers` converts all layers and directions at once. Weights are
tensors or arrays; bfloat16 tensors become arrays of `ml_dtypes.bfloat16`. NumPy arrays
go back into a module by

    module.load_state_dict({n: torch.as_tensor(a) for n, a in weights.items()})

and arrays of bfloat16 by `torch.as_tensor(a.view("int16")).view(torch.bfloat16)`.

Shape letters: D input features, H hidden units.
"""

import numpy as np

from lnrepro.convert.cells import (
    add_biases,
    gru_arrays,
    gru_params,
    lstm_arrays,
    lstm_params,
    or_zeros,
    simple_arrays,
    simple_params,
)
from lnrepro.convert.layout import Arrays, Params, Weights, check_mapping, has, take

# The order of the gates in weights of this library: z is the update gate, r the reset
# gate, n the candidate.
LSTM_GATES = "ifgo"
GRU_GATES = "rzn"


def lstm_from_torch(
    weights: Weights, suffix: str | None = None, *, prefix: str = ""
) -> Params:
    """Convert a torch.nn.LSTM into LSTMCell(H, norm="none").

    torch's two biases become their sum. Weights of bias=False give parameters for
    LSTMCell(H, norm="none", use_bias=False).

    Args:
      weights: the state dict, with weight_ih [4H, D], weight_hh [4H, H], bias_ih and
        bias_hh [4H].
      suffix: "_l" and the layer, with "_reverse" for the backward direction; "" for a
        torch.nn.LSTMCell. None finds the suffix of the only layer and direction.
      prefix: what stands before the names in the state dict, such as "encoder.".

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing weight, a wrong shape, several layers or directions without
        a suffix, or an LSTM with proj_size.

    >>> weights = {"weight_ih_l0": np.ones((8, 3)), "weight_hh_l0": np.ones((8, 2))}
    >>> {name: a.shape for name, a in lstm_from_torch(weights).items()}
    {'w_x': (3, 8), 'w_h': (2, 8)}
    """
    suffix = _only_suffix(weights, suffix, prefix)
    projection = f"{prefix}weight_hr{suffix}"
    if has(weights, projection):
        raise ValueError(
            f"convert: weights have {projection!r}; an LSTM with proj_size has no "
            "counterpart here"
        )
    return lstm_params(_summed(_read(weights, suffix, prefix)), LSTM_GATES)


def lstm_to_torch(
    params: Weights, suffix: str = "_l0", *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="none") into a torch.nn.LSTM.

    Args:
      params: parameters of LSTMCell; without a bias they give weights of bias=False.
      suffix: the end of the names, see `lstm_from_torch`.
      prefix: the start of the names.

    Returns:
      The state dict of one layer and direction, see `lstm_from_torch`;
      bias_hh is zero.

    Raises:
      ValueError: a missing parameter, or one that torch has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> {name: a.shape for name, a in lstm_to_torch(params, "").items()}
    {'weight_ih': (8, 3), 'weight_hh': (8, 2), 'bias_ih': (8,), 'bias_hh': (8,)}
    """
    return _write(lstm_arrays(params, LSTM_GATES, "torch.nn.LSTM"), suffix, prefix)


def gru_from_torch(
    weights: Weights, suffix: str | None = None, *, prefix: str = ""
) -> Params:
    """Convert a torch.nn.GRU into GRUCell(H, norm="none", recurrent_bias=True).

    Weights of bias=False give parameters for GRUCell(H, norm="none", use_bias=False).

    Args:
      weights: the state dict, with weight_ih [3H, D], weight_hh [3H, H], bias_ih and
        bias_hh [3H].
      suffix: the end of the names, see `lstm_from_torch`.
      prefix: the start of the names.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing weight, a wrong shape, or several layers or directions
        without a suffix.

    >>> weights = {"weight_ih_l0": np.ones((6, 3)), "weight_hh_l0": np.ones((6, 2))}
    >>> {name: a.shape for name, a in gru_from_torch(weights).items()}
    {'w_x': (3, 6), 'w_h': (2, 6)}
    """
    return gru_params(_read(weights, suffix, prefix), GRU_GATES)


def gru_to_torch(
    params: Weights, suffix: str = "_l0", *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Convert GRUCell(H, norm="none") into a torch.nn.GRU.

    The parameters do not tell reset="after", which is torch's, from reset="before".

    Args:
      params: parameters of GRUCell, with recurrent_bias=True, with one bias (the other
        becomes zero), or without a bias, for bias=False.
      suffix: the end of the names, see `lstm_from_torch`.
      prefix: the start of the names.

    Returns:
      The state dict of one layer and direction, see `gru_from_torch`.

    Raises:
      ValueError: a missing parameter, or one that torch has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> {name: a.shape for name, a in gru_to_torch(params, "").items()}
    {'weight_ih': (6, 3), 'weight_hh': (6, 2), 'bias_ih': (6,), 'bias_hh': (6,)}
    """
    return _write(gru_arrays(params, GRU_GATES, "torch.nn.GRU"), suffix, prefix)


def rnn_from_torch(
    weights: Weights, suffix: str | None = None, *, prefix: str = ""
) -> Params:
    """Convert a torch.nn.RNN into SimpleCell(H, norm="none").

    torch's two biases become their sum. nonlinearity="relu" is
    SimpleCell(H, norm="none", activation_fn=jax.nn.relu), and bias=False is
    use_bias=False.

    Args:
      weights: the state dict, with weight_ih [H, D], weight_hh [H, H], bias_ih and
        bias_hh [H].
      suffix: the end of the names, see `lstm_from_torch`.
      prefix: the start of the names.

    Returns:
      Parameters of SimpleCell.

    Raises:
      ValueError: a missing weight, a wrong shape, or several layers or directions
        without a suffix.

    >>> weights = {"weight_ih_l0": np.ones((2, 3)), "weight_hh_l0": np.ones((2, 2))}
    >>> {name: a.shape for name, a in rnn_from_torch(weights).items()}
    {'w_x': (3, 2), 'w_h': (2, 2)}
    """
    return simple_params(_summed(_read(weights, suffix, prefix)))


def rnn_to_torch(
    params: Weights, suffix: str = "_l0", *, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Convert SimpleCell(H, norm="none") into a torch.nn.RNN.

    Args:
      params: parameters of SimpleCell; without a bias they give weights of bias=False.
      suffix: the end of the names, see `lstm_from_torch`.
      prefix: the start of the names.

    Returns:
      The state dict of one layer and direction, see `rnn_from_torch`;
      bias_hh is zero.

    Raises:
      ValueError: a missing parameter, or one that torch has no place for.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2)), "bias": np.ones(2)}
    >>> {name: a.shape for name, a in rnn_to_torch(params, "").items()}
    {'weight_ih': (2, 3), 'weight_hh': (2, 2), 'bias_ih': (2,), 'bias_hh': (2,)}
    """
    return _write(simple_arrays(params, "torch.nn.RNN"), suffix, prefix)


def _only_suffix(weights, suffix, prefix):
    """Return the suffix; None stands for that of the only layer and direction."""
    if suffix is not None:
        return suffix
    check_mapping(weights)
    start = f"{prefix}weight_ih"
    # "weight_ih_l0_reverse" -> "_l0_reverse", one for each layer and direction.
    found = [name[len(start) :] for name in weights if name.startswith(start)]
    if len(found) > 1:
        raise ValueError(
            f"convert: weights have the layers and directions {', '.join(found)}; give "
            "one as the suffix, or convert all by *_layers_from_torch"
        )
    return found[0] if found else "_l0"


def _read(weights, suffix, prefix):
    """Return torch's arrays, transposed, with both biases or with neither."""
    suffix = _only_suffix(weights, suffix, prefix)
    names = ["weight_ih", "weight_hh"]
    biases = ["bias_ih", "bias_hh"]
    if any(has(weights, f"{prefix}{name}{suffix}") for name in biases):
        names += biases
    # PyTorch stores kernels as [outputs, inputs]. The transpose of a bias is itself.
    arrays = [take(weights, f"{prefix}{name}{suffix}").T for name in names]
    return Arrays(*arrays)


def _summed(arrays):
    """Replace the two biases by their sum."""
    bias = add_biases(arrays.bias, arrays.bias_recurrent)
    return arrays._replace(bias=bias, bias_recurrent=None)


def _write(arrays, suffix, prefix):
    """Return arrays under torch's names; one bias that is None becomes zero."""
    weights = {
        f"{prefix}weight_ih{suffix}": np.ascontiguousarray(arrays.w_x.T),
        f"{prefix}weight_hh{suffix}": np.ascontiguousarray(arrays.w_h.T),
    }
    if arrays.bias is None and arrays.bias_recurrent is None:
        return weights
    for name, bias in (("bias_ih", arrays.bias), ("bias_hh", arrays.bias_recurrent)):
        weights[f"{prefix}{name}{suffix}"] = or_zeros(bias, arrays.w_h)
    return weights
