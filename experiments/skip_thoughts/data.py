"""The books of the skip-thoughts experiment."""

import numpy as np
from ml_collections import ConfigDict

from experiments.fields.skip_thoughts import FIELDS
from experiments.sets import open_set
from lnrepro.fields import Size

# Those of the authors.
BUCKETS = FIELDS["data.buckets"].default
VOCABULARY = FIELDS["model.vocabulary"].default


def sizes(config: ConfigDict) -> dict[str, Size]:
    """Return what the data set says about fields of the config.

    Raises:
      DataError: the set is missing.
    """
    facts = open_set(config).facts
    # The words, the end token and the unknown word.
    most = len(facts["words"]) + 2
    # Steps of the longest sentence of which there is a whole batch, with the end token.
    counts = np.array(facts["triples_by_length"])
    longest = int(np.flatnonzero(counts >= config.batch_size).max(initial=0)) + 2
    buckets = BUCKETS[: np.searchsorted(BUCKETS, longest) + 1]
    return {
        "data.train_examples": Size(facts["lines"]),
        "data.buckets": Size(buckets, least=longest),
        "model.vocabulary": Size(min(VOCABULARY, most), least=3, most=most),
    }
