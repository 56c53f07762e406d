"""flax.nnx faces of `lnrepro.functional`: the same functions and parameter names as `lnrepro.linen`, with nnx's way of
holding state."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro import functional
from lnrepro.functional import norms


class LayerNorm(nnx.Module):
    """Layer normalisation of x (..., H) for each case by itself (eq. 3): `scale` (the paper's gain, starts at 1) and
    `bias` (starts at 0).

    Args are flax.nnx.LayerNorm's: `num_features` is H, or the shape of the normalised axes if there are several
    (`reduction_axes`). epsilon is 1e-5 as in the authors' code, and the result has x's dtype unless `dtype` says
    otherwise. See lnrepro.linen.LayerNorm.
    """

    def __init__(
        self,
        num_features: int | Sequence[int],
        *,
        epsilon: float = 1e-5,
        dtype: jax.typing.DTypeLike | None = None,
        param_dtype: jax.typing.DTypeLike = jnp.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: nnx.initializers.Initializer = nnx.initializers.zeros,
        scale_init: nnx.initializers.Initializer = nnx.initializers.ones,
        reduction_axes: int | Sequence[int] = -1,
        rngs: nnx.Rngs,
    ):
        shape = (num_features,) if isinstance(num_features, int) else tuple(num_features)
        self.scale = nnx.Param(scale_init(rngs.params(), shape, param_dtype)) if use_scale else nnx.data(None)
        self.bias = nnx.Param(bias_init(rngs.params(), shape, param_dtype)) if use_bias else nnx.data(None)
        self.epsilon, self.dtype = epsilon, dtype
        self.reduction_axes = reduction_axes if isinstance(reduction_axes, int) else tuple(reduction_axes)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise x (..., H); raises TypeError for integers and ValueError where `num_features` does not fit."""
        x = jnp.asarray(x)
        dtype = x.dtype if self.dtype is None else self.dtype
        wide = x.astype(jnp.promote_types(x.dtype, dtype))
        return norms.layer_norm(
            wide, _value(self.scale), _value(self.bias), axis=self.reduction_axes, eps=self.epsilon
        ).astype(dtype)


class BatchNorm(nnx.Module):
    """Batch normalisation of x (..., H) per feature over all other axes (eq. 2): `scale`, `bias`, and the running
    `mean` and `var`.

    `model.train()` and `model.eval()` choose between the batch's statistics and the running averages. See
    lnrepro.linen.BatchNorm for the options.
    """

    def __init__(
        self,
        num_features: int,
        *,
        use_running_average: bool = False,
        momentum: float = 0.99,
        epsilon: float = 1e-5,
        unbiased: bool = False,
        dtype: jax.typing.DTypeLike | None = None,
        param_dtype: jax.typing.DTypeLike = jnp.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: nnx.initializers.Initializer = nnx.initializers.zeros,
        scale_init: nnx.initializers.Initializer = nnx.initializers.ones,
        axis_name: str | tuple[str, ...] | None = None,
        rngs: nnx.Rngs,
    ):
        shape = (num_features,)
        self.scale = nnx.Param(scale_init(rngs.params(), shape, param_dtype)) if use_scale else nnx.data(None)
        self.bias = nnx.Param(bias_init(rngs.params(), shape, param_dtype)) if use_bias else nnx.data(None)
        self.mean = nnx.BatchStat(jnp.zeros(shape, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(shape, jnp.float32))
        self.use_running_average, self.momentum, self.epsilon = use_running_average, momentum, epsilon
        self.unbiased, self.dtype, self.axis_name = unbiased, dtype, axis_name

    def __call__(
        self, x: jax.Array, use_running_average: bool | None = None, *, mask: jax.Array | None = None
    ) -> jax.Array:
        """Normalise x (..., H); mask broadcasts against x.shape[:-1] and rows where it is 0 do not enter the
        statistics."""
        x = jnp.asarray(x)
        dtype = x.dtype if self.dtype is None else self.dtype
        x = x.astype(jnp.promote_types(x.dtype, dtype))
        gain, bias = _value(self.scale), _value(self.bias)
        if self.use_running_average if use_running_average is None else use_running_average:
            return norms.batch_norm(x, gain, bias, eps=self.epsilon, mean=self.mean[...], var=self.var[...])[0].astype(
                dtype
            )
        y, batch = norms.batch_norm(
            x, gain, bias, mask=mask, eps=self.epsilon, unbiased=self.unbiased, axis_name=self.axis_name
        )
        for running, new in zip((self.mean, self.var), batch, strict=True):
            running[...] = norms.running_average(running[...], new, self.momentum, mask=mask, axis_name=self.axis_name)
        return y.astype(dtype)


def _value(variable):
    return None if variable is None else variable[...]


class _Recurrent(nnx.Module):
    """What every recurrent face shares: parameters by their functional names, and the functional cell they belong
    to."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        norm: str = "layer",
        epsilon: float = 1e-5,
        kernel_init: nnx.initializers.Initializer | None = None,
        recurrent_kernel_init: nnx.initializers.Initializer | None = None,
        bias_init: nnx.initializers.Initializer | None = None,
        scale_init: nnx.initializers.Initializer | None = None,
        dtype: jax.typing.DTypeLike | None = None,
        param_dtype: jax.typing.DTypeLike = jnp.float32,
        wrap: Callable[[functional.Cell], functional.Cell] | None = None,
        rngs: nnx.Rngs,
        **options,
    ):
        cell = self._make(
            hidden_features,
            norm=norm,
            eps=epsilon,
            kernel_init=kernel_init,
            recurrent_init=recurrent_kernel_init,
            bias_init=bias_init,
            gain_init=scale_init,
            **options,
        )
        self.cell_definition = cell if wrap is None else wrap(cell)
        self.in_features, self.hidden_features, self.dtype, self.param_dtype = (
            in_features,
            hidden_features,
            dtype,
            param_dtype,
        )
        fresh = functional.init(self.cell_definition, rngs.params(), in_features, param_dtype)
        self.names = tuple(fresh)
        for name, value in fresh.items():
            setattr(self, name, nnx.Param(value))
        self.rngs = nnx.data(rngs.dropout.fork() if wrap is not None and "dropout" in rngs else None)
        self.deterministic = False

    def _cast(self, x):
        params = {name: getattr(self, name)[...] for name in self.names}
        if self.dtype is None or not jnp.issubdtype(jnp.result_type(x), jnp.floating):
            return params, x
        return jax.tree.map(lambda p: p.astype(self.dtype), params), jnp.asarray(x, self.dtype)

    def _key(self, rngs):
        if self.deterministic:
            return None
        if rngs is not None and "dropout" in rngs:
            return rngs.dropout()
        return None if self.rngs is None else self.rngs()

    @property
    def num_feature_axes(self) -> int:
        """One, as Flax's RNN asks."""
        return 1


class _Step(_Recurrent):
    def __init__(self, in_features: int, hidden_features: int, **options):
        super().__init__(in_features, hidden_features, **options)
        if self.cell_definition.sites:
            raise ValueError(
                f"{type(self).__name__}: batch norm's statistics differ per time step; use the module for sequences"
            )
        if self.cell_definition.sample is not None:
            raise ValueError(
                "one-step cells cannot hold variational dropout's mask from step to step; use the module for sequences"
            )

    def __call__(self, carry, inputs: jax.Array):
        """(carry, x (..., D)) -> (carry, y (..., H)). Noise of a wrapped cell is drawn from the module's own "dropout"
        stream."""
        params, x = self._cast(inputs)
        return functional.step(self.cell_definition, params, carry, x, functional.Tick(key=self._key(None)))

    def initialize_carry(self, input_shape: tuple[int, ...], rngs: nnx.Rngs | None = None):
        """Zeros, or the learned carry: h (..., H), or (c, h) for the LSTM, for inputs of shape (..., D)."""
        params, like = self._cast(jnp.zeros(input_shape, self.param_dtype))
        return self.cell_definition.carry(params, like)


class _Sequence(_Recurrent):
    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        return_carry: bool = False,
        time_major: bool = False,
        reverse: bool = False,
        keep_order: bool = False,
        unroll: int = 1,
        backward: str = "lean",
        max_steps: int | None = None,
        momentum: float = 0.9,
        use_running_average: bool = False,
        **options,
    ):
        super().__init__(in_features, hidden_features, **options)
        self.return_carry, self.time_major, self.reverse, self.keep_order = (
            return_carry,
            time_major,
            reverse,
            keep_order,
        )
        self.unroll, self.backward, self.momentum, self.use_running_average = (
            unroll,
            backward,
            momentum,
            use_running_average,
        )
        if self.cell_definition.sites and max_steps is None:
            raise ValueError(
                f"{type(self).__name__}: norm='batch' keeps statistics per step; say for how many: max_steps=..."
            )
        for site, n in self.cell_definition.sites.items():
            setattr(self, f"mean_{site}", nnx.BatchStat(jnp.zeros((max_steps, n), jnp.float32)))
            setattr(self, f"var_{site}", nnx.BatchStat(jnp.ones((max_steps, n), jnp.float32)))

    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: Any = None,
        seq_lengths: jax.Array | None = None,
        mask: jax.Array | None = None,
        resets: jax.Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
        rngs: nnx.Rngs | None = None,
    ):
        """x (..., T, D) -> y (..., T, H), or (carry, y) with return_carry. See lnrepro.linen and
        lnrepro.functional.unroll.

        `model.eval()` chooses running statistics (batch norm) and no noise; `model.train()` the batch's and noise.
        """

        def chosen(argument, attribute):
            return attribute if argument is None else argument

        cell = self.cell_definition
        params, x = self._cast(jnp.asarray(inputs))
        options = {
            "carry": initial_carry,
            "lengths": seq_lengths,
            "mask": mask,
            "resets": resets,
            "reverse": chosen(reverse, self.reverse),
            "keep_order": chosen(keep_order, self.keep_order),
            "time_major": chosen(time_major, self.time_major),
            "key": self._key(rngs),
            "backward": self.backward,
            "unroll": self.unroll,
        }
        held = {site: (getattr(self, f"mean_{site}"), getattr(self, f"var_{site}")) for site in cell.sites}
        running = {site: (mean[...], var[...]) for site, (mean, var) in held.items()} or None
        if running is None or self.use_running_average:
            carry, y = functional.unroll(cell, params, x, statistics=running, **options)
        else:
            carry, y, batch = functional.unroll(cell, params, x, with_statistics=True, **options)
            for site, pair in functional.track(running, batch, self.momentum).items():
                for variable, value in zip(held[site], pair, strict=True):
                    variable[...] = value
        return (carry, y) if chosen(return_carry, self.return_carry) else y


