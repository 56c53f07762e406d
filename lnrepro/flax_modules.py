"""What the modules of linen and nnx share: names of parameters, dtypes, refusals."""

import functools
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.arrays import tree_at_least_f32
from lnrepro.functional.cells.base import Carry, Cell, Params
from lnrepro.functional.norms import layer_norm
from lnrepro.functional.unroll import step, unroll

DTypeLike = jax.typing.DTypeLike
# Name of a parameter: a mesh axis, or None, for each of its axes.
Sharding = Mapping[str, tuple[str | None, ...]]

# Names of parameters that some option of a cell of this library asks for: those of
# norms and biases at a site, peepholes, a learned carry, blocks, the cells of a stack.
_SITE = r"(x|h|c|u|joint|recurrent|hidden|gates|\d+)"
_OPTION = re.compile(
    rf"(w|gain|bias|length|inner_bias)_{_SITE}|(inner_)?bias|peephole|[ch]0|\d+"
)


def shapes_of(cell: Cell, features_in: int, dtype: DTypeLike) -> Params:
    """Return the shapes of the parameters that a cell draws, without drawing them.

    Args:
      cell: the cell.
      features_in: D.
      dtype: dtype of the parameters.
    """
    try:
        return _cached_shapes(cell, features_in, jnp.dtype(dtype))
    except TypeError:
        # A cell cannot be hashed with a bound module of linen as its activation.
        return _cached_shapes.__wrapped__(cell, features_in, dtype)


@functools.lru_cache(maxsize=256)
def _cached_shapes(cell, features_in, dtype):
    # Tracing the initialisers takes longer than what a module does at every call.
    key = jax.random.key(0)
    return jax.eval_shape(lambda key: cell.init(key, features_in, dtype), key)


