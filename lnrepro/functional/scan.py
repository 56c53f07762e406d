"""A scan over time with a memory-lean backward pass and named products.

A step of a recurrent network is a few matrix products and much cheap element-wise
work. Plain automatic differentiation keeps every element-wise intermediate of every
step: about thirty arrays a step for a layer-normalised LSTM. This scan keeps two kinds
of arrays only, the carries and the products. For that, a step multiplies by a weight
only through `dot(name, v)`, so that the scan sees each product by its name:

    def step(dot, params, carry, x_proj, context):      # an LN-LSTM, eq. 20-22
        c, h = carry
        gates = layer_norm(x_proj, ...) + layer_norm(dot("w_h", h), ...) + ...
        ...
        return (c, h), None

How the backward pass works, for T steps and one product p_t = v_t W per step:

    forward    carry_0 --> step --> carry_1 --> step --> carry_2 --> ...
                            |                    |
                           p_0                  p_1           all of these are kept
    backward   for t = T-1 ... 0: replay step t with p_t read from memory, so that no
               product is computed again; take its derivative; write the gradient of
               p_t over p_t itself, since p_t is not needed any more; send the gradient
               of v_t = (gradient of p_t) W^T on to the replayed step; keep v_t, unless
               it is a part of the carry, such as h, which is kept already.
    after      the gradient of W as one large matrix product of v_t and the gradient of
               p_t over all T steps.

The products that do not depend on the carry are in `project(dot, x)`. They run inside
the step, or over the whole sequence before the loop, whichever is faster on the
backend. Their gradients come from plain differentiation over the whole sequence.

Limits:
- No forward mode through the lean backward pass (jvp, jacfwd, linearize); use
  `ScanOptions(backward="autodiff")`. Derivatives of a gradient work in both modes.
- Reverse mode over a lean gradient takes time that grows with T squared.
- The replay computes the element-wise work of each step a second time.
- No gradient flows to `context`.
- XLA's CPU backend writes the gradients over the products only while the products of
  the next step are read after this step has written (see
  `lnrepro.functional.lean_backward`).

The loop runs in two ways, chosen by the platform that a program is lowered for. On a
CPU it computes everything, step by step, so that few arrays live. Elsewhere it computes
only what is sequential, and the rest for many steps at once (see `fast.fission`). On a
TPU it may be one kernel instead, which computes everything too (see `fast.pallas`).

Sources: gradient checkpointing (Griewank and Walther 2000; Chen et al. 2016); storing
hidden states and replaying steps in recurrent networks (Gruslys et al. 2016,
"Memory-efficient backpropagation through time"); the structure of this file follows
the checkpointed loop of equinox in listing its sources and limits first.

Shape letters: T time, B any batch axes, D inputs and N outputs of a product, G blocks.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from lnrepro.functional.fast import fission, platform
from lnrepro.functional.lean_backward import Plan, ScanResult, lean_scan, plain_scan
from lnrepro.functional.named_products import Dot, Weights, named_dot


class Form(NamedTuple):
    """How a scan runs on a platform, where `ScanOptions` does not say so.

    Attributes:
      hoist, unroll: as in `ScanOptions`.
      loop, all_in_loop, in_place: as in `Plan`.
      least_steps: the fewest steps of a chunk.
    """

    hoist: bool
    unroll: int
    loop: Callable
    all_in_loop: bool
    in_place: bool
    least_steps: int


FORMS = platform.PerPlatform(
    # Measured on two cores of an AMD EPYC, 2026-11-24: one product per step leaves its
    # result in the cache.
    cpu=Form(
        hoist=False,
        unroll=1,
        loop=jax.lax.scan,
        all_in_loop=True,
        in_place=True,
        least_steps=4,
    ),
    # Of the programs that the compiler makes for a v5e: docs/log.md, 2026-11-26. One
    # slice per step would cost a TPU copies, and saves a GPU kernels.
    tpu=Form(
        hoist=True,
        unroll=1,
        loop=fission.scan,
        all_in_loop=False,
        in_place=False,
        least_steps=32,
    ),
    # Measured on an H100: docs/performance.md.
    default=Form(
        hoist=True,
        unroll=1,
        loop=functools.partial(fission.scan, one_slice=True),
        all_in_loop=False,
        in_place=False,
        least_steps=16,
    ),
)


@dataclasses.dataclass(frozen=True)
class ScanOptions:
    """How a scan runs and what its backward pass keeps. None of it changes a result.

    Attributes:
      backward: "lean", or "autodiff" for JAX's own derivative, which forward mode
        needs.
      save: what the lean backward pass keeps beside the carries. "products": all
        products. "recurrent": the products of the step, and not those of `project`.
        "carries": no product. What is not kept is computed again, chunk by chunk.
      chunk: number of steps in a chunk; the last one may have fewer. None chooses
        enough steps for a large matrix product.
      hoist: True computes `project` over a whole chunk before its steps, False inside
        each step. None takes what is faster on the platform, see `FORMS`.
      unroll: steps per iteration of the loop, as in `jax.lax.scan`. None takes 1.
      pallas: True runs the steps as one kernel on a TPU, see `fast.pallas`, and raises
        where there can be no kernel. None runs it on a TPU where it can, and the scan
        elsewhere. False runs the scan.

    Raises:
      ValueError: an unknown value.
    """

    backward: str = "lean"
    save: str = "products"
    chunk: int | None = None
    hoist: bool | None = None
    unroll: int | None = None
    pallas: bool | None = False

    def __post_init__(self):
        """Check the values."""
        known = {
            "backward": ("lean", "autodiff"),
            "save": ("products", "recurrent", "carries"),
        }
        for name, allowed in known.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(
                    f"ScanOptions: {name}={value!r}; choose one of {', '.join(allowed)}"
                )
        if self.pallas and self.backward == "autodiff":
            raise ValueError(
                "ScanOptions: pallas=True cannot be used with backward='autodiff'"
            )
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"ScanOptions: chunk={self.chunk} must be at least 1")


def identity(carry: Any) -> Any:
    """Return the carry itself, as the output of a scan that returns all carries."""
    return carry


def no_projection(dot: Dot, x: Any) -> Any:
    """Return x itself, as the projection of a step that reads its input as it is."""
    del dot
    return x


def scan(
    step: Callable,
    weights: Weights,
    params: Any,
    carry: Any,
    x: Any,
    *,
    project: Callable[[Dot, Any], Any] = no_projection,
    output: Callable[[Any], Any] = identity,
    context: Any = None,
    reverse: bool = False,
    options: ScanOptions | None = None,
) -> ScanResult:
    """Run a step over time; the backward pass keeps the carries and products only.

    Args:
      step: (dot, params, carry, x_proj, context) -> (carry, aux). It uses the weights
        only as dot(name, v [..., D]) -> [..., N], each name at most once.
      weights: {name: [D, N], or block-diagonal [G, D / G, N / G] or, with its units in
        the order gate, block, unit, [G, D / G, gates, units]}.
      params: pytree of floating-point arrays that every step reads.
      carry: pytree of arrays, the carry before the first step. The lean backward pass
        asks for floating-point ones.
      x: pytree of floating-point arrays [T, ...], the inputs.
      project: (dot, x) -> x_proj, the products that do not depend on the carry. It
        accepts x with and without the time axis.
      output: (carry) -> what is returned of the carry after each step.
      context: pytree of arrays [T, ...] that get no gradient.
      reverse: run from the last step to the first.
      options: how to run; None takes `ScanOptions()`.

    Returns:
      ScanResult: the last carry, the outputs and aux of all steps [T, ...]. Both stand
      in the order of x, whichever way the scan ran.

    Raises:
      ValueError: `dot` got an unknown name or one name twice; a chunk where T is
        symbolic.
      TypeError: forward-mode differentiation of the lean backward pass, or the
        derivative of a carry that is not floating point.

    >>> import jax.numpy as jnp
    >>> def step(dot, params, h, x_proj, context):
    ...     return jnp.tanh(x_proj + dot("w_h", h) + params["bias"]), None
    >>> def project(dot, x):
    ...     return dot("w_x", x)
    >>> weights = {"w_x": jnp.ones((3, 2)), "w_h": jnp.eye(2)}
    >>> params = {"bias": jnp.zeros((1, 2))}
    >>> h, x = jnp.zeros((4, 2)), jnp.ones((5, 4, 3))
    >>> scan(step, weights, params, h, x, project=project).outputs.shape
    (5, 4, 2)
    """
    options = ScanOptions() if options is None else options
    # x may be empty where the context gives the number of steps.
    steps = jax.tree.leaves((x, context))[0].shape[0]
    plans = platform.PerPlatform(
        *(
            _plan(step, project, output, reverse, x, steps, options, form)
            for form in _forms(options.pallas)
        )
    )
    # With no steps there is nothing to keep or to replay.
    if options.backward == "autodiff" or steps == 0:
        return plain_scan(plans, weights, params, carry, x, context)
    try:
        return lean_scan(plans, weights, params, carry, x, context)
    except TypeError as error:
        # JAX's own message speaks of custom_vjp functions, which users did not write.
        if "forward-mode" not in str(error):
            raise
        raise TypeError(
            "scan: the memory-lean backward pass has no forward-mode derivative (jvp, "
            "jacfwd, linearize); use ScanOptions(backward='autodiff')"
        ) from error


def _forms(use_pallas):
    """The forms of the platforms, with Pallas' kernel where it is asked for."""
    if use_pallas is False:
        return FORMS
    # Pallas takes 0.2 seconds to import, which only those who use it should wait for.
    from lnrepro.functional.fast import pallas

    kernel = FORMS.tpu._replace(
        loop=functools.partial(pallas.scan, required=bool(use_pallas)),
        all_in_loop=True,
    )
    if use_pallas:
        return platform.PerPlatform(*[kernel] * len(FORMS))
    return FORMS._replace(tpu=kernel)


