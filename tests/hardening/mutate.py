"""Random changes of files and folders, as transfers, systems and attackers cause them.

Most are damage. Some must make no difference, such as another encoding or packing.
"""

import bz2
import gzip
import io
import lzma
import operator
import pathlib
import random
import re
import struct
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from lnrepro.data.encodings import decode
from lnrepro.data.file_kinds import PACKINGS, SUFFIXES, ZSTD, unpacked_name

# Limit in bytes of a damaged file.
LARGEST = 1 << 17
# Texts in place of a number: extreme, not finite, too long for int(), or unusual
# digits.
NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"-1e400",
    b"1e39",
    b"NaN",
    b"nan",
    b"inf",
    b"-Infinity",
    b"Infinity",
    b"0x7f",
    b"2147483648",
    b"4294967295",
    b"9" * 30,
    b"7" * 5000,
)
NUMBERS += ("\u0663".encode(), b"1_0", b"+1", b"00", b"1.5", b"")
# The same in binary: zero, one, and numbers around the largest signed one.
BINARY = tuple(
    n.to_bytes(size, order)
    for size in (4, 8)
    for order in ("little", "big")
    for n in (0, 1, 1 << 31, (1 << 31) - 1)
)
# NaN and infinity as float32 and float64.
BINARY += tuple(
    struct.pack(form, value)
    for form in ("<f", ">f", "<d", ">d")
    for value in (float("nan"), float("inf"))
)
BINARY += (b"\xff" * 4, b"\xff" * 8, b"\x00\x00\x00\x10", b"\x10\x00\x00\x00")
# NUL, bytes that are not UTF-8, half of a surrogate pair, byte order marks, an escape
# sequence and unusual line ends.
ODD = (
    b"\0",
    b"\xff",
    b"\xfe\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\x1b[2J",
    b"\x85",
    b"\xc2\x85",
    b"\x81",
    b"\x92",
    b"\x93a\x94",
)
ODD += (
    "\u2028".encode(),
    "\u3000".encode(),
    b"\r",
    b"\n\n",
    b"\t",
    b" " * 70,
    b"\x0c",
    b"\x1c",
)
# Openings of brackets, which exhaust a parser that recurses.
NESTED = (b"[", b"{", b"(", b'{"a":[', b"<a>", b"(l", b"](", b"[[", b"<Stroke>", b"(d")
DEPTHS = (3, 500, 900, 5000, 20000)


Kind = Callable[[st.DrawFn, bytes], bytes]


# Strategies of a fixed choice are made once, since hypothesis checks each new one.
_NUMBERS_OF_DAMAGES = st.sampled_from((0, 1, 1, 1, 1, 1, 2, 2, 3, 4))
_LIMITS = st.sampled_from((200, LARGEST))
_NUMBERS = st.sampled_from(NUMBERS)
_REPETITIONS = st.sampled_from((0, 0, 0, 2, 3, 50))


def damaged(
    seeds: Sequence[bytes], tokens: Sequence[bytes] = ()
) -> st.SearchStrategy[bytes]:
    """Return files with up to four damages, sometimes with none.

    Args:
      seeds: undamaged files.
      tokens: words of the format, which are inserted among other things.
    """
    words = st.one_of(
        st.binary(min_size=1, max_size=8),
        st.sampled_from(BINARY),
        st.sampled_from(ODD),
        st.sampled_from(tokens or ODD),
        st.builds(operator.mul, st.sampled_from(NESTED), st.sampled_from(DEPTHS)),
    )
    files = st.sampled_from(seeds)

    def word(draw, content):
        """Insert a word, or overwrite what is there."""
        start, what = _place(draw, content), draw(words)
        end = start + draw(st.sampled_from((0, len(what))))
        return content[:start] + what + content[end:]

    def splice(draw, content):
        """Join the beginning and the end of another file."""
        other = draw(files)
        return content[: _place(draw, content)] + other[_place(draw, other) :]

    kinds = st.sampled_from((word, word, word, number, splice, *KINDS))

    @st.composite
    def file(draw):
        content = draw(files)
        for _ in range(draw(_NUMBERS_OF_DAMAGES)):
            content = draw(kinds)(draw, content)[:LARGEST]
        return content

    return file()


def _place(draw, content):
    """Return a position, half of the time near the beginning, where headers are."""
    limit = draw(_LIMITS)
    return draw(st.integers(0, min(len(content), limit)))


def flip(draw: st.DrawFn, content: bytes) -> bytes:
    """Change a bit."""
    at, bit = _place(draw, content), draw(st.integers(0, 7))
    changed = bytes(byte ^ 1 << bit for byte in content[at : at + 1])
    return content[:at] + changed + content[at + 1 :]


def piece(draw: st.DrawFn, content: bytes) -> bytes:
    """Remove or repeat a piece: the beginning, the end, the whole or any other."""
    begin = st.sampled_from((0, _place(draw, content)))
    end = st.sampled_from((len(content), _place(draw, content)))
    low, high = sorted((draw(begin), draw(end)))
    times = draw(_REPETITIONS)
    return content[:low] + content[low:high] * times + content[high:]


