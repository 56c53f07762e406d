"""Recurrent layers in torch that the benchmark `cells` compares.

On a GPU, torch's LSTM and GRU are cuDNN's.
"""

from collections.abc import Callable, Sequence

import jax
import torch

from scripts.benches.layers import Measured, Shape


def use_device_of_jax() -> bool:
    """Make torch use the device and the precision of JAX; return whether it can."""
    if jax.default_backend() == "cpu":
        return True
    if jax.default_backend() != "gpu" or not torch.cuda.is_available():
        return False
    # JAX uses TF32 by default.
    torch.set_float32_matmul_precision("high")
    torch.set_default_device("cuda")
    return True


def gradient(
    apply: Callable, parameters: Sequence[torch.Tensor], shape: Shape
) -> Measured:
    """Return the gradient with respect to parameters and inputs.

    Args:
      apply: x [T, B, D] -> y [T, B, H].
      parameters: the parameters that `apply` uses.
      shape: the sizes.
    """
    x = torch.randn(shape.steps, shape.batch, shape.features, requires_grad=True)
    w = torch.randn(shape.steps, shape.batch, shape.units)

    def call():
        return torch.autograd.grad((apply(x) * w).sum(), [x, *parameters])

    def wait(result):
        if torch.get_default_device().type == "cuda":
            torch.cuda.synchronize()

    return Measured(call, wait)


def plain(name: str, shape: Shape) -> Measured:
    """Return that of torch.nn.LSTM or torch.nn.GRU; `name` is "lstm" or "gru"."""
    module_class = torch.nn.LSTM if name == "lstm" else torch.nn.GRU
    module = module_class(shape.features, shape.units)
    return gradient(lambda x: module(x)[0], list(module.parameters()), shape)


def layer_norm_lstm(shape: Shape) -> Measured:
    """Return that of eq. 20-22 in TorchScript, the usual layer-normalised LSTM."""
    features, units = shape.features, shape.units
    parameters = [torch.randn(features, 4 * units) / features**0.5]
    parameters.append(torch.randn(units, 4 * units) / units**0.5)
    # bias, gain_x and gain_h, then gain_c and bias_c.
    parameters += [torch.ones(4 * units) for _ in range(3)]
    parameters += [torch.ones(units) for _ in range(2)]
    for parameter in parameters:
        parameter.requires_grad_()
    script = torch.jit.script(_layer_norm_lstm)
    return gradient(lambda x: script(x, *parameters), parameters, shape)


def _layer_norm_lstm(
    x: torch.Tensor,
    w_x: torch.Tensor,
    w_h: torch.Tensor,
    bias: torch.Tensor,
    gain_x: torch.Tensor,
    gain_h: torch.Tensor,
    gain_c: torch.Tensor,
    bias_c: torch.Tensor,
):
    h = torch.zeros(x.size(1), w_h.size(0), device=x.device, dtype=x.dtype)
    c = torch.zeros_like(h)
    outputs: list[torch.Tensor] = []
    for t in range(x.size(0)):
        gates = torch.layer_norm(x[t] @ w_x, [w_x.size(1)], gain_x, bias)
        gates = gates + torch.layer_norm(h @ w_h, [w_h.size(1)], gain_h, None)
        f, i, o, g = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        normed_c = torch.layer_norm(c, [c.size(1)], gain_c, bias_c)
        h = torch.sigmoid(o) * torch.tanh(normed_c)
        outputs.append(h)
    return torch.stack(outputs)
