"""Functions from cell to cell: zoneout, dropout; and what several cells make together: stacks, with and without skip
connections, and bidirectional pairs.

Noise needs a key (`unroll(..., key=key)`, or `Tick(key=...)` in a single step); without one the cell is at test time:
zoneout takes the expectation, dropout does nothing. A wrapper given a stack or a pair wraps each of its cells.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional import cells
from lnrepro.functional.cells import Cell, Tick
from lnrepro.functional.unroll import flip, step, unroll

_NO_TICK = Tick()


def zoneout(cell: Cell, rate_c: float = 0.0, rate_h: float = 0.0) -> Cell:
    """Zoneout (Krueger et al. 2016): each unit of c and of h keeps its previous value with probability rate_c and
    rate_h; the expectation at test time.

    A cell whose carry is h alone (RNN, GRU) uses rate_h.
    """
    _rates("zoneout", rate_c, rate_h)
    if hasattr(cell, "layers"):
        return cell.map(lambda one: zoneout(one, rate_c, rate_h))

    def pointwise(params, carry, px, ph, tick=_NO_TICK):
        new, aside = cell.pointwise(params, carry, px, ph, tick)
        olds, news = jax.tree.leaves(carry), jax.tree.leaves(new)
        rates = (rate_c, rate_h)[-len(olds) :]
        keys = [None] * len(olds) if tick.key is None else jax.random.split(jax.random.fold_in(tick.key, 1), len(olds))
        kept = []
        for old, fresh, rate, key in zip(olds, news, rates, keys, strict=True):
            if rate and key is None:
                fresh = rate * old + (1 - rate) * fresh
            elif rate:
                fresh = jnp.where(jax.random.bernoulli(key, rate, fresh.shape), old, fresh)
            kept.append(fresh)
        return jax.tree.unflatten(jax.tree.structure(new), kept), aside

    return cell._replace(pointwise=pointwise)


def recurrent_dropout(cell: Cell, rate: float) -> Cell:
    """Recurrent dropout without memory loss (Semeniuta et al. 2016): drops units of the candidate update, a fresh draw
    every step, scaled by 1/(1 - rate)."""
    _rates("recurrent_dropout", rate)
    if hasattr(cell, "layers"):
        return cell.map(lambda one: recurrent_dropout(one, rate))

    def pointwise(params, carry, px, ph, tick=_NO_TICK):
        if tick.key is not None and rate:
            like = cell.output(carry)
            tick = tick._replace(update=_dropped(jax.random.fold_in(tick.key, 2), rate, like.shape, like.dtype))
        return cell.pointwise(params, carry, px, ph, tick)

    return cell._replace(pointwise=pointwise)


def variational_dropout(cell: Cell, rate_x: float = 0.0, rate_h: float = 0.0) -> Cell:
    """Variational dropout (Gal and Ghahramani 2016): one mask on x_t and one on h_{t-1} for a whole sequence, scaled
    by 1/(1 - rate).

    In a loop of your own draw the masks once with `cell.sample(key, x_t)` and pass them as `Tick(constants=...)`.
    """
    _rates("variational_dropout", rate_x, rate_h)
    if hasattr(cell, "layers"):
        return cell.map(lambda one: variational_dropout(one, rate_x, rate_h))

    def sample(key, like):
        inner, key_x, key_h = jax.random.split(key, 3)
        return {
            "inner": None if cell.sample is None else cell.sample(inner, like),
            "x": _dropped(key_x, rate_x, like.shape, like.dtype) if rate_x else None,
            "h": _dropped(key_h, rate_h, (*like.shape[:-1], cell.features), like.dtype) if rate_h else None,
        }

    def inside(tick):
        return tick if tick.constants is None else tick._replace(constants=tick.constants["inner"])

    def enters(x, constants):
        if constants is not None and constants["x"] is not None:
            x = x * constants["x"]
        return x if cell.enters is None else cell.enters(x, None if constants is None else constants["inner"])

    def reads(carry, tick):
        h = cell.reads(carry, inside(tick))
        return h if tick.constants is None or tick.constants["h"] is None else h * tick.constants["h"]

    def pointwise(params, carry, px, ph, tick=_NO_TICK):
        return cell.pointwise(params, carry, px, ph, inside(tick))

    return cell._replace(pointwise=pointwise, reads=reads, enters=enters, sample=sample)


class Stack(NamedTuple):
    """Cells one above the other; made by `stack`. Its params and carry are tuples, one entry per layer; its output is
    the last layer's, or all with skips."""

    layers: tuple
    skip: str

    @property
    def features(self) -> int:
        """Size of the output: the top layer's H, or the sum over layers with skip="graves"."""
        return sum(c.features for c in self.layers) if self.skip == "graves" else self.layers[-1].features

    def map(self, wrap):
        """The same stack of wrapped cells."""
        return self._replace(layers=tuple(wrap(c) for c in self.layers))

    def widths(self, features_in: int) -> list[int]:
        """Input size of every layer."""
        below = [features_in, *(c.features for c in self.layers[:-1])]
        return [w + features_in if self.skip == "graves" and k else w for k, w in enumerate(below)]

    def init(self, key, features_in, dtype=jnp.float32):
        """Fresh parameters, a tuple with one entry per layer."""
        widths = self.widths(features_in)
        keys = jax.random.split(key, len(self.layers))
        return tuple(cells.init(c, k, w, dtype) for c, k, w in zip(self.layers, keys, widths, strict=True))

    def carry(self, params, like):
        """A tuple of the layers' carries."""
        return tuple(c.carry(p, like) for c, p in zip(self.layers, params, strict=True))

    def step(self, params, carry, x, tick):
        """One tick of all layers."""
        keys = [None] * len(self.layers) if tick.key is None else jax.random.split(tick.key, len(self.layers))
        constants = tick.constants or (None,) * len(self.layers)
        carries, outs, below = [], [], x
        for c, p, s, key, const in zip(self.layers, params, carry, keys, constants, strict=True):
            s, y = step(c, p, s, below, tick._replace(key=key, constants=const))
            carries.append(s)
            outs.append(y)
            below = self._next(x, below, y)
        return tuple(carries), self._out(outs, below)

    def unroll(self, params, x, *, carry=None, key=None, reverse=False, keep_order=True, lengths=None, **options):
        """All layers over time, one after the other."""
        keys = [None] * len(self.layers) if key is None else jax.random.split(key, len(self.layers))
        lasts, outs, below = [], [], x
        for k, (c, p) in enumerate(zip(self.layers, params, strict=True)):
            start = None if carry is None else carry[k]
            s, y = unroll(c, p, below, carry=start, key=keys[k], reverse=reverse, lengths=lengths, **options)
            lasts.append(s)
            outs.append(y)
            below = self._next(x, below, y)
        y = self._out(outs, below)
        if reverse and not keep_order:
            time_major = options.get("time_major", False)
            y = y if time_major else jnp.moveaxis(y, -2, 0)
            y = flip(y, lengths)
            y = y if time_major else jnp.moveaxis(y, 0, -2)
        return tuple(lasts), y

    def _next(self, x, below, y):
        if self.skip == "graves":
            return jnp.concatenate([x.astype(y.dtype), y], -1)
        return below.astype(y.dtype) + y if self.skip == "residual" and below.shape == y.shape else y

    def _out(self, outs, below):
        return jnp.concatenate(outs, -1) if self.skip == "graves" else below


