"""Hook of MkDocs: the site shows the pages and pictures of experiments/results.

The page experiments/results/NAME.md is results/NAME.md on the site, and the table
experiments/README.md is results/index.md. Links to other files lead to the repository.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

EXPERIMENTS = pathlib.Path(__file__).parents[2] / "experiments"
RESULTS = EXPERIMENTS / "results"
REPOSITORY = "https://github.com/lnrepro/lnrepro/blob/main"
LINK = re.compile(r"\]\((?!https:)([^)#\s]+)")


def on_files(files, config):
    """Add the pages and pictures to the files of the site."""
    for path in sorted(RESULTS.glob("**/*.png")):
        name = path.relative_to(RESULTS).as_posix()
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(path)))
    index = page(EXPERIMENTS / "README.md", "experiments")
    files.append(File.generated(config, "results/index.md", content=index))
    for path in sorted(RESULTS.glob("*.md")):
        text = page(path, "experiments/results")
        files.append(File.generated(config, f"results/{path.name}", content=text))
    return files


def page(path, folder):
    """Return a page with links that are right on the site.

    Args:
      path: the page.
      folder: its folder in the repository.
    """

    def link(match):
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        inside = re.fullmatch(r"experiments/results/(\w+\.md|.*\.png)", target)
        if inside:
            return f"]({inside[1]}"
        if target.startswith("docs/"):
            return f"](../{target.removeprefix('docs/')}"
        return f"]({REPOSITORY}/{target}"

    return LINK.sub(link, path.read_text(encoding="utf-8"))
