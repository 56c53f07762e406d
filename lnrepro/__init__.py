"""Layer Normalization (Ba, Kiros, Hinton 2016) in JAX.

`functional`, `linen`, `nnx` and `convert` are for use in other code. `engine`, `data`
and `main` train the experiments of the paper, and `load` opens what they trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from lnrepro.engine.loaded_run import LoadedRun

__version__ = "0.2.0"


def load(
    run_folder: str | os.PathLike,
    *,
    checkpoint: str = "best",
    experiment: str | None = None,
) -> LoadedRun:
    """Open a run to use its network. It needs `lnrepro[train]`, but no data set.

    Every run has `.config`, `.params`, `.metrics` and `.export(path)`. What else there
    is depends on the experiment:

      skip_thoughts: `.encode(sentences)`
      order_embeddings: `.embed_captions(captions)`, `.embed_images(features)` and
        `.rank(captions, images)`
      handwriting: `.write(text, seed)`
      attentive_reader: `.answer(passage, question)`
      draw: `.sample(n, seed)`
      mnist and convnet: `.classify(images)` and `.probabilities(images)`

    See the class `Model` of `experiments.NAME.use`. Nothing in the folder is executed,
    so that it may come from somebody else.

    Args:
      run_folder: the run directory, or a folder that `.export` wrote.
      checkpoint: "best" or "last"; the last one is read where no best one is kept.
      experiment: the only module in `config.experiment` that is accepted. None accepts
        the modules `experiments.NAME`; any other one must be named here.

    Raises:
      lnrepro.errors.UserError: there is no run that can be opened.
      ModuleNotFoundError: `lnrepro[train]` is not installed.
    """
    from lnrepro.errors import not_installed

    # Imported here, because the core of the package needs jax and flax only.
    try:
        from lnrepro.engine import loaded_run
    except ModuleNotFoundError as e:
        line = not_installed(e, "lnrepro.load").removeprefix("error: ")
        raise ModuleNotFoundError(line, name=e.name) from None
    return loaded_run.load_model(
        run_folder, checkpoint=checkpoint, experiment=experiment
    )
