"""flax.linen faces of `lnrepro.functional`: the same functions, with Flax's argument names, parameters in "params",
running averages in "batch_stats"."""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro import functional
from lnrepro.functional import norms


class LayerNorm(nn.Module):
    """Layer normalisation of x (..., H) for each case by itself (eq. 3): parameters "scale" (the paper's gain, starts
    at 1) and "bias" (starts at 0).

    Unlike flax.linen.LayerNorm, epsilon is 1e-5 as in the authors' code, the variance is taken in two passes, and the
    result has x's dtype unless `dtype` says otherwise. For a convolution's output (B, height, width, C) with
    statistics over the whole case: `LayerNorm(reduction_axes=(-3, -2, -1))`.

    Attributes:
      epsilon: added to the variance under the root.
      dtype: dtype of the result; None means x's. Statistics are in float32 at least.
      param_dtype: dtype of the parameters.
      use_bias, use_scale: whether there is a bias and a gain.
      bias_init, scale_init: their initialisers.
      reduction_axes: axes over which mean and variance are taken.
      feature_axes: those of the reduction axes along which gain and bias vary.
    """

    epsilon: float = 1e-5
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: nn.initializers.Initializer = nn.initializers.zeros
    scale_init: nn.initializers.Initializer = nn.initializers.ones
    reduction_axes: int | Sequence[int] = -1
    feature_axes: int | Sequence[int] = -1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise x (..., H); raises TypeError for integers and ValueError for axes that do not fit."""
        x = jnp.asarray(x)
        reduced, featured = _axes(self.reduction_axes, x), _axes(self.feature_axes, x)
        if not set(featured) <= set(reduced):
            raise ValueError(
                f"LayerNorm: feature_axes={self.feature_axes} must be among reduction_axes={self.reduction_axes}"
            )
        stored = tuple(x.shape[a] for a in featured)
        spread = tuple(x.shape[a] if a in featured else 1 for a in reduced)
        gain = (
            self.param("scale", self.scale_init, stored, self.param_dtype).reshape(spread) if self.use_scale else None
        )
        bias = self.param("bias", self.bias_init, stored, self.param_dtype).reshape(spread) if self.use_bias else None
        dtype = x.dtype if self.dtype is None else self.dtype
        wide = x.astype(jnp.promote_types(x.dtype, dtype))
        return norms.layer_norm(wide, gain, bias, axis=reduced, eps=self.epsilon).astype(dtype)


class BatchNorm(nn.Module):
    """Batch normalisation of x (..., H) per feature over all other axes (eq. 2): parameters "scale", "bias"; running
    "mean", "var" in "batch_stats".

    Attributes:
      use_running_average: normalise by the running averages (test time) or by the batch (training); here or in the
        call.
      momentum: running <- momentum * running + (1 - momentum) * batch.
      epsilon: added to the variance under the root.
      unbiased: divide by n - 1, in the normaliser and in the running variance (the paper does so for batches of 4).
      axis_name: mapped axes over which the batch is spread; without it each device of a pmap normalises by its own
        rows.
      dtype, param_dtype, use_bias, use_scale, bias_init, scale_init: as in LayerNorm.
    """

    use_running_average: bool | None = None
    momentum: float = 0.99
    epsilon: float = 1e-5
    unbiased: bool = False
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: nn.initializers.Initializer = nn.initializers.zeros
    scale_init: nn.initializers.Initializer = nn.initializers.ones
    axis_name: str | tuple[str, ...] | None = None

    @nn.compact
    def __call__(
        self, x: jax.Array, use_running_average: bool | None = None, *, mask: jax.Array | None = None
    ) -> jax.Array:
        """Normalise x (..., H); mask broadcasts against x.shape[:-1] and rows where it is 0 do not enter the
        statistics."""
        running_only = nn.merge_param("use_running_average", self.use_running_average, use_running_average)
        x = jnp.asarray(x)
        features = x.shape[-1:]
        mean = self.variable("batch_stats", "mean", jnp.zeros, features, jnp.float32)
        var = self.variable("batch_stats", "var", jnp.ones, features, jnp.float32)
        gain = self.param("scale", self.scale_init, features, self.param_dtype) if self.use_scale else None
        bias = self.param("bias", self.bias_init, features, self.param_dtype) if self.use_bias else None
        dtype = x.dtype if self.dtype is None else self.dtype
        x = x.astype(jnp.promote_types(x.dtype, dtype))
        if running_only:
            return norms.batch_norm(x, gain, bias, eps=self.epsilon, mean=mean.value, var=var.value)[0].astype(dtype)
        across = None if self.is_initializing() else self.axis_name
        y, batch = norms.batch_norm(
            x, gain, bias, mask=mask, eps=self.epsilon, unbiased=self.unbiased, axis_name=across
        )
        if not self.is_initializing():
            for running, new in zip((mean, var), batch, strict=True):
                running.value = norms.running_average(running.value, new, self.momentum, mask=mask, axis_name=across)
        return y.astype(dtype)


def _axes(axes, x):
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    if any(not -x.ndim <= a < x.ndim for a in given):
        raise ValueError(f"axes {axes} are out of range for x of shape {x.shape}")
    return tuple(sorted(a % x.ndim for a in given))


class _Recurrent(nn.Module):
    """What every recurrent face shares: the attributes, and the functional cell and parameters made from them."""

    features: int
    norm: str = "layer"
    epsilon: float = 1e-5
    use_bias: bool = True
    learned_carry: bool = False
    kernel_init: nn.initializers.Initializer | None = None
    recurrent_kernel_init: nn.initializers.Initializer | None = None
    bias_init: nn.initializers.Initializer | None = None
    scale_init: nn.initializers.Initializer | None = None
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    wrap: Callable[[functional.Cell], functional.Cell] | None = None

    def _options(self):
        return {}

    @property
    def cell_definition(self) -> functional.Cell:
        """The functional cell this module stands for."""
        cell = self._make(
            self.features,
            norm=self.norm,
            eps=self.epsilon,
            use_bias=self.use_bias,
            learned_carry=self.learned_carry,
            kernel_init=self.kernel_init,
            recurrent_init=self.recurrent_kernel_init,
            bias_init=self.bias_init,
            gain_init=self.scale_init,
            **self._options(),
        )
        return cell if self.wrap is None else self.wrap(cell)

    def _parameters(self, cell, features_in):
        if features_in < 1:
            raise ValueError(f"{type(self).__name__}: inputs have no features; a cell needs at least one")
        spec = cell.spec(features_in)
        fresh = (
            functional.init(cell, self.make_rng("params"), features_in, self.param_dtype)
            if self.is_initializing()
            else {}
        )
        zeros = jnp.zeros
        return {
            n: self.param(n, lambda _, n=n: fresh[n] if fresh else zeros(spec[n][1], self.param_dtype)) for n in spec
        }

    def _key(self):
        return self.make_rng("dropout") if self.has_rng("dropout") else None

    def _cast(self, params, x):
        """Inputs and parameters in the dtype asked for."""
        if self.dtype is None or not jnp.issubdtype(jnp.result_type(x), jnp.floating):
            return params, x
        return jax.tree.map(lambda p: p.astype(self.dtype), params), jnp.asarray(x, self.dtype)


class _LSTM(_Recurrent):
    forget_bias: float = 0.0
    peephole: bool = False
    cell_norm: str = "output"
    inner_bias: bool = False

    _make = staticmethod(functional.lstm)

    def _options(self):
        return {n: getattr(self, n) for n in ("forget_bias", "peephole", "cell_norm", "inner_bias")}


class _GRU(_Recurrent):
    reset: str = "after"
    recurrent_bias: bool = False

    _make = staticmethod(functional.gru)

    def _options(self):
        return {"reset": self.reset, "recurrent_bias": self.recurrent_bias}


class _RNN(_Recurrent):
    activation_fn: Callable[[jax.Array], jax.Array] = jnp.tanh

    _make = staticmethod(functional.rnn)

    def _options(self):
        return {"activation": self.activation_fn}


class _Step(nn.RNNCellBase):
    """One tick, with the interface of flax.linen's cells."""

    @nn.compact
    def __call__(self, carry, inputs: jax.Array):
        """(carry, x (..., D)) -> (carry, y (..., H)). Noise of a wrapped cell is drawn from the rng "dropout" where
        that is given."""
        if self.norm == "batch":
            raise ValueError(
                f"{type(self).__name__}: batch norm's statistics differ per time step; use the module for sequences"
            )
        cell = self.cell_definition
        params, x = self._cast(self._parameters(cell, jnp.shape(inputs)[-1]), inputs)
        key, tick = self._key(), functional.Tick()
        if key is not None:
            if cell.sample is not None:
                raise ValueError("a one-step cell cannot hold variational dropout's mask; use the module for sequences")
            tick = functional.Tick(key=key)
        return functional.step(cell, params, carry, x, tick)

    @nn.nowrap
    def initialize_carry(self, rng, input_shape: tuple[int, ...]):
        """Zeros: h (..., H), or (c, h) for the LSTM, for inputs of shape (..., D), in `dtype` (or `param_dtype`)."""
        if self.learned_carry:
            raise ValueError(
                f"{type(self).__name__}: a learned carry lives in the parameters; use the module for sequences"
            )
        like = jnp.zeros(input_shape, self.param_dtype if self.dtype is None else self.dtype)
        return self.cell_definition.carry({}, like)

    @property
    def num_feature_axes(self) -> int:
        """One, as Flax's RNN asks."""
        return 1


