"""Loaded weights give the outputs of TorchRL, where it is installed."""

import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import convert
from lnrepro.functional import DreamerBlockGRUCell, GRUCell, LSTMCell, unroll

B, T, D, H = 3, 5, 4, 6


def randomise(torch, module):
    """Draw all parameters anew, so that no norm has a gain of 1."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)


def imported(name):
    """The torch module and a library on top of it."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch, pytest.importorskip(name, exc_type=ImportError)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_torchrl_modules_with_episodes(kind):
    """Also the meaning of `is_init`: it is `resets`."""
    torch, modules = imported("torchrl.modules")
    tensordict = pytest.importorskip("tensordict")
    make, cell, *carry_keys = {
        "lstm": (modules.LSTMModule, LSTMCell(H, "none"), "state_h", "state_c"),
        "gru": (modules.GRUModule, GRUCell(H, "none", recurrent_bias=True), "state"),
    }[kind]
    module = make(input_size=D, hidden_size=H, in_key="x", out_key="y")
    randomise(torch, module)
    x = torch.randn(B, T, D)
    is_init = torch.zeros(B, T, 1, dtype=torch.bool)
    is_init[:, 0] = True
    is_init[0, 2] = is_init[2, 4] = True
    data = {"x": x, "is_init": is_init}
    data |= {f"recurrent_{key}": torch.zeros(B, T, 1, H) for key in carry_keys}
    data = tensordict.TensorDict(data, batch_size=(B, T))
    with torch.no_grad(), modules.set_recurrent_mode(True):
        outputs = module(data)["y"]

    params = convert.load("torch", cell, module.state_dict(), prefix=f"{kind}.")
    resets = is_init[..., 0].numpy()
    ours = unroll(cell, params, jnp.asarray(x.numpy()), resets=resets).outputs
    np.testing.assert_allclose(ours, outputs, atol=1e-5)


def test_torchrl_block_gru():
    torch, dreamer = imported("torchrl.modules.models.dreamer_v3")
    if not hasattr(dreamer, "_DreamerV3BlockGRU"):
        pytest.skip("this TorchRL has no block GRU")
    blocks, state, action, hidden = 2, 3, 2, 5
    module = dreamer._DreamerV3BlockGRU(
        state_dim=state,
        action_dim=action,
        hidden_dim=hidden,
        belief_dim=H,
        num_blocks=blocks,
        num_layers=1,
        norm_eps=1e-4,
    )
    randomise(torch, module)
    x = torch.rand(B, T, state + action)
    h, outputs = torch.zeros(B, H), []
    with torch.no_grad():
        for t in range(T):
            h = module(x[:, t, :state], h, x[:, t, state:])
            outputs.append(h)

    theirs = {name: a.numpy() for name, a in module.state_dict().items()}
    weights = {}
    for i, name in enumerate(("belief", "state", "action")):
        weights[f"dynin{i}/kernel"] = theirs[f"{name}_projection.0.weight"].T
        weights[f"dynin{i}/bias"] = theirs[f"{name}_projection.0.bias"]
        weights[f"dynin{i}norm/scale"] = theirs[f"{name}_projection.1.weight"]
    for ours, name in (("dynhid0", "hidden_layers.0"), ("dyngru", "gates")):
        weights[f"{ours}/kernel"] = theirs[f"{name}.weight"]
        weights[f"{ours}/bias"] = theirs[f"{name}.bias"]
    weights["dynhid0norm/scale"] = theirs["hidden_layers.1.weight"]
    cell = DreamerBlockGRUCell(
        H, hidden_features=hidden, input_sizes=(state, action), blocks=blocks
    )
    params = convert.load("dreamer", cell, weights)
    ours = unroll(cell, params, jnp.asarray(x.numpy())).outputs
    np.testing.assert_allclose(ours, torch.stack(outputs, 1), atol=1e-5)
