"""Extension of griffe: doctests in docstrings are shown as code blocks."""

import re

import griffe

# From a line with the prompt to the next empty line.
DOCTEST = re.compile(r"^( *)>>> .*?(?=\n\s*\n|\Z)", re.M | re.S)


class FencedDoctests(griffe.Extension):
    """Put a code fence around each doctest; Markdown would make quotations of them."""

    def on_instance(self, *, obj, **kwargs):
        """Change the docstring of a module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


def _fenced(match):
    indent = match[1]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"
