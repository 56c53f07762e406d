"""Hook of MkDocs: pages may show pictures of experiments/results.

The picture experiments/results/NAME.png is results/NAME.png on the site.
"""

import pathlib

from mkdocs.structure.files import File

RESULTS = pathlib.Path(__file__).parents[2] / "experiments" / "results"


def on_files(files, config):
    """Add the pictures to the files of the site."""
    for path in sorted(RESULTS.glob("**/*.png")):
        name = path.relative_to(RESULTS).as_posix()
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(path)))
    return files
