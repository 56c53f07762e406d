"""Which sentences of the books lie nearest to some of them, as text."""

import numpy as np

from lnrepro.data.ragged import Ragged
from lnrepro.data.text import Vocabulary

from .transfer import Encode

QUERIES, CANDIDATES, SHOWN = 12, 4000, 4


def text(encode: Encode, tokens: Ragged, vocabulary: Vocabulary, title: str) -> str:
    """QUERIES sentences, each with the SHOWN nearest by cosine of CANDIDATES others, taken at equal distances."""
    lines = np.unique(
        np.linspace(0, len(tokens) - 1, min(CANDIDATES, len(tokens))).astype(int)
    )
    found = list(
        dict.fromkeys(" ".join(vocabulary.decode(tokens[i])) for i in lines)
    )  # each wording once
    found = [sentence for sentence in found if len(sentence.split()) >= 3]
    vectors = encode(found, end_token=False)
    page = [title, ""]
    for i in np.unique(
        np.linspace(0, len(found) - 1, min(QUERIES, len(found))).astype(int)
    ):
        near = vectors @ vectors[i]
        near[i] = -np.inf
        page.append(found[i])
        page += [
            f"    {near[j]:.3f}  {found[j]}"
            for j in np.argsort(-near, kind="stable")[:SHOWN]
            if near[j] > -2
        ]
        page.append("")
    return "\n".join(page)
