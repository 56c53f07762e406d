"""The comparison of norms in PPO, from kept curves."""

import numpy as np
import pytest

from lnrepro.errors import UserError
from scripts import page_sections
from scripts.paper import ppo
from tests.runs import ROOT

KEPT = ROOT / "docs/pictures/ppo_norms.csv"


def test_a_policy_has_learned_where_five_updates_have_the_return():
    returns = [0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    curve = np.stack([10 * np.arange(1, 8), returns], 1)
    assert ppo.learned_after(curve) == 60
    curve[:, 1] = 0.8
    assert ppo.learned_after(curve) == np.inf


def test_the_page_has_the_table_of_the_kept_curves():
    curves = ppo.read(KEPT)
    page = ROOT / "docs/should-i-normalise.md"
    assert page_sections.read(page, "scripts/paper/ppo.py") == ppo.table(curves)
    seeds = {tuple(of_seeds) for of_seeds in curves.values()}
    assert seeds == {(0, 1, 2, 3, 4)}


def test_curves_are_packed_and_read(tmp_path):
    header, values = "environment steps,return\n", "8,0.5\n16,1\n"
    for name in ("none-1e-3-0", "layer-3e-4-1", "notes"):
        (tmp_path / f"{name}.csv").write_text(header + values)
    packed = tmp_path / "packed" / "curves.csv"
    packed.parent.mkdir()
    ppo.main([str(packed), f"--pack={tmp_path}"])
    curves = ppo.read(packed)
    assert curves.keys() == {("none", 1e-3), ("layer", 3e-4)}
    assert curves["layer", 3e-4][1].tolist() == [[8, 0.5], [16, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "the columns must be norm"),
        (",".join(ppo.FIELDS) + "\nlayer,x,0,1,1\n", r"line 2: .* is no update"),
    ],
)
def test_what_is_no_such_file_is_one_line(tmp_path, text, message):
    file = tmp_path / "curves.csv"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        ppo.read(file)
    with pytest.raises(UserError, match=r"has no file NORM-RATE-SEED\.csv"):
        ppo.pack(tmp_path / "nothing", file)