class _Sequence(nn.Module):
    """A whole sequence, with the interface of flax.linen.RNN."""

    return_carry: bool = False
    time_major: bool = False
    reverse: bool = False
    keep_order: bool = False
    unroll: int = 1
    backward: str = "lean"
    max_steps: int | None = None
    momentum: float = 0.9
    use_running_average: bool | None = None

    @nn.compact
    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: Any = None,
        init_key: jax.Array | None = None,
        seq_lengths: jax.Array | None = None,
        mask: jax.Array | None = None,
        resets: jax.Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
        use_running_average: bool | None = None,
    ):
        """x (..., T, D) -> y (..., T, H), or (carry, y) with return_carry. Arguments override the attributes of the
        same name.

        seq_lengths (...) and mask (..., T) mark padding: the carry passes through, y is zero. resets (..., T) start
        the carry anew. init_key is taken for flax.linen.Bidirectional's sake and not used. See
        lnrepro.functional.unroll.
        """

        def chosen(argument, attribute):
            return attribute if argument is None else argument

        cell = self.cell_definition
        inputs = jnp.asarray(inputs)
        params, x = self._cast(self._parameters(cell, inputs.shape[-1] if inputs.ndim else 0), inputs)
        options = {
            "carry": initial_carry,
            "lengths": seq_lengths,
            "mask": mask,
            "resets": resets,
            "reverse": chosen(reverse, self.reverse),
            "keep_order": chosen(keep_order, self.keep_order),
            "time_major": chosen(time_major, self.time_major),
            "key": self._key(),
            "backward": self.backward,
            "unroll": self.unroll,
        }
        if cell.sites:
            carry, y = self._batch_normalised(cell, params, x, options, use_running_average)
        else:
            carry, y = functional.unroll(cell, params, x, **options)
        return (carry, y) if chosen(return_carry, self.return_carry) else y

    def _batch_normalised(self, cell, params, x, options, use_running_average):
        if self.max_steps is None:
            raise ValueError(
                f"{type(self).__name__}: norm='batch' keeps statistics per step; say for how many: max_steps=..."
            )
        at_test = nn.merge_param("use_running_average", self.use_running_average, use_running_average)
        starts = (("mean", jnp.zeros), ("var", jnp.ones))
        held = {
            site: tuple(
                self.variable("batch_stats", f"{kind}_{site}", make, (self.max_steps, n), jnp.float32)
                for kind, make in starts
            )
            for site, n in cell.sites.items()
        }
        running = {site: tuple(v.value for v in pair) for site, pair in held.items()}
        if at_test:
            return functional.unroll(cell, params, x, statistics=running, **options)
        carry, y, batch = functional.unroll(cell, params, x, with_statistics=True, **options)
        if not self.is_initializing():
            for site, pair in functional.track(running, batch, self.momentum).items():
                for variable, value in zip(held[site], pair, strict=True):
                    variable.value = value
        return carry, y


