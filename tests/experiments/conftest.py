"""Fixtures of the experiments' tests."""

import jax
import pytest


@pytest.fixture
def x64():
    """Compute in float64."""
    with jax.enable_x64(True):
        yield
