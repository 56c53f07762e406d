"""The synthesis network (Graves 2013, section 5; Ba, Kiros, Hinton 2016, section 6.5).

    h1_t = LSTM([x_t; w_{t-1}]);   w_t from h1_t and the text;   h2_t = LSTM([x_t; h1_t; w_t]);   h3_t = LSTM([x_t; h2_t;
    w_t]);   y^_t = b + sum_n W_n h^n_t,   the density of x_{t+1}

x_t = (dx, dy, ends a stroke). The first layer is coupled with its window and runs step by step; the other two, and the
outputs, see whole sequences. Letters: B batch, T time, U characters, V symbols, H units.
"""

from functools import partial

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.engine.errors import UserError
from lnrepro.functional import Cell, Tick, cells, clip_gradient, step, unroll

from . import mixture
from .window import reading

NORMS = ("none", "layer")
LAYERS = ("lstm1", "lstm2", "lstm3")
START = (0.0, 0.0, 1.0)  # x_1: no offset, and the pen comes down anew
Params = dict[str, dict[str, jax.Array]]


class Network:
    """The network of a config: its sizes, and functions of its parameters."""

    def __init__(self, config: ConfigDict):
        m = self.sizes = config.model
        if config.norm not in NORMS:
            raise UserError(
                f"config.norm = {config.norm!r}: choose one of {', '.join(NORMS)}"
            )
        for name in (
            "units",
            "gaussians",
            "window_gaussians",
            "symbols",
            "steps",
            "characters",
        ):
            if m[name] < 1:
                raise UserError(
                    f"config.model.{name} = {m[name]}: at least 1 is needed"
                )
        for name in ("clip_cells", "clip_outputs"):
            if m[name] < 0:
                raise UserError(
                    f"config.model.{name} = {m[name]}: a limit above 0, or 0 for none"
                )
        self.norm, self.outputs = config.norm, mixture.size(m.gaussians)

    def cells(self, rows: int = 1) -> dict[str, Cell]:
        """The three layers by name. The clipping limit is of one sequence's loss, and the loss a mean over `rows`."""
        m = self.sizes
        lstm = cells.lstm(
            m.units,
            norm=self.norm,
            peephole=m.peephole,
            clip_gradient=m.clip_cells / rows,
        )
        first = reading(lstm, m.symbols, m.window_gaussians, m.kappa_bias)
        return dict(zip(LAYERS, (first, lstm, lstm), strict=True))

    def init(self, key: jax.Array) -> Params:
        """The three layers, and the affine map from all their outputs, weights N(0, 0.075^2)."""
        m = self.sizes
        *keys, last = jax.random.split(key, len(LAYERS) + 1)
        inputs = (3, *[3 + m.units + m.symbols] * 2)
        params = {
            name: cells.init(cell, k, n)
            for (name, cell), k, n in zip(
                self.cells().items(), keys, inputs, strict=True
            )
        }
        w = 0.075 * jax.random.normal(last, (len(LAYERS) * m.units, self.outputs))
        return params | {"output": {"w": w, "bias": jnp.zeros(self.outputs)}}

    def start(self, params: Params, rows: int) -> dict:
        """The carry before the first step of B = `rows` sequences."""
        like = jnp.zeros((rows, 1), params["output"]["w"].dtype)
        return {
            name: cell.carry(params[name], like) for name, cell in self.cells().items()
        }

    def run(
        self, params: Params, x: jax.Array, text: jax.Array
    ) -> tuple[dict, jax.Array, jax.Array]:
        """Steps x (T, B, 3), text (B, U, V) -> the last carry, outputs y^ (T, B, 1 + 6M), the first layer's h (T, B, H)."""
        made = self.cells(x.shape[1])
        # Without layer norm, projections kept would take more than half the memory of plain autodiff, to gain 3 % of the
        # time; with it they take a third, and gain 10 to 16 %.
        save = "projections" if self.norm == "layer" else "carries"
        lean = partial(unroll, time_major=True, save=save)
        carry = {}
        with jax.named_scope("layer1_and_window"):
            carry["lstm1"], seen = lean(
                made["lstm1"], params["lstm1"], x, constants=text
            )
        h1, w = seen[..., : self.sizes.units], seen[..., self.sizes.units :]
        with jax.named_scope("layer2"):
            carry["lstm2"], h2 = lean(
                made["lstm2"], params["lstm2"], jnp.concatenate([x, seen], -1)
            )
        with jax.named_scope("layer3"):
            carry["lstm3"], h3 = lean(
                made["lstm3"], params["lstm3"], jnp.concatenate([x, h2, w], -1)
            )
        with jax.named_scope("output"):
            y = self._output(params, h1, h2, h3)
            limit = self.sizes.clip_outputs / x.shape[1]
            return carry, clip_gradient(y, limit) if limit else y, h1

    def step(
        self, params: Params, carry: dict, x: jax.Array, text: jax.Array
    ) -> tuple[dict, jax.Array, jax.Array]:
        """One step of `run`: x (B, 3) -> the carry, y^ (B, 1 + 6M), and h1 (B, H)."""
        made, new = self.cells(), {}
        new["lstm1"], seen = step(
            made["lstm1"], params["lstm1"], carry["lstm1"], x, Tick(constants=text)
        )
        h1, w = seen[..., : self.sizes.units], seen[..., self.sizes.units :]
        new["lstm2"], h2 = step(
            made["lstm2"],
            params["lstm2"],
            carry["lstm2"],
            jnp.concatenate([x, seen], -1),
        )
        new["lstm3"], h3 = step(
            made["lstm3"],
            params["lstm3"],
            carry["lstm3"],
            jnp.concatenate([x, h2, w], -1),
        )
        return new, self._output(params, h1, h2, h3), h1

    def _output(self, params, *hidden):
        return (
            jnp.concatenate(hidden, -1) @ params["output"]["w"]
            + params["output"]["bias"]
        )

    def nll(
        self, params: Params, steps: jax.Array, lengths: jax.Array, text: jax.Array
    ) -> jax.Array:
        """Nats of every sequence, (B,): steps (B, T, 3) normalised, their number `lengths` (B,), text (B, U, V)."""
        targets = jnp.moveaxis(steps, 1, 0)
        first = jnp.broadcast_to(
            jnp.array(START, targets.dtype), (1, *targets.shape[1:])
        )
        _, y, _ = self.run(params, jnp.concatenate([first, targets[:-1]]), text)
        with jax.named_scope("density"):
            nats = mixture.negative_log_likelihood(y, targets)
            there = jnp.arange(len(targets))[:, None] < lengths
            return jnp.sum(jnp.where(there, nats, 0.0), axis=0)
