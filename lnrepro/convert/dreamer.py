"""The recurrent cells of Dreamer's world models, as dicts of arrays.

    (r, n, u) = LN(W [x_t; h_{t-1}] + b)                                (GRU)
    n, u = tanh(sigmoid(r) * n), sigmoid(u - 1)
    h_t = u * n + (1 - u) * h_{t-1}

DreamerV3's block GRU is written out at `lnrepro.functional.DreamerBlockGRUCell`.

Source: github.com/danijar/dreamerv2, dreamerv2/common/nets.py, class GRUCell;
github.com/danijar/dreamerv3, dreamerv3/rssm.py, RSSM._core.

A GRU's weights are named kernel, bias, norm/scale and norm/bias, as in the first
version of DreamerV3. Those of DreamerV2 stand in the same order:

    names = ("kernel", "bias", "norm/scale", "norm/bias")
    weights = dict(zip(names, cell.get_weights()))

Shape letters: D input features, H hidden units, K units of an input layer, G blocks.
"""

import numpy as np

from lnrepro.convert.layout import (
    Params,
    Weights,
    check_kernels,
    check_mapping,
    check_vector,
    has,
    refuse_others,
    refuse_unknown,
    take,
)

_NORM = {"gain_joint": "norm/scale", "bias_joint": "norm/bias"}


def gru_from_dreamer(weights: Weights, *, state_first: bool = False) -> Params:
    """Convert Dreamer's GRU into DreamerGRUCell(H, norm="layer", epsilon=1e-3).

    Without norm/scale and norm/bias it becomes DreamerGRUCell(H, norm="none").

    Args:
      weights: kernel [D + H, 3H], bias [3H], norm/scale and norm/bias [3H]. Without a
        bias they give parameters for use_bias=False.
      state_first: whether the kernel multiplies [h_{t-1}; x_t], as in the first version
        of DreamerV3, in place of [x_t; h_{t-1}].

    Returns:
      Parameters of DreamerGRUCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"kernel": np.ones((5, 6)), "bias": np.ones(6)}
    >>> weights |= {"norm/scale": np.ones(6), "norm/bias": np.ones(6)}
    >>> {name: a.shape for name, a in gru_from_dreamer(weights).items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'w_x': (3, 6), 'w_h': (2, 6), 'bias': (6,), 'gain_joint': (6,),
    'bias_joint': (6,)}
    """
    kernel = take(weights, "kernel")
    refuse_unknown(weights, ("kernel", "bias", *_NORM.values()), "Dreamer's GRU")
    units = kernel.shape[-1]
    if kernel.ndim != 2 or units % 3 or len(kernel) <= units // 3:
        raise ValueError(
            f"convert: kernel has shape {kernel.shape}; it must be [D + H, 3 H]"
        )
    H = units // 3
    if state_first:
        w_h, w_x = np.split(kernel, [H])
    else:
        w_x, w_h = np.split(kernel, [len(kernel) - H])
    params = {"w_x": np.array(w_x), "w_h": np.array(w_h)}
    theirs_to_ours = {theirs: ours for ours, theirs in _NORM.items()}
    return params | _vectors(weights, theirs_to_ours, units)


def gru_to_dreamer(
    params: Weights, *, state_first: bool = False
) -> dict[str, np.ndarray]:
    """Convert DreamerGRUCell(H) with norm="layer" or "none" into Dreamer's layout.

    Args:
      params: parameters of DreamerGRUCell; without a bias they give none.
      state_first: whether the kernel multiplies [h_{t-1}; x_t].

    Returns:
      The weights of Dreamer's GRU, see `gru_from_dreamer`.

    Raises:
      ValueError: a missing parameter, or one that Dreamer has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> {name: a.shape for name, a in gru_to_dreamer(params).items()}
    {'kernel': (5, 6), 'bias': (6,)}
    """
    refuse_others(params, {"w_x", "w_h", "bias", *_NORM}, "Dreamer's GRU")
    w_x, w_h = take(params, "w_x"), take(params, "w_h")
    check_kernels(w_x, w_h, 3)
    weights = {"kernel": np.concatenate([w_h, w_x] if state_first else [w_x, w_h])}
    return weights | _vectors(params, _NORM, w_h.shape[1])


def block_gru_from_dreamer(weights: Weights, *, prefix: str = "") -> Params:
    """Convert the sequence model of DreamerV3 into DreamerBlockGRUCell.

    It becomes DreamerBlockGRUCell(H, hidden_features=K, input_sizes=..., blocks=G),
    with hidden_fn=functools.partial(jax.nn.gelu, approximate=True) where act="gelu".

    Args:
      weights: dynin0/kernel [H, K], dynin1/kernel (the stochastic state) and
        dynin2/kernel (the action) [D_i, K]; dynhid0/kernel [G, H / G + 3K, H / G];
        dyngru/kernel [G, H / G, 3H / G]; a bias beside each kernel; dynin0norm/scale
        [K], ..., dynhid0norm/scale [H]. Any number of input layers is accepted.
      prefix: what stands before the names, such as "dyn/". Names without it are left
        aside.

    Returns:
      Parameters of DreamerBlockGRUCell.

    Raises:
      ValueError: a missing or unknown weight, a wrong shape, or several hidden layers.

    >>> from lnrepro.functional import DreamerBlockGRUCell
    >>> cell = DreamerBlockGRUCell(4, hidden_features=3, input_sizes=(2, 1), blocks=2)
    >>> import jax
    >>> params = cell.init(jax.random.key(0), features_in=3)
    >>> again = block_gru_from_dreamer(block_gru_to_dreamer(params))
    >>> sorted(again) == sorted(params)
    True
    """
    check_mapping(weights)
    # The names after the prefix, of the layers of the cell alone.
    own = {
        name.removeprefix(prefix): a
        for name, a in weights.items()
        if name.startswith(f"{prefix}dyn")
    }
    layers = sum(name.startswith("dynin") and name.endswith("/kernel") for name in own)
    names = _block_names(max(layers, 1))
    refuse_unknown(own, names.values(), "DreamerV3's sequence model of one layer")
    params = {}
    for ours, theirs in names.items():
        params[ours] = np.array(take(own, theirs))
    blocks = _check_blocks(params, "dynhid0/kernel", "dyngru/kernel")
    params["bias_gates"] = _regroup(params["bias_gates"], blocks, 3)
    return params