class LSTMCell(_Step):
    """One step of the LSTM (eq. 20-22): ((c, h), x (..., D)) -> ((c, h), h (..., H)); also inside flax.nnx.RNN.

    `LSTMCell(in_features, hidden_features, norm="layer", rngs=nnx.Rngs(0))`; further options as in
    lnrepro.functional.lstm.
    """

    _make = staticmethod(functional.lstm)


class GRUCell(_Step):
    """One step of the GRU (eq. 23-28): (h, x (..., D)) -> (h, h (..., H)); also inside flax.nnx.RNN. Options as in
    lnrepro.functional.gru."""

    _make = staticmethod(functional.gru)


class RNNCell(_Step):
    """One step of the simple RNN (eq. 4): (h, x (..., D)) -> (h, h (..., H)); also inside flax.nnx.RNN. Options as in
    lnrepro.functional.rnn."""

    _make = staticmethod(functional.rnn)


class LSTM(_Sequence):
    """An LSTM over x (..., T, D) -> y (..., T, H): `LSTM(D, H, rngs=nnx.Rngs(0))(x, seq_lengths=lengths)`. Options as
    in lnrepro.functional.lstm."""

    _make = staticmethod(functional.lstm)


class GRU(_Sequence):
    """A GRU over x (..., T, D) -> y (..., T, H): `GRU(D, H, rngs=nnx.Rngs(0))(x, seq_lengths=lengths)`. Options as in
    lnrepro.functional.gru."""

    _make = staticmethod(functional.gru)


class RNN(_Sequence):
    """A simple RNN over x (..., T, D) -> y (..., T, H): `RNN(D, H, rngs=nnx.Rngs(0))(x, seq_lengths=lengths)`. Options
    as in lnrepro.functional.rnn."""

    _make = staticmethod(functional.rnn)
