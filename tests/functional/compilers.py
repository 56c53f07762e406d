"""The compilers of accelerators, which scripts/accelerators.sh installs."""

import json
import subprocess
import sys
from typing import Any

import pytest

from scripts.benches.accelerators import environment


def answer(module: str, *arguments: str) -> Any:
    """Run a module of this folder in a process that has the compilers.

    Returns:
      What it prints last, as JSON.
    """
    if not environment.folder().is_dir():
        pytest.skip("the compilers are not installed: run scripts/accelerators.sh")
    command = [sys.executable, "-m", f"tests.functional.{module}", *arguments]
    done = subprocess.run(
        command, env=environment.variables(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
