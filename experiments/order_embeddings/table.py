"""Table 2: the paper's rows, and those of a run beside them, each with the data it was measured on."""

from collections.abc import Mapping

from ml_collections import ConfigDict

COLUMNS = tuple(
    f"{way}_{name}"
    for way in ("caption", "image")
    for name in ("r1", "r5", "r10", "mean_rank")
)
PAPER_DATA = "MS-COCO, VGG-19"
PAPER = {
    "Sym (Vendrov et al.)": (45.4, None, 88.7, 5.8, 36.3, None, 85.8, 9.0),
    "OE (Vendrov et al.)": (46.7, None, 88.9, 5.7, 37.9, None, 85.9, 8.1),
    "OE (the paper's)": (46.6, 79.3, 89.1, 5.2, 37.8, 73.6, 85.7, 7.9),
    "OE + LN (the paper's)": (48.5, 80.6, 89.8, 5.1, 38.9, 74.3, 86.3, 7.6),
}
NAMES = {
    "coco_captions": "MS-COCO, VGG-19"
}  # of data sets whose numbers may be held against the paper's


def beside_the_paper(*runs: tuple[ConfigDict, Mapping[str, float]]) -> str:
    """Table 2 in Markdown with a row for each run (config, scores): recalls in percent, mean ranks from 1, over the folds."""
    head = "| model | data | caption R@1 | R@5 | R@10 | mean r | image R@1 | R@5 | R@10 | mean r |"
    lines = [head, "|---" * 10 + "|"]
    lines += [_line(name, PAPER_DATA, row) for name, row in PAPER.items()]
    for config, scores in runs:
        kind = {"order": "OE", "cosine": "Sym"}[config.model.similarity] + (
            " + LN" if config.norm == "layer" else ""
        )
        e = config.evaluation
        data = NAMES.get(config.data.name, f"{config.data.name}: not to be compared")
        folds = f"{e.folds} fold{'s' * (e.folds > 1)} of {e.fold} images"
        lines.append(
            _line(
                f"{kind} (this run)", f"{data}; {folds}", [scores[c] for c in COLUMNS]
            )
        )
    return "\n".join(
        [
            *lines,
            "",
            "The paper: mean over 5 folds of 1,000 images. Here ties count against the model.",
            "",
        ]
    )


def _line(model: str, data: str, numbers) -> str:
    shown = ("-" if n is None else f"{n:.1f}" for n in numbers)
    return f"| {model} | {data} | {' | '.join(shown)} |"