def stack(*layers: Cell, skip: str = "none") -> Stack:
    """Several cells as one. skip: "none"; "graves" (Graves 2013: every layer also sees x, the output holds every
    layer's h, (..., sum of H)); "residual" (a layer's output has its input added where the sizes agree).
    """
    if not layers:
        raise ValueError("stack: give at least one cell")
    if skip not in ("none", "graves", "residual"):
        raise ValueError(f"stack: skip={skip!r}; choose 'none', 'graves' or 'residual'")
    return Stack(tuple(layers), skip)


class Bidirectional(NamedTuple):
    """A cell from left to right and one from right to left; made by `bidirectional`. Params and carry are pairs."""

    layers: tuple
    merge: str

    @property
    def features(self) -> int:
        """Size of the output."""
        return sum(c.features for c in self.layers) if self.merge == "concat" else self.layers[0].features

    map = Stack.map

    def init(self, key, features_in, dtype=jnp.float32):
        """Fresh parameters, a pair."""
        return tuple(
            cells.init(c, k, features_in, dtype) for c, k in zip(self.layers, jax.random.split(key), strict=True)
        )

    carry = Stack.carry

    def step(self, params, carry, x, tick):
        """Refused: a bidirectional cell reads the future."""
        raise ValueError("a bidirectional cell cannot be stepped: half of it starts at the sequence's end; use unroll")

    def unroll(self, params, x, *, carry=None, key=None, reverse=False, keep_order=True, **options):
        """Both directions over time; outputs stand in x's order."""
        if reverse or not keep_order:
            raise ValueError("bidirectional: reverse and keep_order=False are for one direction")
        keys = (None, None) if key is None else jax.random.split(key)
        done = [
            unroll(c, p, x, carry=None if carry is None else carry[k], key=keys[k], reverse=bool(k), **options)
            for k, (c, p) in enumerate(zip(self.layers, params, strict=True))
        ]
        (left, y), (right, z) = done
        return (left, right), jnp.concatenate([y, z], -1) if self.merge == "concat" else y + z


def bidirectional(forward: Cell, backward: Cell, merge: str = "concat") -> Bidirectional:
    """A pair that reads x in both directions; outputs (..., T, 2H) are concatenated, or summed (..., T, H) with
    merge="sum"; padding is skipped by both."""
    if merge not in ("concat", "sum"):
        raise ValueError(f"bidirectional: merge={merge!r}; choose 'concat' or 'sum'")
    return Bidirectional((forward, backward), merge)


def _dropped(key, rate, shape, dtype):
    return jax.random.bernoulli(key, 1 - rate, shape).astype(dtype) / jnp.asarray(1 - rate, dtype)


def _rates(name, *rates):
    for rate in rates:
        if not 0 <= rate < 1:
            raise ValueError(f"{name}: rate {rate} must lie in [0, 1)")
