"""The books of the skip-thoughts experiment."""

from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.triples import Triples
from lnrepro.engine.checks import Size, check_sizes

# The number of words of the authors.
VOCABULARY = 20_000


def open_books(config: ConfigDict) -> Triples:
    """Open the sentences of the books.

    Raises:
      DataError: the set is missing, or does not fit the sizes in the config.
    """
    check_sizes(config, sizes(config))
    return Triples.open(config.data.name, config.model.vocabulary, config.data.dir)


# Fields of the config that the data set determines, see `sizes`.
SIZES = ("data.train_examples", "model.vocabulary")


def sizes(config: ConfigDict) -> dict[str, Size]:
    """Return what the data set says about SIZES.

    Raises:
      DataError: the set is missing.
    """
    facts = data.facts(config.data.name, config.data.dir)
    # The words, the end token and the unknown word.
    most = len(facts["words"]) + 2
    return {
        "data.train_examples": Size(facts["lines"]),
        "model.vocabulary": Size(min(VOCABULARY, most), least=3, most=most),
    }
