"""Build the wheel and the source distribution, check them, and try the wheel alone.

    python scripts/build_package.py --out dist

The wheel is installed in a fresh virtual environment, with its required dependencies
and no extra, and runs the first Python example of README.md there.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

from lnrepro.engine.command_line import Parser
from lnrepro.errors import RunError, UserError, ended

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main(argv: list[str]) -> int:
    """Run the command line.

    Returns:
      0.

    Raises:
      UserError: the folder has packages already.
      RunError: a check failed.
    """
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("dist"), help="folder to fill"
    )
    out = parser.parse_args(argv).out.resolve()
    # Leftovers of another version must not be published with this one.
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; remove it, or give another --out")
    _run("build", sys.executable, "-m", "build", "--outdir", out, ROOT)
    packages = sorted(out.iterdir())
    _run("twine check", sys.executable, "-m", "twine", "check", "--strict", *packages)
    (wheel,) = (path for path in packages if path.suffix == ".whl")
    with tempfile.TemporaryDirectory() as folder:
        _try_alone(wheel, pathlib.Path(folder))
    print("checked, and tried alone:", *packages, sep="\n")
    return 0


def readme_example() -> str:
    """Return the first Python example of README.md.

    Raises:
      UserError: there is none.
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", readme, re.S | re.M)
    if not found:
        raise UserError("README.md has no Python example to try")
    return found[1]


def _try_alone(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    """Install a wheel in a new environment in `folder` and run README's example."""
    # The pip of this environment installs into the other one, so that it needs none.
    _run("venv", sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    _run("pip install", *pip, "install", "--quiet", "--no-compile", wheel)
    # -I keeps the checkout and PYTHONPATH out of the module search path.
    where = "import lnrepro.linen; print(lnrepro.linen.__file__)"
    imported = _run("import lnrepro.linen", python, "-I", "-c", where, cwd=folder)
    if not pathlib.Path(imported.strip()).resolve().is_relative_to(folder.resolve()):
        raise RunError(f"the wheel was not tried: lnrepro is {imported.strip()}")
    _run("README's example", python, "-I", "-c", readme_example(), cwd=folder)


def _run(what: str, *command: object, cwd: pathlib.Path = ROOT) -> str:
    """Run a command and return its standard output.

    Raises:
      RunError: it failed. Its output is in the message.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{what} failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


if __name__ == "__main__":
    ended(main, "this script")
