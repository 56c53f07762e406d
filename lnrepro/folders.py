"""Files below a folder, also where folders are links to other disks."""

import os
import pathlib
import warnings


def files_below(root: pathlib.Path) -> list[pathlib.Path]:
    """Return the files below a folder in sorted order, folders before their content.

    Linked folders are followed, except into a folder that contains the link. Warns of
    folders that cannot be read.

    Args:
      root: the folder.
    """

    def left_out(e: OSError) -> None:
        warnings.warn(f"left out: {e.filename}: {e.strerror}", stacklevel=2)

    found = []
    for place, folders, names in os.walk(root, onerror=left_out, followlinks=True):
        here = pathlib.Path(place)
        above = {parent.resolve() for parent in (here, *here.parents)}
        folders[:] = [name for name in folders if (here / name).resolve() not in above]
        found += [here / name for name in names]
    return sorted(found)
