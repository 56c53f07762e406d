"""Damage done to a file: what transfers, disks, editors and enemies do, drawn from a seeded generator."""

import random
from collections.abc import Callable, Sequence

LARGEST = 1 << 17  # bytes of a damaged file: the damage is in its kind, not in its size
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
BINARY = tuple(
    n.to_bytes(size, order)
    for size in (4, 8)
    for order in ("little", "big")
    for n in (0, 1, 1 << 31, (1 << 31) - 1)
)
BINARY += (b"\xff" * 4, b"\xff" * 8, b"\x00\x00\x00\x10", b"\x10\x00\x00\x00")
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
NESTED = (b"[", b"{", b"(", b'{"a":[', b"<a>", b"(l", b"](", b"[[", b"<Stroke>", b"(d")


class Damage:
    """Draws a damaged copy of one of the `seeds`; `tokens` are words of the format, put in like everything else."""

    def __init__(self, seeds: Sequence[bytes], tokens: Sequence[bytes] = ()):
        self.seeds, self.tokens = list(seeds), tuple(tokens) or ODD

    def draw(self, rng: random.Random) -> bytes:
        """One file, with up to four damages; now and then with none."""
        content = rng.choice(self.seeds)
        for _ in range(
            rng.choice((0, 1, 1, 1, 1, 1, 2, 2, 3, 4)) if rng.random() < 0.95 else 0
        ):
            content = rng.choice(KINDS)(self, rng, content)[:LARGEST]
        return content

    def _place(self, rng: random.Random, content: bytes) -> int:
        """Somewhere in it, half of the time near its beginning, where headers are."""
        return rng.randrange(
            min(len(content), 200 if rng.random() < 0.5 else LARGEST) + 1
        )

    def _put(self, rng: random.Random, content: bytes, what: bytes) -> bytes:
        """`what` inserted, or written over what is there."""
        at = self._place(rng, content)
        return (
            content[:at]
            + what
            + content[at + (len(what) if rng.random() < 0.5 else 0) :]
        )

    def flip(self, rng: random.Random, content: bytes) -> bytes:
        """Bits and bytes changed."""
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 8)) if content else 0):
            at = min(self._place(rng, content), len(content) - 1)
            damaged[at] = (
                damaged[at] ^ (1 << rng.randrange(8))
                if rng.random() < 0.5
                else rng.randrange(256)
            )
        return bytes(damaged)

    def cut(self, rng: random.Random, content: bytes) -> bytes:
        """The end, the beginning or a piece lost."""
        low, high = sorted((self._place(rng, content), self._place(rng, content)))
        return rng.choice(
            (
                content[:low],
                content[:high],
                content[high:],
                content[:low] + content[high:],
            )
        )

    def again(self, rng: random.Random, content: bytes) -> bytes:
        """A piece, or the whole, more than once."""
        low, high = sorted((self._place(rng, content), self._place(rng, content)))
        piece = content if rng.random() < 0.1 else content[low:high]
        return content[:high] + piece * rng.choice((1, 1, 2, 50)) + content[high:]

    def splice(self, rng: random.Random, content: bytes) -> bytes:
        """Its beginning and the end of another file."""
        other = rng.choice(self.seeds)
        return content[: self._place(rng, content)] + other[self._place(rng, other) :]

    def number(self, rng: random.Random, content: bytes) -> bytes:
        """A number that is huge, or none; four or eight bytes that are."""
        if rng.random() < 0.4:
            return self._put(rng, content, rng.choice(BINARY))
        at = start = self._place(rng, content)
        while start < len(content) and not content[start : start + 1].isdigit():
            start += 1
        at = start
        while at < len(content) and content[at : at + 1].isdigit():
            at += 1
        return content[:start] + rng.choice(NUMBERS) + content[at:]

    def odd(self, rng: random.Random, content: bytes) -> bytes:
        """NUL, bytes that are no UTF-8, control characters, other ends of lines."""
        return self._put(rng, content, rng.choice(ODD))

    def token(self, rng: random.Random, content: bytes) -> bytes:
        """A word of the format where it does not belong."""
        return self._put(rng, content, rng.choice(self.tokens))

    def encoding(self, rng: random.Random, content: bytes) -> bytes:
        """A byte order mark, the ends of lines of other systems, UTF-16."""
        kind = rng.randrange(4)
        if kind == 3:
            return content.decode("latin-1").encode("utf-16")
        return (
            b"\xef\xbb\xbf" + content,
            content.replace(b"\n", b"\r\n"),
            content.replace(b"\n", b"\r"),
        )[kind]

    def nest(self, rng: random.Random, content: bytes) -> bytes:
        """Brackets in brackets, thousands deep."""
        return self._put(
            rng, content, rng.choice(NESTED) * rng.choice((3, 500, 900, 5000, 20000))
        )

    def lines(self, rng: random.Random, content: bytes) -> bytes:
        """Lines in another order, lost or doubled."""
        lines = content.split(b"\n")
        i, k = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[i], lines[k] = rng.choice(
            ((lines[k], lines[i]), (lines[i], lines[i]), (b"", lines[k]))
        )
        return b"\n".join(lines)


KINDS: tuple[Callable[[Damage, random.Random, bytes], bytes], ...] = (
    Damage.flip, Damage.cut, Damage.again, Damage.splice, Damage.number, Damage.odd, Damage.token, Damage.encoding,
    Damage.nest, Damage.lines,
)  # fmt: skip


def tar_checksums(content: bytes) -> bytes:
    """A tar archive with the checksum of every header that looks like one made right."""
    mended = bytearray(content)
    for at in range(0, len(mended) - 511, 512):
        block = mended[at : at + 512]
        if block[257:262] == b"ustar":
            block[148:156] = b" " * 8
            mended[at + 148 : at + 156] = b"%06o\0 " % sum(block)
    return bytes(mended)
