"""Weights, gradients and moments of one cell from and to another library.

Every entry of our parameters has a number. A row of a layout, applied to the numbers,
tells which of them stands at every entry of the library's array, and with what sign.
So loading is p = A w + a and dumping is w = B p + b, where A and B have the entries 0,
1 and -1. The loss is a function of either, so that by the chain rule

    dL/dp = B^T dL/dw                                            (loading gradients)
    dL/dw = A^T dL/dp                                            (dumping gradients)

A and B differ in the rows that have `only`.

Shape letters: D input features, H hidden units.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lnrepro.convert.arrays import LEVEL, flatten, listed, nest, to_numpy
from lnrepro.convert.layout import Layout
from lnrepro.convert.table import layout_of
from lnrepro.functional import Cell
from lnrepro.functional.arguments import of_shape
from lnrepro.functional.cells.base import check_params


def load(
    library: str | Layout,
    cell: Cell,
    weights: Mapping[str, Any],
    *,
    prefix: str | None = None,
    suffix: str | None = None,
    gradients: bool = False,
) -> dict[str, np.ndarray]:
    """Return the parameters of a cell from weights of another library.

    Args:
      library: its name, or a layout of your own.
      cell: our cell, with the options that make it the library's.
      weights: arrays or torch tensors by name, nested as in the library.
      prefix: what the names begin with: "encoder" in torch, "network/lstm" in Haiku,
        "encoder" for the authors' "encoder_W", "dyn/dyn" in DreamerV3. None means the
        library's default, such as "lstm" in Haiku.
      suffix: what the names end with: "_l1", "_l0_reverse", or "" for a
        torch.nn.LSTMCell. None means "_l0" in torch, whose weights then must be those
        of one layer and direction.
      gradients: whether the weights are gradients, or moments of an optimizer. Second
        moments come with signs; their absolute values are ours.

    Returns:
      The parameters, or their gradients or moments, in arrays of their own. All have
      the widest dtype of the weights.

    Raises:
      ValueError: an unknown library, a cell with other options, a missing or unknown
        weight, a wrong shape, or gradients that do not determine ours.

    >>> from lnrepro.functional import LSTMCell
    >>> weights = {"weight_ih_l0": np.ones((8, 3)), "weight_hh_l0": np.ones((8, 2))}
    >>> params = load("torch", LSTMCell(2, norm="none", use_bias=False), weights)
    >>> params["w_x"].shape, params["w_h"].shape
    ((3, 8), (2, 8))
    """
    layout = layout_of(library, cell)
    flat = flatten(weights)
    prefix = _prefix(layout, prefix)
    names = _names(layout, prefix, suffix)
    numbers = _numbers(layout, cell, _features_in(layout, cell, names, flat))
    pieces = _pieces(layout, cell, numbers)
    _refuse_unknown(layout, flat, names, pieces, prefix, suffix)
    given = {}
    for row, positions in pieces:
        name = names[row.name]
        if name not in flat:
            if row.optional:
                continue
            raise ValueError(f"convert: no {name!r}; found {listed(flat)}")
        given[row.name] = a = to_numpy(name, flat[name])
        of_shape("convert", name, a, positions.shape)
    if not gradients:
        entries = _to_ours(pieces, given, numbers, skip="dump")
        _add_constants(layout, numbers, entries, 1)
    else:
        undetermined = _undetermined(pieces, numbers)
        if undetermined:
            raise ValueError(
                "convert: gradients of this library do not determine those of "
                f"{listed(undetermined)}"
            )
        entries = _to_ours(pieces, given, numbers, skip="load")
    return {name: entries[positions] for name, positions in numbers.items()}


def dump(
    library: str | Layout,
    cell: Cell,
    params: Mapping[str, Any],
    *,
    prefix: str | None = None,
    suffix: str | None = None,
    gradients: bool = False,
) -> dict[str, Any]:
    """Return weights of another library from the parameters of a cell.

    Of two biases of which only the sum counts, as in torch's LSTM, the second is zero.

    Args:
      library: its name, or a layout of your own.
      cell: the cell that the parameters belong to.
      params: its parameters.
      prefix: as for `load`.
      suffix: as for `load`.
      gradients: whether `params` are gradients, or moments of an optimizer, as in
        `load`.

    Returns:
      The weights, or their gradients or moments, nested as in the library, in arrays of
      their own. All have the widest dtype of the parameters.

    Raises:
      ValueError: an unknown library, a cell with other options, parameters of another
        cell, or numbers that the library has no place for.

    >>> from lnrepro.functional import LSTMCell
    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> sorted(dump("keras", LSTMCell(2, norm="none"), params))
    ['bias', 'kernel', 'recurrent_kernel']
    """
    layout = layout_of(library, cell)
    arrays = {name: to_numpy(name, a) for name, a in flatten(params).items()}
    features_in = layout.features_in
    if features_in is None:
        features_in = max(1, len(arrays.get("w_x", ())))
    numbers = _numbers(layout, cell, features_in)
    check_params(type(cell).__name__, arrays, numbers)
    pieces = _pieces(layout, cell, numbers)
    # Number 0 is False, a zero of any dtype.
    parts = [np.zeros(1, bool), *[arrays[name].ravel() for name in numbers]]
    entries = np.concatenate(parts)
    if gradients:
        weights = _to_theirs(pieces, entries, skip="dump")
    else:
        _add_constants(layout, numbers, entries, -1)
        weights = _to_theirs(pieces, entries, skip="load")
        _refuse_lost(pieces, weights, numbers, entries)
    names = _names(layout, _prefix(layout, prefix), suffix)
    return nest({names[name]: a for name, a in weights.items()})


def _names(layout, prefix, suffix):
    """{name of a row: the name in full}."""
    suffix = layout.suffix if suffix is None else suffix
    return {row.name: f"{prefix}{row.name}{suffix}" for row in layout.rows}


def _prefix(layout, prefix):
    """The prefix of all names; torch's, whose names have suffixes, ends with a dot."""
    if prefix is None:
        return layout.prefix
    if layout.suffix and prefix:
        return prefix.removesuffix(".") + "."
    return prefix