def number(draw: st.DrawFn, content: bytes) -> bytes:
    """Replace a number by an extreme or invalid one."""
    digits = re.compile(rb"\d+").search(content, _place(draw, content))
    low, high = digits.span() if digits else (len(content),) * 2
    return content[:low] + draw(_NUMBERS) + content[high:]


def encoding(draw: st.DrawFn, content: bytes) -> bytes:
    """Add a byte order mark, or change the line ends or the encoding."""
    text = content.decode("utf-8", "replace")
    others = [
        text.encode(name, "replace") for name in ("utf-16", "utf-16-le", "cp1252")
    ]
    ends = [content.replace(b"\n", end) for end in (b"\r\n", b"\r")]
    return draw(st.sampled_from((b"\xef\xbb\xbf" + content, *ends, *others)))


def lines(draw: st.DrawFn, content: bytes) -> bytes:
    """Exchange, remove or repeat lines."""
    lines = content.split(b"\n")
    numbers = st.integers(0, len(lines) - 1)
    i, k = draw(numbers), draw(numbers)
    a, b = lines[i], lines[k]
    lines[i], lines[k] = draw(st.sampled_from(((b, a), (a, a), (b"", b))))
    return b"\n".join(lines)


KINDS: tuple[Kind, ...] = (flip, piece, number, encoding, lines)


def tar_checksums(content: bytes) -> bytes:
    """Return a tar archive with the checksums of its headers corrected."""
    corrected = bytearray(content)
    # A header is a block of 512 bytes. Its checksum is the sum of its bytes, where the
    # eight bytes of the checksum itself count as blanks.
    for at in range(0, len(corrected) - 511, 512):
        block = corrected[at : at + 512]
        if block[257:262] == b"ustar":
            block[148:156] = b" " * 8
            corrected[at + 148 : at + 156] = b"%06o\0 " % sum(block)
    return bytes(corrected)


# -- folders

# The files of a folder by their paths.
Files = dict[str, bytes]
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, compresslevel=1),
    ".xz": lambda content: lzma.compress(content, preset=0),
    ".bz2": lambda content: bz2.compress(content, compresslevel=1),
}
if ZSTD is not None:
    PACK[".zst"] = ZSTD.compress
# Files that an operating system adds, for a file {name} in a folder.
SIDECARS = (
    "._{name}",
    ".DS_Store",
    "Thumbs.db",
    "desktop.ini",
    "__MACOSX/._{name}",
    "__MACOSX/{name}",
    "{name}:Zone.Identifier",
)
TEXTS = (".txt", ".question", ".json", ".pos", ".neg", ".amat")


def add_sidecars(rng: random.Random, files: Files) -> Files:
    """Add files of an operating system, with any content."""
    added = {}
    for path in rng.sample(sorted(files), min(3, len(files))):
        folder, slash, name = path.rpartition("/")
        for sidecar in rng.sample(SIDECARS, 3):
            content = rng.choice((b"", b"\0\5\x16\7", files[path]))
            added[folder + slash + sidecar.format(name=name)] = content
    return added | files


def pack(rng: random.Random, files: Files) -> Files:
    """Pack some files, or keep them plain, under names that say anything."""
    packed = {}
    for path, content in files.items():
        # A file that is packed already would be packed twice.
        if any(packing.begins.match(content) for packing in PACKINGS):
            packed[path] = content
            continue
        name = unpacked_name(path) + rng.choice(("", "", *SUFFIXES))
        packed[name] = rng.choice((bytes, *PACK.values()))(content)
    return packed


def encode(rng: random.Random, files: Files) -> Files:
    """Write texts in other encodings that have their characters."""
    encoded = dict(files)
    for path, content in files.items():
        if not path.endswith(TEXTS) or content.startswith(b"MATLAB"):
            continue
        encoding = rng.choice(("utf-8", "utf-8-sig", "utf-16", "cp1252"))
        text = decode(content, path)
        if text.encode(encoding, "ignore").decode(encoding) == text:
            encoded[path] = text.encode(encoding)
    return encoded


def repeat_rows(rng: random.Random, files: Files) -> Files:
    """Repeat the features of images for each of their five captions."""
    repeated = dict(files)
    for path, content in files.items():
        if path.endswith(".npy") and rng.random() < 0.7:
            out = io.BytesIO()
            np.save(out, np.repeat(np.load(io.BytesIO(content)), 5, axis=0))
            repeated[path] = out.getvalue()
    return repeated


def equal_names(rng: random.Random, files: Files) -> Files:
    """Copy the files of one folder into a folder inside it."""
    folders = sorted({str(pathlib.PurePosixPath(path).parent) for path in files})
    folder = rng.choice(folders)
    copies = {}
    for path, content in files.items():
        parent, name = pathlib.PurePosixPath(path).parent, path.rpartition("/")[2]
        if str(parent) == folder:
            copies[str(parent / "copy" / name)] = content
    return copies | files


# Changes that must not change the prepared set, and one that may have it refused.
HARMLESS = (add_sidecars, pack, encode, repeat_rows)
FOLDER_KINDS = (*HARMLESS, equal_names)
