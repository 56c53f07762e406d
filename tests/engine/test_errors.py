"""Every script ends a mistake with one line and an exit code, without a traceback."""

import json
import subprocess
import sys

import pytest

from lnrepro.engine import config_file, loaded_run, workdir
from lnrepro.errors import UserError
from tests.engine import toy
from tests.runs import ROOT

SCRIPT = """
import sys
from lnrepro.errors import ended

def main(argv):
    {body}

ended(main, "this test")
"""


def script(body, stdout=subprocess.PIPE):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(body=body)],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_file_that_cannot_be_written_is_named():
    process = script("open('/proc/x.svg', 'w')")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == "error: /proc/x.svg: No such file or directory\n"


def test_a_reader_that_has_enough_ends_the_script_silently():
    process = script("[print('a' * 1000) for _ in range(10000)]")
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = (\n", "line 1: '(' was never closed"),
        ("\nimport no_such_module\n", "line 2: ModuleNotFoundError: No module named"),
        ("x = 1\n", "has no get_config(variant)"),
        (
            "def get_config(variant=''):\n    raise RuntimeError('bo\\nom')\n",
            "line 2: RuntimeError: bo om",
        ),
        ("def get_config(variant=''):\n    return 3\n", "must return a ConfigDict"),
        (
            "from ml_collections import ConfigDict\n"
            "def get_config(variant=''):\n    return ConfigDict({'seed': 1})\n",
            "must return a ConfigDict with the field experiment",
        ),
    ],
)
def test_a_config_that_fails_is_named_with_its_line(tmp_path, source, says):
    file = tmp_path / "config.py"
    file.write_text(source)
    with pytest.raises(UserError) as e:
        config_file.read(str(file))
    assert str(e.value).startswith(f"{file}")
    assert says in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("content", ["[" * 100_000, "{", '{"config": 3}', "null"])
def test_a_config_json_that_is_none_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"not a run.s config\.json"):
        loaded_run.load(tmp_path)
    with pytest.raises(UserError, match=r"not a run.s config\.json"):
        workdir.same_config(tmp_path, toy.get_config())


def test_a_config_json_with_other_fields_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"config": {}}))
    with pytest.raises(UserError, match=r"not a run's config.json \(KeyError\)"):
        loaded_run.load(tmp_path)