def _features_in(layout, cell, names, flat):
    """D from the shape of the first array that has w_x."""
    if layout.features_in is not None:
        return layout.features_in
    for row in layout.rows:
        name, sources = names[row.name], row.source.split()
        if "w_x" not in sources or name not in flat:
            continue
        shape = to_numpy(name, flat[name]).shape
        # What has not two axes is refused with the others.
        inputs = shape[-1] if row.transposed else shape[0]
        # Haiku and Dreamer multiply x and h by one matrix.
        return max(1, inputs - cell.features * (len(sources) - 1))
    # What is missing is reported later, with all that there is.
    return 1


def _numbers(layout, cell, features_in):
    """{name of a parameter: the numbers of its entries, from 1 on}."""
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), features_in))
    sources = {name for row in layout.rows for name in row.source.split()}
    homeless = shapes.keys() - sources - set(layout.zeros)
    if homeless:
        raise ValueError(
            f"convert: this library has no place for {listed(homeless)} of "
            f"{type(cell).__name__}"
        )
    numbers, start = {}, 1
    for name, a in shapes.items():
        numbers[name] = np.arange(start, start + a.size).reshape(a.shape)
        start += a.size
    return numbers


def _pieces(layout, cell, numbers):
    """The rows that a cell has, each with the signed numbers of our entries there."""
    pieces = []
    for row in layout.rows:
        parts = [numbers[name] for name in row.source.split() if name in numbers]
        if not parts:
            continue
        positions = np.vstack(parts) if len(parts) > 1 else parts[0]
        if row.gates:
            blocks = _blocks(layout, positions)
            blocks |= {f"-{gate}": -block for gate, block in blocks.items()}
            # Number 0 stands for no entry.
            blocks["_"] = np.zeros((*positions.shape[:-1], cell.features), int)
            ordered = [blocks[gate] for gate in row.gates.split()]
            positions = np.concatenate(ordered, axis=-1)
        pieces.append((row, positions.T if row.transposed else positions))
    return pieces


def _blocks(layout, positions):
    """{gate: its block of the last axis}."""
    order = layout.order.split()
    return dict(zip(order, np.split(positions, len(order), axis=-1), strict=True))


def _refuse_unknown(layout, flat, names, pieces, prefix, suffix):
    """Refuse further weights of this cell; those of other cells may stand beside it."""
    known = {names[row.name] for row, _ in pieces}
    ignored = {f"{prefix}{name}" for name in layout.ignored}
    separator = layout.separator or LEVEL
    parents = {name.rpartition(separator)[0] for name in known}
    unknown = []
    for name in flat.keys() - known - ignored:
        parent = name.rpartition(separator)[0]
        beside = layout.separator and parent not in parents
        other_layer = suffix is not None and not name.endswith(suffix)
        if name.startswith(prefix) and not (beside or other_layer):
            unknown.append(name)
    if unknown:
        one = "; give one layer and direction as the suffix" if layout.suffix else ""
        raise ValueError(
            f"convert: this cell has no weight {listed(unknown)}; it has "
            f"{listed(known)}{one}"
        )


def _undetermined(pieces, numbers):
    """Our parameters that no array of the library shows by itself."""
    shown = set()
    for row, _ in pieces:
        if row.only != "load":
            shown |= set(row.source.split())
    return numbers.keys() - shown


def _to_ours(pieces, arrays, numbers, skip):
    """Add up the arrays of the library; entry k has the number k, and 0 is unused."""
    size = 1 + sum(positions.size for positions in numbers.values())
    entries = np.zeros(size, np.result_type(*arrays.values()))
    for row, positions in pieces:
        if row.only != skip and row.name in arrays:
            a = arrays[row.name]
            entries[np.abs(positions)] += np.where(positions < 0, -a, a)
    return entries


def _to_theirs(pieces, entries, skip):
    """The arrays of the library from our entries, of which number 0 is zero."""
    arrays = {}
    for row, positions in pieces:
        array = arrays.setdefault(row.name, np.zeros(positions.shape, entries.dtype))
        if row.only != skip:
            a = entries[np.abs(positions)]
            array += np.where(positions < 0, -a, a)
    return arrays


def _add_constants(layout, numbers, entries, sign):
    """Add what the library adds to the biases of its gates, in place."""
    for gate, constant in layout.constants.items():
        block = _blocks(layout, numbers["bias"])[gate]
        entries[block] += np.asarray(sign * constant, entries.dtype)


def _refuse_lost(pieces, weights, numbers, entries):
    """Refuse parameters that loading would not give back."""
    again = _to_ours(pieces, weights, numbers, skip="dump")
    for name in sorted(_undetermined(pieces, numbers)):
        positions = numbers[name]
        if not np.array_equal(again[positions], entries[positions]):
            raise ValueError(
                f"convert: this library has no place for {name} of its own; loaded "
                "again, it would be another"
            )