def _plan(step, project, output, reverse, x, steps, options, form):
    """Choose values for the options that are None."""
    hoist = form.hoist if options.hoist is None else options.hoist
    # Chunks bound the memory of what is computed for many steps at once. Where the
    # forward pass keeps that anyway, and the backward pass computes nothing so, they
    # bound nothing.
    forward_chunk = backward_chunk = steps
    if options.chunk is not None:
        if not isinstance(steps, int):
            raise ValueError(
                f"scan: chunk={options.chunk} needs a known number of steps; it is the "
                f"symbolic {steps}"
            )
        forward_chunk = backward_chunk = min(options.chunk, steps)
    elif options.save != "products":
        forward_chunk = backward_chunk = _chunk(x, steps, form.least_steps)
    elif not form.all_in_loop:
        backward_chunk = _chunk(x, steps, form.least_steps)
    return Plan(
        step=step,
        project=project,
        output=output,
        reverse=reverse,
        save=options.save,
        hoist=hoist,
        forward_chunk=forward_chunk if hoist else steps,
        backward_chunk=backward_chunk,
        unroll=form.unroll if options.unroll is None else options.unroll,
        loop=form.loop,
        all_in_loop=form.all_in_loop,
        in_place=form.in_place,
    )


def _chunk(x, steps, least_steps):
    """The fewest steps that give a product enough rows to run at full speed."""
    # Measured on a CPU: larger products are not faster.
    enough_rows = 512
    shapes = [leaf.shape for leaf in jax.tree.leaves(x)]
    sizes = [size for shape in shapes for size in shape]
    if not shapes or not all(isinstance(size, int) for size in sizes):
        return steps  # jax.export has symbolic sizes.
    # A leaf is [T, batch axes..., D], so a product over `chunk` steps has chunk * rows
    # rows.
    rows = math.prod(shapes[0][1:-1])
    chunk = max(1, least_steps, -(-enough_rows // max(rows, 1)))
    if 2 * chunk > steps:
        return steps
    # A last chunk of fewer steps is a second program to compile. So a divisor of T is
    # taken if there is one of a similar size.
    divisors = (size for size in range(chunk, 2 * chunk) if steps % size == 0)
    return next(divisors, chunk)


__all__ = ["ScanOptions", "ScanResult", "named_dot", "scan"]
