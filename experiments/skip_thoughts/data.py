"""The books of the skip-thoughts experiment."""

from ml_collections import ConfigDict

from lnrepro.data.triples import Triples
from lnrepro.engine.checks import check_data


def open_books(config: ConfigDict) -> Triples:
    """Open the sentences of the books.

    Raises:
      DataError: the set is missing, or does not fit the sizes in the config.
    """
    books = Triples.open(config.data.name, config.model.vocabulary, config.data.dir)
    check_data(config, "data.train_examples", len(books.tokens))
    return books
