"""Cells as ONNX models by jax2onnx, run by ONNX Runtime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import GRUCell, LSTMCell, ScanOptions, step, unroll

jax2onnx = pytest.importorskip("jax2onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("cell", [LSTMCell(8), GRUCell(8)], ids=["lstm", "gru"])
def test_a_step_and_a_sequence_as_onnx(cell):
    params = cell.init(jax.random.key(0), 4)
    x = jax.random.normal(jax.random.key(1), (2, 5, 4))
    carry = jax.tree.map(lambda a: a + 0.5, cell.initial_carry(params, x[:, 0]))
    leaves, structure = jax.tree.flatten(carry)

    def one_step(x, *leaves):
        return step(cell, params, jax.tree.unflatten(structure, leaves), x)[1]

    def sequence(x):
        options = ScanOptions(platform="cpu")
        lengths = jnp.array([5, 2])
        return unroll(cell, params, x, seq_lengths=lengths, options=options).outputs

    for function, arguments in ((one_step, (x[:, 0], *leaves)), (sequence, (x,))):
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments]
        model = jax2onnx.to_onnx(function, shapes)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        names = [given.name for given in session.get_inputs()]
        values = map(np.asarray, arguments)
        (found,) = session.run(None, dict(zip(names, values, strict=True)))
        np.testing.assert_allclose(found, function(*arguments), atol=1e-6)
