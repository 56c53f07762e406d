"""Random changes of files and folders, as transfers, systems and attackers cause them.

Most are damage. Some must make no difference, such as another encoding or packing.
"""

import bz2
import gzip
import io
import lzma
import pathlib
import random
import struct
from collections.abc import Callable, Sequence

import numpy as np

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


class Damage:
    """Damages files of one format."""

    def __init__(self, seeds: Sequence[bytes], tokens: Sequence[bytes] = ()):
        """Keep the files.

        Args:
          seeds: undamaged files.
          tokens: words of the format, which are inserted among other things.
        """
        self.seeds, self.tokens = list(seeds), tuple(tokens) or ODD

    def draw(self, rng: random.Random) -> bytes:
        """Return a file with up to four damages, sometimes with none."""
        # An undamaged file now and then shows that the parser takes what it should.
        content, count = rng.choice(self.seeds), 0
        if rng.random() < 0.95:
            count = rng.choice((0, 1, 1, 1, 1, 1, 2, 2, 3, 4))
        for _ in range(count):
            content = rng.choice(KINDS)(self, rng, content)[:LARGEST]
        return content

    def _place(self, rng, content):
        """Return a position, half of the time near the beginning, where headers are."""
        limit = 200 if rng.random() < 0.5 else LARGEST
        return rng.randrange(min(len(content), limit) + 1)

    def _put(self, rng, content, what):
        """Insert `what`, or overwrite what is there."""
        start = end = self._place(rng, content)
        if rng.random() < 0.5:
            end += len(what)
        return content[:start] + what + content[end:]

    def flip(self, rng: random.Random, content: bytes) -> bytes:
        """Change bits and bytes."""
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 8)) if content else 0):
            at = min(self._place(rng, content), len(content) - 1)
            if rng.random() < 0.5:
                damaged[at] ^= 1 << rng.randrange(8)
            else:
                damaged[at] = rng.randrange(256)
        return bytes(damaged)

    def cut(self, rng: random.Random, content: bytes) -> bytes:
        """Remove the end, the beginning or a piece."""
        low, high = sorted((self._place(rng, content), self._place(rng, content)))
        kept = content[:low], content[:high], content[high:]
        return rng.choice((*kept, content[:low] + content[high:]))

    def again(self, rng: random.Random, content: bytes) -> bytes:
        """Repeat a piece, or the whole file."""
        low, high = sorted((self._place(rng, content), self._place(rng, content)))
        piece = content if rng.random() < 0.1 else content[low:high]
        return content[:high] + piece * rng.choice((1, 1, 2, 50)) + content[high:]

    def splice(self, rng: random.Random, content: bytes) -> bytes:
        """Join the beginning and the end of another file."""
        other = rng.choice(self.seeds)
        return content[: self._place(rng, content)] + other[self._place(rng, other) :]

    def number(self, rng: random.Random, content: bytes) -> bytes:
        """Replace a number by an extreme or invalid one, in text or in binary."""
        if rng.random() < 0.4:
            return self._put(rng, content, rng.choice(BINARY))
        start = self._place(rng, content)
        while start < len(content) and not content[start : start + 1].isdigit():
            start += 1
        end = start
        while end < len(content) and content[end : end + 1].isdigit():
            end += 1
        return content[:start] + rng.choice(NUMBERS) + content[end:]

    def odd(self, rng: random.Random, content: bytes) -> bytes:
        """Insert NUL, invalid UTF-8, control characters or other line ends."""
        return self._put(rng, content, rng.choice(ODD))

    def token(self, rng: random.Random, content: bytes) -> bytes:
        """Insert a word of the format where it does not belong."""
        return self._put(rng, content, rng.choice(self.tokens))

    def encoding(self, rng: random.Random, content: bytes) -> bytes:
        """Add a byte order mark, or change the line ends or the encoding."""
        kind = rng.randrange(6)
        if kind > 2:
            other = ("utf-16", "utf-16-le", "cp1252")[kind - 3]
            return content.decode("utf-8", "replace").encode(other, "replace")
        return (
            b"\xef\xbb\xbf" + content,
            content.replace(b"\n", b"\r\n"),
            content.replace(b"\n", b"\r"),
        )[kind]

    def nest(self, rng: random.Random, content: bytes) -> bytes:
        """Insert nested brackets, up to thousands."""
        bracket, depth = rng.choice(NESTED), rng.choice((3, 500, 900, 5000, 20000))
        return self._put(rng, content, bracket * depth)

    def lines(self, rng: random.Random, content: bytes) -> bytes:
        """Exchange, remove or repeat lines."""
        lines = content.split(b"\n")
        i, k = rng.randrange(len(lines)), rng.randrange(len(lines))
        a, b = lines[i], lines[k]
        lines[i], lines[k] = rng.choice(((b, a), (a, a), (b"", b)))
        return b"\n".join(lines)


KINDS: tuple[Callable[[Damage, random.Random, bytes], bytes], ...] = (
    Damage.flip,
    Damage.cut,
    Damage.again,
    Damage.splice,
    Damage.number,
    Damage.odd,
    Damage.token,
    Damage.encoding,
    Damage.nest,
    Damage.lines,
)


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
