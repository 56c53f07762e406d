"""Random damage to files, as transfers, disks, editors and attackers cause it."""

import random
from collections.abc import Callable, Sequence

# Limit in bytes of a damaged file.
LARGEST = 1 << 17
# Texts in place of a number: extreme, not finite, too long for int(), or unusual
# digits.
NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
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
        kind = rng.randrange(4)
        if kind == 3:
            return content.decode("latin-1").encode("utf-16")
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