_ATTRIBUTES = """

    Attributes:
      features: H.
      norm: "layer", "none", "layer_cell" (LSTM), "weight", and in whole sequences "batch".
      dtype: of the computation and the result; None takes inputs' and parameters'. Statistics are in float32 at least.
      param_dtype: of the parameters.
      kernel_init, recurrent_kernel_init, bias_init, scale_init: initialisers; None takes lnrepro.functional's.
      epsilon, use_bias, learned_carry, and the cell's own options: as in lnrepro.functional.
      wrap: a function from cell to cell, e.g. functools.partial(lnrepro.functional.zoneout, rate_h=0.1); noise needs
        an rng named "dropout"."""
_SEQUENCE = """
      return_carry, time_major, reverse, keep_order, unroll: as in flax.linen.RNN.
      backward: "lean", or "autodiff" for jvp.
      max_steps, momentum, use_running_average: for norm="batch": running statistics per time step, the last one reused
        beyond max_steps."""


def _documented(cls):
    cls.__doc__ += _ATTRIBUTES + (_SEQUENCE if issubclass(cls, _Sequence) else "") + "\n    "
    return cls


@_documented
class LSTMCell(_Step, _LSTM):
    """One step of the LSTM (eq. 20-22): ((c, h), x (..., D)) -> ((c, h), h (..., H)); also inside flax.linen.RNN. See
    lnrepro.functional.lstm."""


@_documented
class GRUCell(_Step, _GRU):
    """One step of the GRU (eq. 23-28): (h, x (..., D)) -> (h, h (..., H)); also inside flax.linen.RNN. See
    lnrepro.functional.gru."""


@_documented
class RNNCell(_Step, _RNN):
    """One step of the simple RNN (eq. 4): (h, x (..., D)) -> (h, h (..., H)); also inside flax.linen.RNN. See
    lnrepro.functional.rnn."""


@_documented
class LSTM(_Sequence, _LSTM):
    """An LSTM over x (..., T, D) -> y (..., T, H): `LSTM(features=256)(x, seq_lengths=lengths)`. See
    lnrepro.functional.lstm and unroll."""


@_documented
class GRU(_Sequence, _GRU):
    """A GRU over x (..., T, D) -> y (..., T, H): `GRU(features=256)(x, seq_lengths=lengths)`. See
    lnrepro.functional.gru and unroll."""


@_documented
class RNN(_Sequence, _RNN):
    """A simple RNN over x (..., T, D) -> y (..., T, H): `RNN(features=256)(x, seq_lengths=lengths)`. See
    lnrepro.functional.rnn and unroll."""
