"""Parts that the recurrent modules of `lnrepro.linen` and `lnrepro.nnx` share.

The norm modules have `lnrepro.functional.flax_norms`, stacks and directions
`lnrepro.functional.flax_combine`.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from lnrepro.functional.cells.base import Carry, Cell, Initializer, Params
from lnrepro.functional.cells.gated import GatedCell
from lnrepro.functional.scan import ScanOptions
from lnrepro.functional.unroll import (
    step,
    track,
    unroll,
)
from lnrepro.functional.wrappers import Stack, WrappedCell

T = TypeVar("T")

# The fields of a cell that hold initialisers, and the parameters that these draw.
INITIALIZERS = {
    "kernel_init": "w_x",
    "recurrent_kernel_init": "w_h",
    "bias_init": "bias",
    "scale_init": "gain",
}


class SequenceCall(NamedTuple):
    """Arguments of a call over a sequence that every part of a module gets."""

    time_major: bool
    reverse: bool | None
    keep_order: bool | None
    seq_lengths: jax.Array | None
    mask: jax.Array | None
    resets: jax.Array | None
    memory: Any
    deterministic: bool | None
    use_running_average: bool | None


class StepCall(NamedTuple):
    """Arguments of one step that every part of a module gets."""

    mask: jax.Array | None = None
    reset: jax.Array | None = None
    memory: Any = None
    deterministic: bool | None = None


class NamedModule:
    """A module that is named after a kind of cell, such as `LSTM`.

    It has the options of Flax's modules. All others are those of the functional cell.

    Attributes:
      cell_class: the kind of cell.
      generic_module: name of the module that takes a functional cell.
    """

    cell_class: ClassVar[type[GatedCell]]
    generic_module: ClassVar[str]

    if not TYPE_CHECKING:
        # Editors and type checkers read the signature of the module itself.
        def __new__(cls, *args, **options):
            """Say where an option is that only the functional cell has."""
            for name in options:
                if name in _options_elsewhere(cls):
                    raise TypeError(_where_it_is(cls, name))
            for value in args:
                if isinstance(value, str):
                    raise TypeError(f"{cls.__name__}: write norm={value!r}")
            return super().__new__(cls)


@functools.cache
def _options_elsewhere(module_class):
    """Names of options of the functional cell that the module does not have."""
    of_cell = {field.name for field in dataclasses.fields(module_class.cell_class)}
    # The number of units has Flax's name in each package.
    of_cell = (of_cell | {"wrap", "deterministic"}) - {"features"}
    return of_cell - set(inspect.signature(module_class.__init__).parameters)


def _where_it_is(module_class, name):
    cell = f"functional.{module_class.cell_class.__name__}"
    generic = module_class.generic_module
    where = f"{generic}({cell}(..., norm='layer', {name}=...))"
    if name == "wrap":
        where = f"{generic}(functional.zoneout({cell}(..., norm='layer'), ...))"
    if name == "deterministic":
        where = "FunctionalCell(cell, deterministic=...), and the call has it too"
    return f"{module_class.__name__} has no argument {name!r}; set it here: {where}"


def map_initializers(
    cell: Cell, function: Callable[[str, Initializer | None], Initializer | None]
) -> Cell:
    """Return the cell with other initialisers, also inside stacks and wrapped cells.

    Args:
      cell: any cell; one without the fields of `INITIALIZERS` stays as it is.
      function: (name of the field, initialiser) -> initialiser.
    """

    def change(one):
        if isinstance(one, WrappedCell):
            return dataclasses.replace(one, cell=map_initializers(one.cell, function))
        if not isinstance(one, GatedCell):
            return one
        changes = {name: function(name, getattr(one, name)) for name in INITIALIZERS}
        return dataclasses.replace(one, **changes)

    return cell.map_cells(change)


def initializer_of(cell: Cell, path: tuple[str, ...]) -> Initializer | None:
    """Return the initialiser that draws a parameter, None where no field holds it.

    Args:
      cell: any cell.
      path: names along the path to the parameter, see `parameter_names`.
    """
    if isinstance(cell, Stack):
        return initializer_of(cell.cells[int(path[0])], path[1:])
    if isinstance(cell, WrappedCell):
        return initializer_of(cell.cell, path)
    if not isinstance(cell, GatedCell):
        return None
    # All gains have one initialiser.
    drawn = "gain" if path[-1].startswith("gain_") else path[-1]
    fields = [name for name, parameter in INITIALIZERS.items() if parameter == drawn]
    return getattr(cell, fields[0]) if fields else None


def parameter_names(path: tuple) -> tuple[str, ...]:
    """Return the names along the path to a parameter; a lone array is called "value".

    Args:
      path: key path of `jax.tree_util.tree_flatten_with_path`.
    """
    names = tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
    return names or ("value",)


def merge_argument(argument: T | None, attribute: T) -> T:
    """Return the argument of a call, or the module's attribute where it is None."""
    return attribute if argument is None else argument


