"""The commands of docs/data.md, from own files to the use of a run."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.data import idx
from tests.data.reading import write
from tests.data.test_captions import folder_files
from tests.data.test_iam_ondb import form
from tests.runs import ROOT, environment
from tests.scripts.test_convert_books import BOOK

PAGE = (ROOT / "docs/data.md").read_text(encoding="utf-8")


def block(language, *words):
    """The block of the page that contains all the words."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    (found,) = (text for text in blocks if all(word in text for word in words))
    return found


def run_block(folder, text):
    """Run the commands of a block in a folder, and return what they print.

    The trainings take seconds.
    """
    for name in ("configs", "scripts"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    text = re.sub(r"(--config=configs/\w+\.py)", r"\1:smoke", text)
    command = f'python() {{ "{sys.executable}" "$@"; }}\n{text}'
    env = environment(folder)
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_own_images_train_by_the_command_that_prepare_prints(tmp_path):
    write(tmp_path / "my_files", idx.files())
    printed = run_block(tmp_path, block("sh", "mnist --raw my_files"))
    # It prints a command for each experiment. The page shows the beginning of one.
    shown = block("sh", "config.data.name=my_digits").partition(" --config.data.train_")
    commands = [line.strip() for line in printed.splitlines()]
    (command,) = [c for c in commands if c.startswith(f"{shown[0].strip()} ")]
    command = re.sub(r"--workdir=\S+", "--workdir=images_run", command)
    run_block(tmp_path, f"{command} --config.batch_size=8")
    results = json.loads((tmp_path / "images_run/results.json").read_text())
    assert 0 <= results["test/error"] <= 1


@pytest.mark.slow
def test_the_reader_of_the_page_is_needed_for_preparing_only(tmp_path):
    images = np.random.RandomState(0).randint(0, 200, (600, 28, 28)).astype(np.uint8)
    (tmp_path / "my_files").mkdir()
    np.savez(tmp_path / "my_files/images.npz", x=images, y=np.arange(600) % 10)
    (tmp_path / "reader.py").write_text(block("python", "reader=CLOTHES"))
    run_block(tmp_path, f"PYTHONPATH={ROOT} python reader.py")
    command = f"{block('sh', '=clothes').strip()} --config.steps=20"
    run_block(tmp_path, command)
    (folder,) = (tmp_path / "runs/mnist").iterdir()
    own = json.loads((folder / "config.json").read_text())["config"]["data"]
    assert (own["train_examples"], own["features"]) == (400, 784)
    # The same command resumes: the sizes are filled again.
    assert "is finished" in run_block(tmp_path, command)


@pytest.mark.slow
def test_own_captions_are_queried_with_a_sentence(tmp_path, monkeypatch):
    files = folder_files({"train": 150, "val": 20, "test": 30})
    write(tmp_path / "my_files", files)
    run_block(tmp_path, block("sh", "my_captions"))
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(block("python", "rank"), found)
    assert sorted(found["order"][0]) == list(range(30))
    assert found["best"] == found["order"][0, 0]


@pytest.mark.slow
def test_raw_novels_become_sentence_vectors(tmp_path):
    # Many sentences, in three books.
    start, end = BOOK.index("Mr. Ames"), BOOK.index("The End")
    text = BOOK[:start] + BOOK[start:end] * 30 + BOOK[end:]
    write(tmp_path / "raw", {f"book{i}.txt": text for i in range(3)})
    (tmp_path / "sentences.txt").write_text("It's late, he said.\n\nNobody came.\n")
    run_block(tmp_path, block("sh", "my_books"))
    vectors = np.load(tmp_path / "vectors.npy")
    # An empty line has no words.
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1], atol=1e-5)


@pytest.mark.slow
def test_own_strokes_become_a_written_line(tmp_path):
    for i in range(20):
        write(tmp_path / "my_files", form(f"form {i}", ["My line of text"]))
    run_block(tmp_path, block("sh", "my_strokes"))
    assert "<svg" in (tmp_path / "line.svg").read_text()
