"""Convert books to files of tokenised sentences.

    python scripts/convert_books.py FILE ... --out DIR

    python scripts/convert_books.py raw/*.txt --out sentences
    python scripts/prepare.py bookcorpus --raw sentences --as my_books

A FILE is a text of Project Gutenberg as it was downloaded, or any other plain text with
empty lines between its paragraphs. The header and the licence are left out, and so are
headings without lower-case letters. DIR/FILE then has one sentence per line in lower
case, its words separated by spaces, as scripts/encode_sentences.py separates those of a
sentence. A speech in quotation marks is one sentence.
"""

import pathlib
import re
import sys
from collections.abc import Iterator

from lnrepro.data import files as data_files
from lnrepro.engine import json_files
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, run_script

# The lines around a book. A second line often stands before the one with stars.
START = re.compile(r"^\*\*\* ?START OF TH(?:E|IS) PROJECT GUTENBERG.*$", re.I | re.M)
END = re.compile(r"^(?:\*\*\* ?)?END OF (?:TH(?:E|IS) )?PROJECT GUTENBERG", re.I | re.M)
# A paragraph ends at an empty line.
PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


def main(argv: list[str]) -> None:
    """Convert books.

    Raises:
      UserError: a wrong flag, a file that is no book, or an output that exists.
    """
    parser = Parser(description=__doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="DIR")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    for source in args.files:
        if data_files.is_system_file(source.name):
            continue
        # Without the suffixes of a packing and of its kind.
        stem = pathlib.PurePath(data_files.unpacked_name(source.name)).stem
        target = args.out / f"{stem}.txt"
        if target.exists():
            raise UserError(f"{target} is there already; remove it, or choose --out")
        lines = list(sentences(read(source)))
        if not lines:
            raise UserError(f"{source}: contains no sentence")
        json_files.replace(target, "\n".join(lines) + "\n")
        print(f"{target}: {len(lines):,} sentences", file=sys.stderr)


def read(file: pathlib.Path) -> str:
    """Return the text of a book without the licence of Project Gutenberg.

    Raises:
      UserError: the file cannot be read, is not text, or its licence cannot be found.
    """
    text = data_files.decode(data_files.read(file), file).replace("\r\n", "\n")
    start, end = START.search(text), END.search(text)
    if start and end:
        return text[start.end() : end.start()]
    if start or end or "project gutenberg" in text.lower():
        missing = "END" if start else "START"
        raise UserError(
            f"{file}: names Project Gutenberg, but has no line that begins with "
            f"'*** {missing} OF THE PROJECT GUTENBERG'; remove the licence by hand"
        )
    return text


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a book, their words separated by spaces."""
    import sentencex

    # The same function splits the sentences that are encoded.
    from experiments.skip_thoughts.encoding import tokens_of

    for paragraph in PARAGRAPH.split(text):
        if not any(letter.islower() for letter in paragraph):
            # A heading, or a row of stars.
            continue
        # Underscores mark italics. Lines end where the page was full.
        flowing = " ".join(paragraph.replace("_", "").split())
        # The splitter knows three full stops, but not the character for them.
        flowing = flowing.replace("\u2026", "...")
        for sentence in sentencex.segment("en", flowing):
            if tokens := tokens_of(sentence, lowercase=True):
                yield " ".join(tokens)


if __name__ == "__main__":
    run_script(main, "splitting sentences")
