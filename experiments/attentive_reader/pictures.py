"""What a trained reader looks at: validation passages with the attention drawn over their words, as a PNG and as HTML."""

import html
from collections.abc import Callable, Sequence

import numpy as np

from lnrepro.data.batches import eval_batches, evenly_spaced
from lnrepro.engine.experiment import Evaluation

from .passages import Columns, Shapes, rows_of

EXAMPLES = 4
WIDTH, MARGIN, LINE, SIZE = 880, 16, 26, 16  # pixels
INK, RIGHT, WRONG = (20, 20, 20), (0, 110, 40), (180, 20, 20)
MARK = np.array([255, 150, 40])  # of all the attention; white is none


def all_of(
    config, columns: Columns, words: Sequence[str], read: Callable, caption: str
) -> Evaluation:
    """ "attention" (H, W, 3) uint8 and "attention.html" of EXAMPLES questions at equal distances.

    read(batch) -> (attention (B, T), the word chosen (B,)).
    """
    rows = evenly_spaced(len(columns["answer"]), EXAMPLES)
    some = rows_of(columns, rows)
    shapes, shown = Shapes(config, some), []
    for batch in eval_batches(some, len(some["answer"]), pad=shapes.pad()):
        attention, chosen = (np.asarray(a) for a in read(batch))
        for b, length in enumerate(batch["passage_length"]):
            tokens = [words[i] for i in batch["passage"][b, :length]]
            question = [
                words[i] for i in batch["question"][b, : batch["question_length"][b]]
            ]
            shown.append(
                (
                    tokens,
                    attention[b, :length],
                    question,
                    words[chosen[b]],
                    words[batch["answer"][b]],
                )
            )
    return Evaluation(
        images={"attention": picture(shown, caption)},
        files={"attention.html": page(shown, caption)},
    )


def page(shown: Sequence[tuple], caption: str) -> str:
    """The examples (tokens, attention, question, chosen, answer) as an HTML page; a word's shade is its attention's
    share of the passage's largest, its title the attention itself."""
    parts = [f"<h1>{html.escape(caption)}</h1>"]
    for tokens, attention, question, chosen, answer in shown:
        marked = " ".join(
            f'<span title="{a:.4f}" style="background:rgb{_shade(a / max(attention.max(), 1e-30))}">{html.escape(t)}</span>'
            for t, a in zip(tokens, attention, strict=True)
        )
        verdict = f'<b class="{"right" if chosen == answer else "wrong"}">{html.escape(chosen)}</b>'
        parts.append(
            f"<p><b>{html.escape(' '.join(question))}</b></p><p>{marked}</p>"
            f"<p>chosen {verdict}, answer <b>{html.escape(answer)}</b></p><hr>"
        )
    style = "body{max-width:55em;margin:2em auto;font:1.05em/1.7 sans-serif}h1{font-size:1.1em}"
    style += (
        ".right{color:rgb(0,110,40)}.wrong{color:rgb(180,20,20)}span{padding:2px 1px}"
    )
    head = f'<meta charset="utf-8"><title>{html.escape(caption)}</title><style>{style}</style>'
    return f"<!DOCTYPE html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def picture(shown: Sequence[tuple], caption: str) -> np.ndarray:
    """The same as pixels (H, W, 3) uint8."""
    from PIL import Image, ImageDraw, ImageFont

    font, bold = ImageFont.load_default(SIZE), ImageFont.load_default(SIZE + 2)
    done, y = (
        [],
        MARGIN,
    )  # (x, y, text, ink, background or None, font), y the next line's top

    def flow(tokens, ink, font, shades=None):
        nonlocal y
        x = MARGIN
        for i, token in enumerate(tokens):
            width = font.getlength(token)
            if x > MARGIN and x + width > WIDTH - MARGIN:
                x, y = MARGIN, y + LINE
            done.append((x, y, token, ink, None if shades is None else shades[i], font))
            x += width + font.getlength(" ")
        y += LINE

    flow(caption.split(), INK, font)
    y += LINE // 2
    for tokens, attention, question, chosen, answer in shown:
        flow(question, INK, bold)
        flow(
            tokens,
            INK,
            font,
            [_shade(a / max(attention.max(), 1e-30)) for a in attention],
        )
        flow(
            f"chosen {chosen}, answer {answer}".split(" "),
            RIGHT if chosen == answer else WRONG,
            font,
        )
        y += LINE // 2
    image = Image.new("RGB", (WIDTH, y + MARGIN), "white")
    pen = ImageDraw.Draw(image)
    for x, top, text, ink, shade, face in done:
        if shade is not None:
            pen.rectangle(
                (x - 2, top - 2, x + face.getlength(text) + 2, top + LINE - 5),
                fill=shade,
            )
        pen.text((x, top), text, fill=ink, font=face)
    return np.asarray(image)


def _shade(strength: float) -> tuple[int, int, int]:
    """Background for a strength from 0 (white) to 1 (MARK)."""
    return tuple(int(v) for v in np.rint(255 + (MARK - 255) * float(strength)))