def cast(
    dtype: jax.typing.DTypeLike | None, x: jax.Array, params: Params
) -> tuple[jax.Array, Params]:
    """Return inputs and parameters in `dtype`, or as they are where it is None.

    Raises:
      TypeError: complex inputs, whose imaginary part a cast would drop.
    """
    if dtype is None:
        return x, params
    if jnp.iscomplexobj(x):
        raise TypeError(f"inputs have dtype {x.dtype}; they must be real")
    return x.astype(dtype), jax.tree.map(lambda p: p.astype(dtype), params)


def step_shape(x: jax.Array, time_major: bool) -> tuple[int, ...]:
    """Return the shape [..., D] of the inputs of one step of a sequence."""
    time_axis = 0 if time_major else x.ndim - 2
    return x.shape[:time_axis] + x.shape[time_axis + 1 :]


def compute_dtype(cell: Cell, params: Params, x: jax.Array) -> jnp.dtype:
    """Return the dtype of the products: the common one of inputs and weights."""
    weights = jax.eval_shape(cell.prepare, params).weights
    return jnp.result_type(x, *weights.values())


def drawn_carry(cell: Cell, params: Params, x: jax.Array, carry: Carry) -> Carry:
    """Return a carry that `carry_init` drew, in the dtype of the computation.

    Args:
      cell: the cell.
      params: its parameters.
      x: the inputs of the sequence.
      carry: the carry, drawn in the dtype of the parameters.
    """
    dtype = compute_dtype(cell, params, x)

    def cast(leaf):
        is_floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if is_floating else leaf

    return jax.tree.map(cast, carry)


@dataclasses.dataclass(frozen=True)
class WideCarry(WrappedCell):
    """A cell whose carry is wider than its products, such as float32 and bfloat16.

    Attributes:
      products: dtype of the products and of the output.
      carries: dtype of each leaf of the carry, which stays what it is.
    """

    products: Any
    carries: tuple[Any, ...]

    def initial_carry(self, params, x):
        """Return the carry of the wrapped cell in the wide dtypes."""
        leaves, structure = jax.tree.flatten(self.cell.initial_carry(params, x))
        pairs = zip(leaves, self.carries, strict=True)
        return jax.tree.unflatten(structure, [a.astype(dtype) for a, dtype in pairs])

    def step(self, dot, params, carry, x_proj, context):
        """Take one step, whose products read the carry in their own dtype."""

        def narrow_dot(name, v):
            return dot(name, v.astype(self.products))

        return self.cell.step(narrow_dot, params, carry, x_proj, context)

    def output(self, carry):
        """Return the output in the dtype of the products."""
        return self.cell.output(carry).astype(self.products)

    @property
    def is_noisy(self):
        """Whether the wrapped cell draws random numbers."""
        return self.cell.is_noisy


def with_dtype_of(carry: Carry | None, cell: Cell, params: Params, x: Any) -> Cell:
    """Return a cell that keeps the dtype of a carry, where that is a wider one.

    Flax's cells accept such carries, and helpers of other programs make them.

    Args:
      carry: the carry that a call got, or None.
      cell: the cell.
      params: its parameters.
      x: the inputs.
    """
    dtypes = tuple(jnp.result_type(leaf) for leaf in jax.tree.leaves(carry))
    if all(dtype == x.dtype for dtype in dtypes):
        return cell
    products = compute_dtype(cell, params, x)
    is_wider = all(
        jnp.issubdtype(dtype, jnp.floating)
        and jnp.promote_types(dtype, products) == dtype
        for dtype in dtypes
    )
    count = len(jax.tree.leaves(jax.eval_shape(cell.initial_carry, params, x)))
    is_narrow = all(dtype == products for dtype in dtypes)
    if is_narrow or not is_wider or len(dtypes) != count:
        return cell
    return WideCarry(cell, products, dtypes)


