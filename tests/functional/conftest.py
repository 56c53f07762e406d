"""Fixtures of the tests of the core, and the forms in which they run.

A scan has a form for each platform (`scan_options.FORMS`), and each is a promise of its
own. On a CPU the nightly job runs the tests of CORE in all of them. In "kernel", every
scan is a kernel where it can, whose threads are fibers.
"""

import jax
import pytest

from lnrepro.functional.fast import tuning
from lnrepro.functional.fast.platform import tracing_for
from tests.functional import made_up_gpu

FORMS = ("cpu", "gpu", "tpu", "kernel")
# The files whose tests run in every form. Others name the forms that they test.
CORE = (
    "test_capabilities",
    "test_cells",
    "test_resets",
    "test_transforms",
    "test_unroll",
    "test_user_cells",
    "test_wrappers",
)
# What the forms of GPUs and TPUs cannot do: {test, or one case: why}. Such a test may
# fail there.
ROUNDED = "products of x are computed for many steps at once, and round otherwise"
CANNOT = {
    "test_steps_have_the_bits_of_the_scan": ROUNDED,
}
# The row of test_capability that `scripts/test --all` runs in every form, and the
# column of it that runs with a kernel then.
ROW, COLUMN = "LSTM, layer", "any_batch_axes"

_last_form = ["cpu"]


@pytest.fixture
def x64():
    """Run a test in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def form(request):
    """The form that a test of CORE is traced for; None for other tests."""
    name = getattr(request, "param", None)
    if name is None:
        yield None
        return
    # A compiled function does not know for which form it was traced.
    if name != _last_form[0]:
        jax.clear_caches()
        _last_form[0] = name
    if name == "kernel":
        made_up_gpu.run_kernels(request.getfixturevalue("monkeypatch"))
    answer = tuning.kernel_where_it_can if name == "kernel" else tuning.look_up
    with tracing_for("gpu" if name == "kernel" else name), tuning.answering(answer):
        yield name


def pytest_generate_tests(metafunc):
    """Run the tests of CORE in every form."""
    if metafunc.module.__name__.rpartition(".")[2] in CORE:
        metafunc.parametrize("form", FORMS, indirect=True)


def pytest_collection_modifyitems(items):
    """Put the tests of a form together, and mark those of other forms than CPUs'."""
    items.sort(key=lambda item: FORMS.index(_form_of(item)))
    for item in items:
        name = _form_of(item)
        if name == "cpu":
            continue
        # One row of the capabilities runs with `--all` too.
        params = item.callspec.params
        is_quick = params.get("row") == ROW
        if name == "kernel":
            is_quick = is_quick and params["column"].__name__ == COLUMN
        item.add_marker("slow" if is_quick else "nightly")
        reason = CANNOT.get(item.originalname) or CANNOT.get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


def _form_of(item):
    """The form of a test, that of CPUs for tests outside of CORE."""
    callspec = getattr(item, "callspec", None)
    name = callspec.params.get("form") if callspec else None
    return name if name in FORMS else "cpu"
