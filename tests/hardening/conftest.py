"""Fixtures of the tests of whole runs."""

from tests.engine.conftest import killed as killed
from tests.engine.conftest import killed_run as killed_run
from tests.engine.conftest import toy_data as toy_data
from tests.engine.conftest import toy_run as toy_run
