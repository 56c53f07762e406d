"""Weights of recurrent layers from and to other libraries.

    params = convert.load("torch", cell, weights)
    weights = convert.dump("torch", cell, params)

Dicts of arrays come in and dicts of NumPy arrays go out. No other library is imported.
`cell` is a cell of `lnrepro.functional`; the Flax modules have the same parameters. Its
options must be those that make it the library's cell:

| library | weights | LSTMCell | GRUCell | SimpleCell |
|---|---|---|---|---|
| torch | `module.state_dict()` | yes | recurrent_bias=True | yes |
| keras | `layer.weights` by name | yes | recurrent_bias=True, reset="before" | yes |
| flax | `params` of a linen cell | yes | recurrent_bias=True | yes |
| nnx | `nnx.state(cell, nnx.Param)` | yes | yes | yes |
| nnx_optimized | the same | of OptimizedLSTMCell | | |
| haiku | `params` | yes | reset="before" | activation_fn=jax.nn.relu |
| equinox | `vars(cell)` | yes | recurrent_bias=True | |
| theano | the authors' npz | inner_bias=True | yes | |

All have norm="none"; the authors' code also has norm="layer". A Keras GRU has
recurrent_bias=True with reset_after=True, and reset="before" without. torch, Keras and
Equinox know use_bias=False, which leaves out recurrent_bias.

"dreamer" has the weights of DreamerV2's DreamerGRUCell (kernel, bias, norm/scale and
norm/bias, in this order in `cell.get_weights()`; "dreamer_state_first" multiplies
[h; x]) and of DreamerV3's DreamerBlockGRUCell.

Several layers and directions of torch are loaded one at a time:

    forward = convert.load("torch", cell, weights, suffix="_l0")
    backward = convert.load("torch", cell, weights, suffix="_l0_reverse")

Weights of Keras are `{w.name: w for w in layer.weights}`. Both directions of a
`Bidirectional` have the same names, of which a dict keeps the last. Give their paths:

    weights = {w.path: w for w in layer.weights}
    prefix = "bidirectional/forward_lstm/lstm_cell/"      # as the paths begin
    forward = convert.load("keras", cell, weights, prefix=prefix)

This is how weights go back; paths of Keras in the same way:

    module.load_state_dict({n: torch.as_tensor(a) for n, a in weights.items()})
    layer.set_weights([weights[w.name] for w in layer.weights])
    nnx.update(cell, weights)
    equinox.tree_at(lambda cell: [getattr(cell, n) for n in weights], cell,
                    list(map(jnp.asarray, weights.values())))

A round trip gives the same bits, with two exceptions. Of two biases of which only the
sum counts, the sum comes back. Haiku adds 1 to the forget gate in every step; here the
bias contains it, and b + 1 is rounded.

A library that is not here needs a `Layout` of its own, in place of its name.
"""

from lnrepro.convert.engine import dump, load
from lnrepro.convert.layout import Layout, Row, needs
from lnrepro.convert.table import TABLE

__all__ = ["TABLE", "Layout", "Row", "dump", "load", "needs"]
