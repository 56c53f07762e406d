"""Recurrent cells in torch that the benchmark `cells` compares.

On a GPU, torch's LSTM and GRU are cuDNN's.
"""

from collections.abc import Callable, Sequence

import jax
import torch

from scripts.benches.direct.cells_jax import Implementation, Shape


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


def _wait(result: object) -> None:
    del result
    if torch.get_default_device().type == "cuda":
        torch.cuda.synchronize()


def implement(
    apply: Callable, parameters: Sequence[torch.Tensor], shape: Shape
) -> Implementation:
    """Make the gradient with respect to parameters and inputs.

    Args:
      apply: x [T, B, D] -> y [T, B, H].
      parameters: the parameters that `apply` uses.
      shape: the sizes.
    """
    dtype = getattr(torch, shape.dtype)
    x = torch.randn(shape.steps, shape.batch, shape.features, dtype=dtype)
    x.requires_grad_()
    w = torch.randn(shape.steps, shape.batch, shape.units, dtype=dtype)

    def call():
        return torch.autograd.grad((apply(x) * w).sum(), [x, *parameters])

    return Implementation(call, _wait)


def plain(name: str, shape: Shape) -> Implementation:
    """torch.nn.LSTM or torch.nn.GRU; `name` is "lstm" or "gru"."""
    module_class = torch.nn.LSTM if name == "lstm" else torch.nn.GRU
    module = module_class(
        shape.features, shape.units, dtype=getattr(torch, shape.dtype)
    )

    def apply(x):
        return module(x)[0]

    return implement(apply, list(module.parameters()), shape)


def products(name: str, shape: Shape) -> Implementation:
    """The matrix products of a sequence, forward and backward.

    They are for comparison, and not a strict lower bound. The projection of the inputs,
    the gradients of the kernels and those of the inputs are one product each.
    """
    steps, batch, features, units = shape[:4]
    dtype = getattr(torch, shape.dtype)
    gates = (4 if name == "lstm" else 3) * units
    # Random arrays of the right shapes stand for inputs, states and gradients of the
    # gates.
    x = torch.randn(steps, batch, features, dtype=dtype)
    h = torch.randn(steps, batch, units, dtype=dtype)
    d = torch.randn(steps, batch, gates, dtype=dtype)
    w_x = torch.randn(features, gates, dtype=dtype)
    w_h = torch.randn(units, gates, dtype=dtype)
    x_rows, h_rows, d_rows = x.flatten(0, 1), h.flatten(0, 1), d.flatten(0, 1)

    @torch.no_grad()
    def call():
        x_rows @ w_x
        # The recurrent product depends on the step before, so there is one per step, in
        # either direction.
        for t in range(steps):
            h[t] @ w_h
        for t in range(steps):
            d[t] @ w_h.T
        # The gradients of both kernels and of the inputs, over all steps at once.
        x_rows.T @ d_rows
        h_rows.T @ d_rows
        return d_rows @ w_x.T

    return Implementation(call, _wait)


def layer_norm_lstm(shape: Shape, compiler: str) -> Implementation:
    """Eq. 20-22 as a compiled loop, the usual layer-normalised LSTM in torch.

    Args:
      shape: the sizes.
      compiler: "script" for TorchScript, which compiles the loop; "compile" for
        torch.compile of a step, which needs a GPU or a C++ compiler.
    """
    features, units, dtype = shape.features, shape.units, getattr(torch, shape.dtype)
    w_x = torch.randn(features, 4 * units, dtype=dtype) / features**0.5
    w_h = torch.randn(units, 4 * units, dtype=dtype) / units**0.5
    parameters = [w_x, w_h]
    # bias, gain_x and gain_h, then gain_c and bias_c.
    parameters += [torch.ones(4 * units, dtype=dtype) for _ in range(3)]
    parameters += [torch.ones(units, dtype=dtype) for _ in range(2)]
    for parameter in parameters:
        parameter.requires_grad_()
    if compiler == "script":
        # Python does not run in every step.
        script = torch.jit.script(_layer_norm_lstm)

        def apply(x):
            return script(x, *parameters)

        return implement(apply, parameters, shape)
    step = torch.compile(_step)

    def apply_steps(x):
        h = torch.zeros(x.size(1), units, dtype=dtype)
        c = torch.zeros_like(h)
        outputs = []
        for x_t in x:
            c, h = step(x_t, c, h, *parameters)
            outputs.append(h)
        return torch.stack(outputs)

    return implement(apply_steps, parameters, shape)


def _step(
    x_t: torch.Tensor,
    c: torch.Tensor,
    h: torch.Tensor,
    w_x: torch.Tensor,
    w_h: torch.Tensor,
    bias: torch.Tensor,
    gain_x: torch.Tensor,
    gain_h: torch.Tensor,
    gain_c: torch.Tensor,
    bias_c: torch.Tensor,
):
    gates = torch.layer_norm(x_t @ w_x, [w_x.size(1)], gain_x, bias)
    gates = gates + torch.layer_norm(h @ w_h, [w_h.size(1)], gain_h, None)
    f, i, o, g = gates.chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    normed_c = torch.layer_norm(c, [c.size(1)], gain_c, bias_c)
    return c, torch.sigmoid(o) * torch.tanh(normed_c)


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
        c, h = _step(x[t], c, h, w_x, w_h, bias, gain_x, gain_h, gain_c, bias_c)
        outputs.append(h)
    return torch.stack(outputs)
