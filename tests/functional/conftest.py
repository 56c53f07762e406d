"""Fixtures of the tests of the core."""

import jax
import pytest


@pytest.fixture
def x64():
    """Run a test in float64."""
    with jax.enable_x64(True):
        yield
