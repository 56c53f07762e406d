"""Two recurrent cells written by a user of `lnrepro.functional`.

A cell is a frozen dataclass with five short methods. Its step multiplies by a weight
only through `dot(name, v)`. That is all the library needs for its memory-lean backward
pass, masks, resets, reverse, streaming, zoneout and stacks:

    cell = ProjectedLSTMCell(features=128, hidden=512)
    params = cell.init(jax.random.key(0), features_in=64)
    result = functional.unroll(cell, params, x, seq_lengths=lengths)  # x [B, T, 64]

Shape letters: B batch, D input features, H hidden units, P projected units, S memory
slots, E features of a slot.
"""

import dataclasses

import jax
import jax.numpy as jnp

from lnrepro import functional

glorot = jax.nn.initializers.glorot_uniform()
orthogonal = jax.nn.initializers.orthogonal()


def prepared(params):
    """Separate the weights, which `dot` multiplies by, from the rest."""
    weights = {name: w for name, w in params.items() if name.startswith("w_")}
    rest = {name: params[name] for name in params.keys() - weights.keys()}
    return functional.Prepared(weights, rest)


@dataclasses.dataclass(frozen=True)
class ProjectedLSTMCell(functional.Cell):
    """LSTM with layer norm whose state is projected to fewer units; carry (c, h).

        (f, i, o, g) = LN(W_h h_{t-1}) + LN(W_x x_t) + b
        c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
        m_t = sigmoid(o) * tanh(LN(c_t))
        h_t = W_p m_t

    The projection follows Sak, Senior and Beaufays (2014), the norms follow eq. 20-22
    of Ba, Kiros and Hinton (2016).

    Attributes:
      features: P, the size of h.
      hidden: H, the size of c.
    """

    features: int
    hidden: int

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters."""
        P, H = self.features, self.hidden
        key_x, key_h, key_p = jax.random.split(key, 3)
        return {
            "w_x": glorot(key_x, (features_in, 4 * H), dtype),
            "w_h": orthogonal(key_h, (P, 4 * H), dtype),
            "w_p": orthogonal(key_p, (H, P), dtype),
            "bias": jnp.zeros(4 * H, dtype),
            "gain_x": jnp.ones(4 * H, dtype),
            "gain_h": jnp.ones(4 * H, dtype),
            "gain_c": jnp.ones(H, dtype),
        }

    def initial_carry(self, params, x):
        """Return zeros: c [..., H] and h [..., P]."""
        batch = x.shape[:-1]
        c = jnp.zeros((*batch, self.hidden), x.dtype)
        return c, jnp.zeros((*batch, self.features), x.dtype)

    def prepare(self, params):
        """Separate the weights, which `dot` multiplies by, from the rest."""
        return prepared(params)

    def step(self, dot, params, carry, x, context):
        """Take one step."""
        c, h = carry
        gates = functional.layer_norm(dot("w_h", h), params["gain_h"])
        gates += functional.layer_norm(dot("w_x", x), params["gain_x"])
        gates += params["bias"]
        f, i, o, g = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        shown = jnp.tanh(functional.layer_norm(c, params["gain_c"]))
        h = dot("w_p", jax.nn.sigmoid(o) * shown)
        return (c, h), None

    def output(self, carry):
        """Return h."""
        return carry[1]


@dataclasses.dataclass(frozen=True)
class AttentionCell(functional.Cell):
    """Simple recurrent cell that attends to a memory in every step; carry h.

        s_t = tanh(LN(W_h h_{t-1} + W_x x_t) + b)
        q_t = W_q s_t
        r_t = softmax(q_t M^T) M
        h_t = tanh(s_t + W_r r_t)

    M [..., S, E] is the memory of the sequence: `unroll(..., memory=M)`. Gradients flow
    to it. The query is a product of this step's own state, as in Luong, Pham and
    Manning (2015).

    Attributes:
      features: H, the size of h.
      memory_features: E, the size of a slot of the memory.
    """

    features: int
    memory_features: int

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters."""
        H, E = self.features, self.memory_features
        key_x, key_h, key_q, key_r = jax.random.split(key, 4)
        return {
            "w_x": glorot(key_x, (features_in, H), dtype),
            "w_h": orthogonal(key_h, (H, H), dtype),
            "w_q": glorot(key_q, (H, E), dtype),
            "w_r": glorot(key_r, (E, H), dtype),
            "gain": jnp.ones(H, dtype),
            "bias": jnp.zeros(H, dtype),
        }

    def initial_carry(self, params, x):
        """Return zeros, h [..., H]."""
        return jnp.zeros((*x.shape[:-1], self.features), x.dtype)

    def prepare(self, params):
        """Separate the weights, which `dot` multiplies by, from the rest."""
        return prepared(params)

    def step(self, dot, params, carry, x, context):
        """Take one step; the products of W_q and W_r depend on the one of W_h."""
        memory = context.memory
        a = functional.layer_norm(dot("w_h", carry) + dot("w_x", x), params["gain"])
        s = jnp.tanh(a + params["bias"])
        scores = jnp.einsum("...se,...e->...s", memory, dot("w_q", s))
        read = jnp.einsum("...s,...se->...e", jax.nn.softmax(scores), memory)
        return jnp.tanh(s + dot("w_r", read)), None

    def output(self, carry):
        """Return h."""
        return carry