def own_params(names: Container[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return those variables of a module that its cell shall see.

    A module leaves out what stands beside its parameters: those of a subclass or of its
    submodules, and what Flax keeps there. The parameters of other options stay, so that
    the cell refuses them. Weights of another norm would give wrong numbers.

    Args:
      names: names of the cell's parameters.
      variables: {name: variable}.

    >>> own_params(["w_x", "w_h"], {"w_x": 1, "gain_x": 2, "lora": 3})
    {'w_x': 1, 'gain_x': 2}
    """
    return {
        name: value
        for name, value in variables.items()
        if name in names or _OPTION.fullmatch(name)
    }


def as_drawn(tree: Any) -> Params:
    """Return parameters as their cell drew them.

    Args:
      tree: nested dicts. The entries of a tuple, such as the parameters of a stack, are
        named by their numbers.

    >>> as_drawn({"1": {"w": 2}, "0": {"w": 1}})
    ({'w': 1}, {'w': 2})
    """
    if not isinstance(tree, Mapping):
        return tree
    entries = dict(zip(tree, map(as_drawn, tree.values()), strict=True))
    # Flax keeps parameters in dicts, and a stack has them in a tuple.
    if "".join(map(str, entries)).isdigit():
        return tuple(entries[name] for name in sorted(entries, key=int))
    return entries


def cast(
    dtype: DTypeLike | None, x: jax.Array, params: Params
) -> tuple[jax.Array, Params]:
    """Return inputs in `dtype`, and parameters in no narrower one.

    Kernels are rounded to it when they are prepared. None changes nothing. Complex
    inputs would lose a part. They stay as they are, and the cell refuses them.
    """
    x = jnp.asarray(x)
    if dtype is None or jnp.iscomplexobj(x):
        return x, params

    def widened(a):
        if not jnp.issubdtype(a.dtype, jnp.floating):
            return a
        is_narrow = jnp.finfo(a.dtype).bits < jnp.finfo(dtype).bits
        return a.astype(dtype) if is_narrow else a

    return x.astype(dtype), jax.tree.map(widened, params)


def layer_norm_as(
    dtype: DTypeLike | None,
    x: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array | None,
    epsilon: float,
) -> jax.Array:
    """Return the layer norm of x [..., H] in `dtype`, or in x's where it is None."""
    dtype = x.dtype if dtype is None else dtype
    # A narrow x is not normalised in the narrow dtype where the result is wide.
    wide = x.astype(jnp.promote_types(x.dtype, dtype))
    return layer_norm(wide, scale, bias, epsilon=epsilon).astype(dtype)


def map_with_axes(
    make: Callable[[jax.Array, Any], Any], params: Params, sharding: Sharding | None
) -> Any:
    """Return a tree of `make(parameter, mesh axes)`.

    Args:
      make: the axes that it gets are None where there are none.
      params: the parameters.
      sharding: {name: mesh axes}, or None.

    Raises:
      ValueError: mesh axes for a parameter that there is not.
    """
    # Names are matched at any depth: "w_h" is that of every layer of a stack.
    sharding, names = sharding or {}, set()

    def make_one(path, value):
        name = jax.tree_util.keystr(path[-1:], simple=True)
        names.add(name)
        return make(value, sharding.get(name))

    tree = jax.tree_util.tree_map_with_path(make_one, params)
    for name in sharding.keys() - names:
        raise ValueError(f"sharding: no parameter {name!r}, only {sorted(names)}")
    return tree


def first_carry(
    module: Any, cell: Cell, params: Params, batch: Sequence[int], features_in: int
) -> Carry:
    """Return the carry before the first step of a module, in float32 at least.

    Args:
      module: the module, for its dtypes.
      cell: its cell.
      params: the parameters.
      batch: the batch axes.
      features_in: D.
    """
    dtype = module.param_dtype if module.dtype is None else module.dtype
    x = jnp.zeros((*batch, features_in), dtype)
    # A carry of bfloat16 would forget.
    return tree_at_least_f32(cell.initial_carry(params, x))


def refuse_other_cells(cell: Any, kind: type, package: str) -> None:
    """Raise TypeError for what RNN cannot run.

    Args:
      cell: what RNN was given.
      kind: the class of the cells of this package.
      package: its name.
    """
    # Another `__call__` would not be run as it is written.
    if not isinstance(cell, kind) or type(cell).__call__ is not kind.__call__:
        raise TypeError(
            f"RNN: the cell is a {type(cell).__name__}; it must be a cell of "
            f"lnrepro.{package} or lnrepro.functional. For others use "
            f"flax.{package}.RNN"
        )


def refuse_batch_norm(module: Any, cell: Cell) -> None:
    """Raise ValueError for a cell with batch norm.

    Args:
      module: the module.
      cell: its cell.
    """
    if cell.sites:
        raise ValueError(
            f"{type(module).__name__}: batch norm has statistics of each time step, "
            "which modules do not keep; use functional.unroll(..., statistics=...) "
            "with functional.track"
        )


def run_step(
    module: Any, prepared: tuple, carry: Any, mask: Any, reset: Any, memory: Any
) -> tuple[Any, jax.Array]:
    """Take one step of a module.

    Args:
      module: the module of the parameters.
      prepared: what its `_prepare` has returned.
      carry, mask, reset, memory: as for `functional.step`.

    Returns:
      (carry, y).

    Raises:
      ValueError: the step would draw noise that lasts for a sequence.
    """
    cell, params, x, key = prepared
    # eval_shape tells whether there is such noise without drawing it.
    if key is not None and jax.tree.leaves(jax.eval_shape(cell.sample, key, x)):
        raise ValueError(
            f"{type(module).__name__}: variational dropout has one mask for a whole "
            "sequence, which one step cannot keep; run the module over the sequence, "
            "or use lnrepro.functional.step(noise=...)"
        )
    return step(
        cell,
        params,
        carry,
        x,
        mask=mask,
        reset=reset,
        key=key,
        memory=memory,
        dtype=module.dtype,
    )


def run_sequence(
    module: Any,
    prepared: tuple,
    *,
    return_carry: bool | None,
    time_major: bool | None,
    reverse: bool | None,
    keep_order: bool | None,
    **arrays: Any,
) -> Any:
    """Run a module over a sequence.

    Args:
      module: the module.
      prepared: what `_prepare` of the module of the parameters has returned.
      return_carry, time_major, reverse, keep_order: None takes the module's attribute.
      **arrays: other arguments of `functional.unroll`, such as dtype.

    Returns:
      y, or (carry, y) with return_carry.
    """

    # What the call says comes before the attribute.
    options = {"time_major": time_major, "reverse": reverse, "keep_order": keep_order}
    options["return_carry"] = return_carry
    for name, given in options.items():
        options[name] = getattr(module, name) if given is None else given
    returns_carry = options.pop("return_carry")

    cell, params, x, key = prepared
    result = unroll(
        cell,
        params,
        x,
        key=key,
        options=module.options,
        **options,
        **arrays,
    )
    if returns_carry:
        return result.carry, result.outputs
    return result.outputs


def no_cell(module: Any) -> TypeError:
    """Return the error of a module that is used as a cell, and runs over a sequence."""
    return TypeError(
        f"{type(module).__name__} runs over a sequence and is no cell: call it as "
        "layer(x, initial_carry=carry). One step is its method step(carry, x), and "
        "Flax's RNN takes a cell, such as LSTMCell"
    )