def block_gru_to_dreamer(params: Weights, *, prefix: str = "") -> dict[str, np.ndarray]:
    """Convert DreamerBlockGRUCell with norm="rms" into the layout of DreamerV3.

    Args:
      params: parameters of DreamerBlockGRUCell.
      prefix: the start of the names.

    Returns:
      The weights of the sequence model, see `block_gru_from_dreamer`.

    Raises:
      ValueError: a missing parameter, a wrong shape, or one that Dreamer has no place
        for.

    >>> from lnrepro.functional import DreamerBlockGRUCell
    >>> cell = DreamerBlockGRUCell(4, hidden_features=3, input_sizes=(2, 1), blocks=2)
    >>> import jax
    >>> params = cell.init(jax.random.key(0), features_in=3)
    >>> block_gru_to_dreamer(params)["dyngru/kernel"].shape
    (2, 2, 6)
    """
    check_mapping(params)
    layers = sum(name.startswith("inner_bias_") for name in params) - 1
    names = _block_names(max(layers, 1))
    refuse_others(params, set(names), "DreamerV3's sequence model")
    arrays = {ours: np.array(take(params, ours)) for ours in names}
    blocks = _check_blocks(arrays, "w_hidden", "w_gates")
    arrays["bias_gates"] = _regroup(arrays["bias_gates"], 3, blocks)
    return {f"{prefix}{theirs}": arrays[ours] for ours, theirs in names.items()}


def _block_names(layers):
    """{our name: Dreamer's} for a block GRU with that many input layers."""
    names = {"w_hidden": "dynhid0/kernel", "w_gates": "dyngru/kernel"}
    names["bias_gates"] = "dyngru/bias"
    hidden = {"hidden": "dynhid0"}
    for i in range(layers):
        names[f"w_{i}"] = f"dynin{i}/kernel"
        hidden[str(i)] = f"dynin{i}"
    for ours, theirs in hidden.items():
        names[f"inner_bias_{ours}"] = f"{theirs}/bias"
        names[f"gain_{ours}"] = f"{theirs}norm/scale"
    return names


def _check_blocks(params, hidden, gates):
    """Check all shapes of a block GRU, and return the number of blocks.

    Args:
      params: arrays by our names.
      hidden: the name of w_hidden, for the message.
      gates: the name of w_gates, for the message.
    """
    w_gates, w_0 = params["w_gates"], params["w_0"]
    blocks, rows = (*w_gates.shape, 0, 0)[:2]
    if w_gates.shape != (blocks, rows, 3 * rows):
        raise ValueError(
            f"convert: {gates} has shape {w_gates.shape}; it must be "
            "[G, H / G, 3 H / G]"
        )
    H = blocks * rows
    if w_0.ndim != 2 or w_0.shape[0] != H:
        raise ValueError(
            f"convert: the kernel of the input layer of h has shape {w_0.shape}; "
            f"beside {gates} it must be [{H}, K]"
        )
    K = w_0.shape[1]
    layers = [name for name in params if name.startswith("w_") and name[2:].isdigit()]
    for name in layers:
        if params[name].ndim != 2 or params[name].shape[1] != K:
            raise ValueError(
                f"convert: {name} has shape {params[name].shape}; beside w_0 it must "
                f"be [D, {K}]"
            )
    w_hidden = params["w_hidden"]
    if w_hidden.shape != (blocks, rows + len(layers) * K, rows):
        raise ValueError(
            f"convert: {hidden} has shape {w_hidden.shape}; beside the other kernels "
            f"it must be ({blocks}, {rows + len(layers) * K}, {rows})"
        )
    for name, a in params.items():
        if name == "bias_gates":
            check_vector(name, a, 3 * H)
        elif not name.startswith("w_"):
            check_vector(name, a, H if name.endswith("_hidden") else K)
    return blocks


def _regroup(a, outer, inner):
    """Return a copy of a [outer inner U] as [inner outer U]."""
    return a.reshape(outer, inner, -1).swapaxes(0, 1).reshape(-1).copy()


def _vectors(arrays, norm, size):
    """Take the bias and the norm's gain and bias, each [size], where there are any.

    Args:
      arrays: ours, or Dreamer's.
      norm: {name of a gain or bias of the norm: its new name}.
      size: 3H.
    """
    names = {}
    if has(arrays, "bias"):
        names["bias"] = "bias"
    if any(has(arrays, name) for name in norm):
        names |= norm
    found = {}
    for name, new in names.items():
        a = take(arrays, name)
        check_vector(name, a, size)
        found[new] = np.array(a)
    return found
