"""Gate orders, and the steps every converter takes: read, reorder, change sign.

Shape letters: D input features, H hidden units, G gates.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

Weights = Mapping[str, Any]
Params = dict[str, np.ndarray]

# The order of the gates in the parameters of LSTMCell and GRUCell. z is the update
# gate, r the reset gate, n the candidate.
LSTM_ORDER = "fiog"
GRU_ORDER = "zrn"
# The simple RNN has one block, the candidate.
SIMPLE_ORDER = "n"


class Arrays(NamedTuple):
    """Weights of one recurrent layer, with the gates in an order named beside them.

    Attributes:
      w_x: [D, G H], the input's kernel.
      w_h: [H, G H], the recurrent kernel.
      bias: [G H], or None without a bias.
      bias_recurrent: [G H], the bias of the recurrent product, or None.
    """

    w_x: np.ndarray
    w_h: np.ndarray
    bias: np.ndarray | None = None
    bias_recurrent: np.ndarray | None = None


def to_numpy(name: str, value: Any) -> np.ndarray:
    """Return a weight as a NumPy array with the same bits.

    Args:
      name: the weight's name, for the message.
      value: anything that `np.asarray` accepts, or a torch tensor of any device.

    Raises:
      ValueError: the value is not an array.
    """
    # A torch tensor, told by its method, since torch is not imported here.
    if hasattr(value, "detach"):
        return _tensor_to_numpy(value.detach().cpu())
    array = np.asarray(value)
    # Objects and strings are no numbers, and no weight is a scalar.
    if array.ndim == 0 or array.dtype.kind in "OSU":
        raise ValueError(
            f"convert: weight {name!r} is a {type(value).__name__}, not an array"
        )
    return array


def _tensor_to_numpy(tensor: Any) -> np.ndarray:
    """Return a torch tensor as an array; bfloat16 needs ml_dtypes, which jax brings."""
    if str(tensor.dtype) != "torch.bfloat16":
        return np.asarray(tensor)
    # torch cannot export bfloat16. Every bfloat16 is also a float32.
    array = np.asarray(tensor.float())
    try:
        import ml_dtypes
    except ImportError:
        return array
    return array.astype(ml_dtypes.bfloat16)


def check_mapping(weights: Any) -> None:
    """Raise ValueError unless weights are a mapping, as a state dict is."""
    if not isinstance(weights, Mapping):
        raise ValueError(
            "convert: weights are a mapping of names to arrays, not a "
            f"{type(weights).__name__}"
        )


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping as one dict, its keys joined by "/".

    >>> flatten({"hi": {"bias": 1, "kernel": 2}})
    {'hi/bias': 1, 'hi/kernel': 2}
    """
    check_mapping(tree)
    flat = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def has(weights: Weights, name: str) -> bool:
    """Return whether there is a weight of this name; None counts as absent."""
    check_mapping(weights)
    return weights.get(name) is not None


def take(weights: Weights, name: str) -> np.ndarray:
    """Return a weight as an array.

    Raises:
      ValueError: there is no weight of this name.
    """
    if not has(weights, name):
        raise ValueError(f"convert: no {name!r}; found {_listed(weights)}")
    return to_numpy(name, weights[name])


def _listed(names: Iterable[str]) -> str:
    """Return the first of the names in one line."""
    names = sorted(map(str, names))
    if not names:
        return "nothing"
    if len(names) > 12:
        names = [*names[:12], f"and {len(names) - 12} more"]
    return ", ".join(names)


def take_optional(weights: Weights, name: str) -> np.ndarray | None:
    """Return a weight as an array, or None where there is none of this name."""
    if not has(weights, name):
        return None
    return take(weights, name)


def reorder(a: Any, old: str, new: str) -> np.ndarray:
    """Return a copy whose last axis has its blocks in another order.

    Args:
      a: [..., G H], in the order `old`; anything that is an array.
      old: one letter for every gate, such as "ifgo".
      new: the same letters in the order to return; ours are "fiog" and "zrn".

    Raises:
      ValueError: other letters in `new`, or an axis that has no such blocks.

    >>> reorder(np.array([1, 2, 3, 4]), "ifgo", "fiog")
    array([2, 1, 4, 3])
    """
    a = to_numpy("to reorder", a)
    if sorted(old) != sorted(new) or len(set(old)) < len(old):
        raise ValueError(f"convert: {new!r} are not the gates {old!r} in another order")
    if a.shape[-1] % len(old):
        raise ValueError(
            f"convert: an array of shape {a.shape} has no {len(old)} gates of one size"
        )
    # One block of H columns for each gate.
    blocks = dict(zip(old, np.split(a, len(old), axis=-1), strict=True))
    return np.concatenate([blocks[gate] for gate in new], axis=-1)


def negate_update_gate(a: np.ndarray) -> np.ndarray:
    """Return a copy of a [..., 3 H] in the order z, r, n, with the sign of z changed.

    The other libraries compute h_t = u h_{t-1} + (1 - u) n, and we compute
    h_t = (1 - z) h_{t-1} + z n. So u = 1 - sigmoid(z) = sigmoid(-z).
    """
    a = np.array(a)
    width = a.shape[-1] // 3
    a[..., :width] = -a[..., :width]
    return a


def check_kernels(w_x: np.ndarray, w_h: np.ndarray, gates: int) -> None:
    """Raise ValueError unless w_x is [D, G H] and w_h is [H, G H]."""
    columns = gates * w_h.shape[0] if w_h.ndim == 2 else None
    if w_h.ndim != 2 or w_h.shape[1] != columns:
        raise ValueError(
            f"convert: the recurrent kernel has shape {w_h.shape} as [inputs, units]; "
            f"a cell of {gates} gates has [H, {gates} H]"
        )
    if w_x.ndim != 2 or w_x.shape[1] != columns:
        raise ValueError(
            f"convert: the input's kernel has shape {w_x.shape} as [inputs, units]; "
            f"beside the recurrent kernel {w_h.shape} it must be [D, {columns}]"
        )


def check_vector(name: str, a: np.ndarray, size: int) -> None:
    """Raise ValueError unless a is [size].

    Args:
      name: the weight's name, for the message.
      a: a bias or a gain.
      size: the number of units that the kernels give it.
    """
    if a.shape != (size,):
        raise ValueError(
            f"convert: {name} has shape {a.shape}; beside the kernels it must be "
            f"({size},)"
        )


def refuse_unknown(weights: Weights, known: Iterable[str], source: str) -> None:
    """Raise ValueError where weights hold a name that `source` does not have.

    Args:
      weights: weights of another library. A weight of None counts as absent.
      known: the names that the foreign cell has.
      source: the foreign cell, for the message.
    """
    known = set(known)
    unknown = {name: a for name, a in weights.items() if name not in known}
    unknown = [name for name in unknown if has(unknown, name)]
    if unknown:
        raise ValueError(
            f"convert: {source} has no weight {_listed(unknown)}; it has "
            f"{_listed(known)}"
        )


def refuse_others(params: Weights, allowed: set[str], target: str) -> None:
    """Raise ValueError where params hold a parameter that `target` has no place for.

    Args:
      params: parameters of one of our cells.
      allowed: the names that the target has a place for.
      target: the foreign cell, for the message.
    """
    check_mapping(params)
    others = sorted(name for name in params if name not in allowed)
    if others:
        raise ValueError(f"convert: {target} has no place for {', '.join(others)}")
