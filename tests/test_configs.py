"""The variants that kept results were trained with stay as they are."""

import json

import pytest

from lnrepro.config import flat
from lnrepro.engine import config_file
from tests.runs import ROOT

# The fields of each variant, and their values in JSON. A field that is added later
# needs no line here; a change on purpose does.
RESOLVED = json.loads((ROOT / "tests/resolved_configs.json").read_text())


@pytest.mark.parametrize("variant", RESOLVED)
def test_a_variant_keeps_its_fields(variant):
    name, _, kind = variant.partition(":")
    config = config_file.read(f"{ROOT}/configs/{name}.py:{kind}")
    found = json.loads(json.dumps(flat(config)))
    wanted = RESOLVED[variant]
    assert {field: found.get(field) for field in wanted} == wanted


def test_every_variant_of_the_paper_is_here():
    names = {path.stem for path in (ROOT / "configs").glob("*.py")}
    for kind in ("small", "smoke", "paper"):
        here = {name for name in names if f"{name}:{kind}" in RESOLVED}
        # The paper has no sequential MNIST.
        assert here >= names - {"sequential_mnist"}
