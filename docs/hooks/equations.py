"""Equations as MathML, and doctests as code: a hook of MkDocs, an extension of griffe.

Docstrings have equations as text, in a block of their own. It becomes LaTeX here:

    h_t = tanh(N(a_t) + b)                                           (eq. 4)

Pages have LaTeX in fences named `math`, which GitHub shows too.
"""

import re

import griffe
import latex2mathml.converter

WORDS = {
    "sigmoid": r"\sigma",
    "tanh": r"\tanh",
    "epsilon": r"\epsilon",
    "sqrt": r"\sqrt",
    "LN": r"\mathrm{LN}",
} | {word: rf"\mathrm{{{word}}}" for word in ("mean", "var", "gain", "bias", "joint")}
# From a line with the prompt to the next empty line.
DOCTEST = re.compile(r"^( *)>>> .*?(?=\n\s*\n|\Z)", re.M | re.S)
LINE = re.compile(r"(?P<left>[^=]+?) = (?P<right>.+?)(?: {3,}(?P<remark>.*))?")


def to_latex(block):
    """Return the LaTeX of a block of a docstring; None if it is no equation."""
    rows = []
    for line in block.splitlines():
        match = LINE.fullmatch(line.strip())
        if match is None:
            return None
        sides = [formula(side) for side in match.group("left", "right")]
        if None in sides:
            return None
        row = " &= ".join(sides)
        if match["remark"]:
            remark = re.sub(r"\(eq. (.*)\)", r"(\1)", match["remark"])
            row += rf" && \text{{{re.sub(' +', ' ', remark)}}}"
        rows.append(row)
    lines = " \\\\\n".join(rows)
    return f"\\begin{{align*}}\n{lines}\n\\end{{align*}}"


def formula(text):
    """Return the LaTeX of one side of an equation; None for a word that has none."""
    if re.search(r"[\"'#=]|\.\w", text):
        return None
    if set(re.findall("[A-Za-z]{2,}", text)) - set(WORDS):
        return None
    text = re.sub(r"sqrt\(((?:[^()]|\([^()]*\))*)\)", r"sqrt{\1}", text)
    text = re.sub(r"_(\w+)", r"_{\1}", text)
    text = re.sub("[A-Za-z]{2,}", lambda match: WORDS[match[0]], text)
    return text.replace("*", r"\odot").replace("...", r"\dots")


class FencedDocstrings(griffe.Extension):
    """Put a fence `math` with LaTeX in place of each block that is an equation.

    Doctests, of which Markdown would make quotations, get a fence `pycon`.
    """

    def on_instance(self, *, obj, **kwargs):
        """Change the docstring of a module, class or function."""
        if obj.docstring is not None:
            text = DOCTEST.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
            obj.docstring.value = "\n\n".join(map(_fenced, text.split("\n\n")))


def _fenced(block):
    latex = to_latex(block) if block.startswith("    ") else None
    return block if latex is None else f"```math\n{latex}\n```"


def fence(source, *args, **kwargs):
    """Return the HTML of a fence `math`."""
    mathml = latex2mathml.converter.convert(source, display="block")
    return f'<div class="math">{mathml}</div>'


def on_config(config):
    """Add the fence to those of pymdownx.superfences."""
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "math", "format": fence}]
