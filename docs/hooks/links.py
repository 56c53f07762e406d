"""Hook of MkDocs: the page of results, and the links of all pages.

experiments/README.md is results/index.md on the site. All pages have links that are
right in the repository. On the site, those to files that the site does not have lead to
the repository at `repo_url` of mkdocs.yml. Without a `repo_url`, their text stays.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
INLINE = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)")
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
DEFINITION = re.compile(r"^\[([^\]]+)\]: (?!\w+:)([^#\s]+)(#\S*)?\n", re.M)


def on_files(files, config):
    """Add the page and the pictures of the results to the files of the site."""
    for path in sorted(RESULTS.glob("**/*.png")):
        name = path.relative_to(RESULTS).as_posix()
        files.append(File.generated(config, f"results/{name}", abs_src_path=str(path)))
    text = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    # The table of claims is wide.
    text = f"---\nhide: [toc]\n---\n{text}"
    files.append(File.generated(config, "results/index.md", content=text))
    return files


def place_in_repository(page):
    """Return the path of a page of the site, relative to the root of the repository."""
    if page == "results/index.md":
        return "experiments/README.md"
    return f"docs/{page}"


def place_on_site(path):
    """Return where a file of the repository is on the site; None if it is not."""
    if path == "experiments/README.md":
        return "results/index.md"
    if re.fullmatch(r"experiments/results/.*\.png", path):
        return path.removeprefix("experiments/")
    # The log is in the repository only.
    if re.fullmatch(r"docs/(?!log\.md).*\.(md|png|svg|gif)", path):
        return path.removeprefix("docs/")
    return None


def on_page_markdown(markdown, page, config, files):
    """Turn links that are right in the repository into those of the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(place_in_repository(here))

    def address(target, anchor):
        """Return the address of a file; None if the site has no link to it."""
        path = posixpath.normpath(posixpath.join(folder, target))
        on_site = place_on_site(path)
        if on_site is not None:
            return posixpath.relpath(on_site, posixpath.dirname(here)) + (anchor or "")
        if config.repo_url:
            return f"{config.repo_url}/blob/main/{path}{anchor or ''}"
        return None

    def inline(match):
        text, target, anchor = match.groups()
        found = address(target, anchor)
        return text if found is None else f"[{text}]({found})"

    def picture(match):
        return f"![{match[1]}]({address(match[2], None)})"

    removed = []

    def definition(match):
        name, target, anchor = match.groups()
        found = address(target, anchor)
        if found is None:
            removed.append(name)
            return ""
        return f"[{name}]: {found}\n"

    markdown = DEFINITION.sub(definition, markdown)
    for name in removed:
        markdown = re.sub(rf"\[([^\]]*)\]\[{re.escape(name)}\]", r"\1", markdown)
    parts = FENCED.split(markdown)
    # Every second part is a block of code, which has no links.
    for i in range(0, len(parts), 2):
        parts[i] = INLINE.sub(inline, PICTURE.sub(picture, parts[i]))
    return "".join(parts)
