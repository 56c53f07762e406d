"""Settings of every test."""

import time

import pytest


@pytest.mark.parametrize("content", [str(time.time()).encode()])
def test_the_name_of_a_test_does_not_depend_on_when_it_is_collected(request, content):
    assert content
    assert request.node.name.endswith("[content]")
