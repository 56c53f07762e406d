"""The contract of a recurrent cell, and what the cells of the paper share.

A cell is a frozen dataclass: hashable, and equal to another of the same fields. To
write your own, subclass `Cell` and define `init`, `initial_carry`, `prepare`, `step`
and `output`. It then has the memory-lean backward pass, masks, resets, reverse,
streaming, zoneout, dropout, stacks and the Flax modules.

Shape letters: B batch, T time, D input features, H hidden units, N pre-activations.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import of_shape
from lnrepro.functional.arrays import wide_dtype
from lnrepro.functional.products import Dot

Carry = Any
Params = Any
# (key, shape, dtype) -> array, as those of `jax.nn.initializers`.
Initializer = Callable[..., jax.Array]
# A function of each entry, as those of `jax.nn`.
Activation = Callable[[jax.Array], jax.Array]


class StepContext(NamedTuple):
    """Optional inputs of one step besides the carry and x. None means not given.

    Attributes:
      mask: [...], False where the step is padding. `unroll` keeps the carry there; a
        step reads it only for statistics over the batch.
      key: random key of this step, for noise. A cell that draws noise around another
        cell gives that a key of its own.
      memory: what every step reads, such as the text that handwriting spells.
        Gradients flow to it.
      noise: what `Cell.sample` drew once for the sequence.
      statistics: {site: (mean, var)} for batch norm at test time.
    """

    mask: jax.Array | None = None
    key: jax.Array | None = None
    memory: Any = None
    noise: Any = None
    statistics: Any = None


class Prepared(NamedTuple):
    """Parameters as a sequence needs them, made by `Cell.prepare`.

    Attributes:
      weights: {name: [D, N]} or block-diagonal [G, D / G, N / G] or [G, D / G, gates,
        units], for `dot`; see `lnrepro.functional.scan`.
      params: what `step` reads besides.
    """

    weights: dict[str, jax.Array]
    params: Any


def split(params: dict) -> Prepared:
    """Split prepared parameters by their names, of which those of weights are w_..."""
    # A scan keeps what `dot` reads apart from what a step reads otherwise.
    weights, rest = {}, {}
    for name, a in params.items():
        part = weights if name.startswith("w_") else rest
        part[name] = a
    return Prepared(weights, rest)


class Cell:
    """A recurrent cell.

    Attributes:
      features: H, the size of the output.
      recurrent_weights: names of the weights that may multiply h_{t-1}, [H, N]. Those
        of them that a cell has are where `variational_dropout` drops units of h.
    """

    features: int
    recurrent_weights: ClassVar[tuple[str, ...]] = ("w_h",)

    def init(
        self,
        key: jax.Array,
        features_in: int,
        dtype: jax.typing.DTypeLike = jnp.float32,
    ) -> Params:
        """Draw fresh parameters.

        Args:
          key: random key.
          features_in: D, the size of the input.
          dtype: dtype of the parameters.
        """
        raise NotImplementedError

    def initial_carry(self, params: Params, x: jax.Array) -> Carry:
        """Return the carry before the first step.

        `unroll` and `step` keep floating-point arrays of a carry in float32 at least,
        and cast what a step returns to their dtypes. A carry that is rounded to
        bfloat16 in every step forgets within some hundred steps.

        Args:
          params: the parameters.
          x: [..., D], inputs of one step: the carry has their batch axes.
        """
        raise NotImplementedError

    def prepare(self, params: Params) -> Prepared:
        """Split the parameters into weights for `dot` and the rest, once a sequence."""
        raise NotImplementedError

    def step(
        self,
        dot: Dot,
        params: Any,
        carry: Carry,
        x: jax.Array,
        context: StepContext,
    ) -> tuple[Carry, Any]:
        """Take one step.

        What does not depend on the carry is computed for many steps at once where that
        is faster. The gradient of x is fastest where `dot` multiplies x itself.

        Args:
          dot: (name, v [..., D]) -> v times the weight of that name, [..., N], in
            float32 at least. Each name at most once in a step.
          params: `Prepared.params`.
          carry: the carry before the step.
          x: [..., D], the input of the step.
          context: optional inputs.

        Returns:
          (carry, statistics): {site: (mean, var)} of batch norm; {} or None without it.
        """
        raise NotImplementedError

    def output(self, carry: Carry) -> jax.Array:
        """Return the output [..., H] of a step from the carry after it.

        Zoneout asks for a cell whose output is h, the last array of the carry.
        """
        raise NotImplementedError

    def sample(self, key: jax.Array, x: jax.Array) -> Any:
        """Draw noise once for a whole sequence. None means that there is none.

        Args:
          key: random key.
          x: [..., D], inputs of one step: the noise has their batch axes.
        """
        del key, x

    @property
    def sites(self) -> dict[str, Any]:
        """The sites of batch norm and their sizes, {} without batch norm.

        A stack has those of its cells by their numbers.
        """
        return {}

    @property
    def is_noisy(self) -> bool:
        """Whether training draws random numbers, so that a key is needed."""
        return False

    @property
    def learns_carry(self) -> bool:
        """Whether the carry before the first step is among the parameters."""
        return False

    def map_cells(self, wrap: Callable[["Cell"], "Cell"]) -> "Cell":
        """Wrap the cell; a stack wraps each of its cells."""
        return wrap(self)


def check_params(cell: str, params: dict, specs: dict[str, "ParamSpec"]) -> None:
    """Check the names and shapes of parameters.

    Args:
      cell: name of the cell, for the message.
      params: {name: array}, what the user gave.
      specs: {name: spec} of a cell with these options.

    Raises:
      ValueError: a name is missing, there is one more, or a shape differs.
    """
    missing = sorted(set(specs) - set(params))
    if missing:
        raise ValueError(
            f"{cell}: params has no {', '.join(map(repr, missing))}; make them with "
            "cell.init(key, features_in), or with lnrepro.convert.load from weights of "
            "another library, such as Flax's cells"
        )
    # Those of another norm would be passed over without a word.
    unused = sorted(set(params) - set(specs))
    if unused:
        raise ValueError(
            f"{cell}: params has {', '.join(map(repr, unused))}, which a cell with "
            "these options does not have"
        )
    for name, spec in specs.items():
        of_shape(cell, name, params[name], spec.shape)


def clip_gradient(x: Any, limit: Any) -> Any:
    """Return x; its gradient is clipped to [-limit, limit], entry by entry.

    Args:
      x: array of any shape.
      limit: positive number, which may be traced.

    >>> print(jax.grad(lambda x: 3.0 * clip_gradient(x, 1.0))(2.0))
    1.0
    """
    # A limit of NumPy's float64 would widen the gradient.
    return _clip_gradient(x, jnp.asarray(limit, jnp.result_type(x)))


@jax.custom_vjp
def _clip_gradient(x, limit):
    return x


def _clip_gradient_forward(x, limit):
    return x, limit


def _clip_gradient_backward(limit, gradient):
    # As Graves (2013, section 2.1) keeps the derivatives of the LSTM's inputs in range.
    # Of `jax.lax`, since this may be traced where float64 is off.
    return jax.lax.clamp(jax.lax.neg(limit), gradient, limit), None


_clip_gradient.defvjp(_clip_gradient_forward, _clip_gradient_backward)


@dataclasses.dataclass(frozen=True)
class ParamSpec:
    """Shape and initialiser of one parameter.

    An initialiser of None means that the cell computes the start from the others.
    """

    initializer: Initializer | None
    shape: tuple[int, ...]


def draw(specs: dict[str, ParamSpec], key: jax.Array, dtype: Any) -> dict:
    """Draw parameters, each from a key of its own.

    They are drawn in float32 at least and then cast, so that orthogonal kernels exist
    in bfloat16 too.

    Args:
      specs: {name: shape and initialiser}.
      key: random key.
      dtype: dtype of the parameters.

    Returns:
      {name: array}.
    """
    # Orthogonal initialisers need a QR decomposition, which bfloat16 does not have.
    draw_dtype = wide_dtype(dtype)
    # What is computed from others takes no key, so that the keys of the others do not
    # depend on it.
    initializers = {n: s.initializer for n, s in specs.items() if s.initializer}
    keys = jax.random.split(key, len(initializers))
    params = {}
    for (name, initializer), subkey in zip(initializers.items(), keys, strict=True):
        params[name] = initializer(subkey, specs[name].shape, draw_dtype).astype(dtype)
    return params
