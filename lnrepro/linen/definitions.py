"""From the fields of a module to a cell of `lnrepro.functional`."""

import flax.linen as nn

from lnrepro import functional
from lnrepro.functional.flax_modules import wrapped
from lnrepro.linen.parameters import Initializer, Unboxed


def lstm_cell(module: nn.Module) -> functional.Cell:
    """Return the functional cell of an LSTMCell or LSTM module."""
    scale_init = None if module.scale_init is None else Unboxed(module.scale_init)
    cell = functional.LSTMCell(
        features=module.features,
        norm=module.norm,
        norm_site=module.norm_site,
        norm_groups=module.norm_groups,
        blocks=module.blocks,
        cell_norm=module.cell_norm,
        forget_bias=module.forget_bias,
        peephole=module.peephole,
        inner_bias=module.inner_bias,
        gradient_clip=module.gradient_clip,
        use_bias=module.use_bias,
        learned_carry=module.learned_carry,
        recurrent_dropout=module.recurrent_dropout,
        epsilon=module.epsilon,
        gate_fn=module.gate_fn,
        activation_fn=module.activation_fn,
        kernel_init=Unboxed(module.kernel_init),
        recurrent_kernel_init=Unboxed(module.recurrent_kernel_init),
        bias_init=Unboxed(module.bias_init),
        scale_init=scale_init,
    )
    return wrapped(type(module).__name__, cell, module.wrap)


def gru_cell(module: nn.Module) -> functional.Cell:
    """Return the functional cell of a GRUCell or GRU module."""
    scale_init = None if module.scale_init is None else Unboxed(module.scale_init)
    cell = functional.GRUCell(
        features=module.features,
        norm=module.norm,
        norm_groups=module.norm_groups,
        blocks=module.blocks,
        reset=module.reset,
        recurrent_bias=module.recurrent_bias,
        use_bias=module.use_bias,
        learned_carry=module.learned_carry,
        recurrent_dropout=module.recurrent_dropout,
        epsilon=module.epsilon,
        gate_fn=module.gate_fn,
        activation_fn=module.activation_fn,
        kernel_init=Unboxed(module.kernel_init),
        recurrent_kernel_init=Unboxed(module.recurrent_kernel_init),
        bias_init=Unboxed(module.bias_init),
        scale_init=scale_init,
    )
    return wrapped(type(module).__name__, cell, module.wrap)


def simple_cell(module: nn.Module) -> functional.Cell:
    """Return the functional cell of a SimpleCell or SimpleRNN module."""
    scale_init = None if module.scale_init is None else Unboxed(module.scale_init)
    cell = functional.SimpleCell(
        features=module.features,
        norm=module.norm,
        use_bias=module.use_bias,
        learned_carry=module.learned_carry,
        recurrent_dropout=module.recurrent_dropout,
        epsilon=module.epsilon,
        activation_fn=module.activation_fn,
        kernel_init=Unboxed(module.kernel_init),
        recurrent_kernel_init=Unboxed(module.recurrent_kernel_init),
        bias_init=Unboxed(module.bias_init),
        scale_init=scale_init,
    )
    return wrapped(type(module).__name__, cell, module.wrap)


def initializers(module: nn.Module) -> dict[str, Initializer | None]:
    """Return a module's initialisers by the names that `declare_parameters` takes."""
    return {
        "w_x": module.kernel_init,
        "w_h": module.recurrent_kernel_init,
        "bias": module.bias_init,
        "gain": module.scale_init,
    }
