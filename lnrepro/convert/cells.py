"""Parameters of LSTMCell, GRUCell and SimpleCell from and to any gate order.

`*_params` builds our parameters, `*_arrays` takes them apart again.
"""

import numpy as np

from lnrepro.convert.layout import (
    GRU_ORDER,
    LSTM_ORDER,
    SIMPLE_ORDER,
    Arrays,
    Params,
    Weights,
    check_kernels,
    check_vector,
    negate_update_gate,
    refuse_others,
    refuse_unknown,
    reorder,
    take,
    take_optional,
)

NAMES = Arrays._fields


def read(weights: Weights, names: tuple[str, str, str], cell: str) -> Arrays:
    """Return two kernels, and a bias if there is one.

    Args:
      weights: those of the other library.
      names: of the input's kernel, the recurrent kernel and the bias.
      cell: the foreign cell, for the message.

    Raises:
      ValueError: a missing or unknown weight.
    """
    w_x, w_h, bias = names
    arrays = Arrays(
        take(weights, w_x), take(weights, w_h), take_optional(weights, bias)
    )
    refuse_unknown(weights, names, cell)
    return arrays


def lstm_params(arrays: Arrays, order: str) -> Params:
    """Return parameters of LSTMCell(H, norm="none").

    Args:
      arrays: a bias of None is left out, for use_bias=False.
      order: the order of the gates f, i, o, g in arrays.
    """
    return _params(arrays, order, LSTM_ORDER)


def lstm_arrays(
    params: Weights, order: str, target: str, also: tuple[str, ...] = ()
) -> Arrays:
    """Return the kernels and the bias of an LSTMCell.

    Args:
      params: parameters of LSTMCell.
      order: the order of the gates to return.
      target: the foreign cell, for the message.
      also: parameters that the caller reads by itself.

    Raises:
      ValueError: a missing parameter, or one that the target has no place for.
    """
    refuse_others(params, {"w_x", "w_h", "bias", *also}, target)
    return _arrays(params, LSTM_ORDER, order)


def gru_params(arrays: Arrays, order: str, negate: bool = True) -> Params:
    """Return parameters of GRUCell(H, norm="none").

    Args:
      arrays: biases of None are left out: for recurrent_bias=False, use_bias=False.
      order: the order of the gates z, r, n in arrays.
      negate: whether the update gate's sign changes, see `negate_update_gate`.
    """
    params = _params(arrays, order, GRU_ORDER)
    if not negate:
        return params
    # Kernels and biases alike: z enters by their sum only.
    return {name: negate_update_gate(a) for name, a in params.items()}


def gru_arrays(
    params: Weights,
    order: str,
    target: str,
    negate: bool = True,
    also: tuple[str, ...] = (),
) -> Arrays:
    """Return the kernels and the biases of a GRUCell.

    Args:
      params: parameters of GRUCell.
      order: the order of the gates to return.
      target: the foreign cell, for the message.
      negate: whether the update gate's sign changes, see `negate_update_gate`.
      also: parameters that the caller reads by itself.

    Raises:
      ValueError: a missing parameter, or one that the target has no place for.
    """
    refuse_others(params, {*NAMES, *also}, target)
    # `negate_update_gate` expects our order, so the sign changes before the order does.
    ours = _arrays(params, GRU_ORDER, GRU_ORDER)
    arrays = {}
    for name, a in zip(NAMES, ours, strict=True):
        if a is None:
            continue
        if negate:
            a = negate_update_gate(a)
        arrays[name] = reorder(a, GRU_ORDER, order)
    return Arrays(**arrays)


def simple_params(arrays: Arrays) -> Params:
    """Return parameters of SimpleCell(H, norm="none")."""
    return _params(arrays, SIMPLE_ORDER, SIMPLE_ORDER)


def simple_arrays(params: Weights, target: str) -> Arrays:
    """Return the kernels and the bias of a SimpleCell.

    Raises:
      ValueError: a missing parameter, or one that the target has no place for.
    """
    refuse_others(params, {"w_x", "w_h", "bias"}, target)
    return _arrays(params, SIMPLE_ORDER, SIMPLE_ORDER)


def add_biases(
    first: np.ndarray | None, second: np.ndarray | None
) -> np.ndarray | None:
    """Return the sum of two biases, of which each may be None.

    Raises:
      ValueError: their shapes differ.
    """
    if first is None:
        return second
    if second is None:
        return first
    if first.shape != second.shape:
        raise ValueError(
            f"convert: the two biases have shapes {first.shape} and {second.shape}"
        )
    return first + second


def or_zeros(bias: np.ndarray | None, w_h: np.ndarray) -> np.ndarray:
    """Return a bias, or zeros for None beside the recurrent kernel w_h."""
    if bias is None:
        return np.zeros_like(w_h[0])
    return bias


def fold_recurrent_bias(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Move the recurrent biases of z and r into the bias, where only the sum counts.

    Args:
      arrays: weights of a GRU whose order ends with n.

    Returns:
      (bias [3 H], bias of the candidate's recurrent product [H]); zeros for None.
    """
    bias = or_zeros(arrays.bias, arrays.w_h)
    recurrent = or_zeros(arrays.bias_recurrent, arrays.w_h)
    # z and r come first in the order, 2H together. Their two biases are only ever added
    # up. The candidate's recurrent bias is multiplied by the reset gate.
    gates = 2 * (len(bias) // 3)
    bias = np.concatenate([bias[:gates] + recurrent[:gates], bias[gates:]])
    return bias, np.array(recurrent[gates:])


def pad_recurrent_bias(bias_n: np.ndarray) -> np.ndarray:
    """Return the recurrent bias [3 H] of a GRU in which only n has one, [H]."""
    zeros = np.zeros_like(bias_n)
    return np.concatenate([zeros, zeros, bias_n])


def _params(arrays, order, new_order):
    """Check the shapes, and return {name: array} in another order of the gates."""
    check_kernels(arrays.w_x, arrays.w_h, len(order))
    params = {}
    for name, a in zip(NAMES, arrays, strict=True):
        if a is None:
            continue
        # Kernels are checked together, and a bias has one entry per column of a kernel.
        if name.startswith("bias"):
            check_vector(name, a, arrays.w_h.shape[1])
        params[name] = reorder(a, order, new_order)
    return params


def _arrays(params, order, new_order):
    """Take the kernels and biases out of params, check and reorder them."""
    biases = [take_optional(params, name) for name in ("bias", "bias_recurrent")]
    arrays = Arrays(take(params, "w_x"), take(params, "w_h"), *biases)
    return Arrays(**_params(arrays, order, new_order))