def run_cell(
    module: Any,
    cell: Cell,
    params: Params,
    x: jax.Array,
    initial_carry: Carry | None,
    call: SequenceCall,
    *,
    key: jax.Array | None,
    takes_running: bool,
    moves_running: bool,
) -> tuple[Carry, jax.Array]:
    """Run a cell over a sequence as a module and its call say.

    Args:
      module: the module. Its fields reverse, keep_order, options, unroll and momentum
        are read. `read_statistics(name)` and `write_statistics(name, value)` are the
        running statistics of batch norm.
      cell: its cell.
      params: the parameters.
      x: inputs of the sequence.
      initial_carry: the carry before the first step, or None.
      call: other arguments of the call.
      key: key for the noise, None without noise.
      takes_running: normalise by the running statistics in place of the batch's.
      moves_running: move the running statistics by those of the batch.

    Returns:
      (carry, outputs).
    """
    options = ScanOptions() if module.options is None else module.options
    if module.unroll != 1:
        options = dataclasses.replace(options, unroll=module.unroll)
    names = {site: statistics_names(site) for site in cell.sites}
    running = {
        site: tuple(module.read_statistics(name) for name in pair)
        for site, pair in names.items()
    }
    result = unroll(
        with_dtype_of(initial_carry, cell, params, x),
        params,
        x,
        initial_carry=initial_carry,
        seq_lengths=call.seq_lengths,
        mask=call.mask,
        resets=call.resets,
        reverse=merge_argument(call.reverse, module.reverse),
        keep_order=merge_argument(call.keep_order, module.keep_order),
        time_major=call.time_major,
        key=key,
        memory=call.memory,
        # None takes the statistics of the batch.
        statistics=running if running and takes_running else None,
        options=options,
    )
    if result.statistics is not None and moves_running:
        moved = track(running, result.statistics, module.momentum)
        for site, pair in names.items():
            for name, value in zip(pair, moved[site], strict=True):
                module.write_statistics(name, value)
    return result.carry, result.outputs


def step_cell(
    name: str,
    cell: Cell,
    params: Params,
    carry: Carry,
    x: jax.Array,
    call: StepCall,
    *,
    key: jax.Array | None,
    is_key_of_sequence: bool = False,
) -> tuple[Carry, jax.Array]:
    """Take one step of a cell as a call of a module says.

    Args:
      name: name of the module.
      cell: its cell.
      params: the parameters.
      carry: the carry before the step.
      x: inputs of the step.
      call: other arguments of the call.
      key: key for the noise, None without noise.
      is_key_of_sequence: whether all steps of a sequence get this key, and so draw the
        same masks.

    Raises:
      ValueError: the step would draw noise that lasts for a sequence.
    """
    # `sample` draws what lasts for a sequence. eval_shape tells whether there is any
    # without drawing it.
    keeps_no_mask = key is not None and not is_key_of_sequence
    if keeps_no_mask and jax.tree.leaves(jax.eval_shape(cell.sample, key, x)):
        raise ValueError(
            f"{name}: variational dropout has one mask for a whole sequence, which one "
            "step cannot keep; run the module over the sequence, pass what cell.sample "
            "draws to lnrepro.functional.step(noise=...), or give all steps of an nnx "
            "module one key, rngs=jax.random.key(...)"
        )
    return step(
        with_dtype_of(carry, cell, params, x),
        params,
        carry,
        x,
        mask=call.mask,
        reset=call.reset,
        key=key,
        memory=call.memory,
    )


def check_cell(cell: Any, cell_module: type, package: str) -> None:
    """Check that `RNN` runs a cell as it is written.

    A module with another `__call__` would not run as written, only its functional cell.

    Args:
      cell: the cell.
      cell_module: the class of cells that keep a functional cell.
      package: "linen" or "nnx".

    Raises:
      TypeError: the cell is of another kind.
    """
    if isinstance(cell, cell_module) and type(cell).__call__ is cell_module.__call__:
        return
    raise TypeError(
        f"RNN: the cell is a {type(cell).__name__}; it must be a cell of "
        f"lnrepro.{package} whose __call__ is not overridden, or one of "
        f"lnrepro.functional. For other cells use flax.{package}.RNN"
    )


def refuse_step_of_batch_norm(name: str, cell: Cell) -> None:
    """Raise ValueError for a step with batch norm, which does not know its number."""
    if cell.sites:
        raise ValueError(
            f"{name}: batch norm has statistics of each time step; call RNN, or a "
            "module such as LSTM, on a sequence"
        )


def make_statistics(
    name: str, cell: Cell, max_steps: int | None, make: Callable[..., Any]
) -> None:
    """Make the running statistics of batch norm that a module keeps, [T_max, n] each.

    Args:
      name: name of the module.
      cell: its cell.
      max_steps: T_max; row t belongs to time step t.
      make: (name, function, shape, dtype), makes one of them.

    Raises:
      ValueError: there are some, and max_steps is None.
    """
    if cell.sites and max_steps is None:
        raise ValueError(
            f"{name}: batch norm keeps running statistics of each time step; give "
            "their number, max_steps=..."
        )
    for site, size in cell.sites.items():
        mean, var = statistics_names(site)
        make(mean, jnp.zeros, (max_steps, size), jnp.float32)
        make(var, jnp.ones, (max_steps, size), jnp.float32)


def statistics_names(site: str) -> tuple[str, str]:
    """Return the names of the running mean and variance of a site.

    >>> statistics_names("1/x")
    ('mean_1_x', 'var_1_x')
    """
    # A stack has sites such as "1/x", and "/" separates modules in Flax.
    suffix = site.replace("/", "_")
    return f"mean_{suffix}", f"var_{suffix}"
