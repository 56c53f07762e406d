"""Order-embeddings of images and captions (section 6.1, Figure 1, Table 2).

Captions and images are embedded in one space, in which each is retrieved by the other.
`config.norm` is "none", or "layer" for layer norm in the GRU that reads captions (eq.
26-28). Words and images are not normalised. `config.model.similarity` is "order", or
"cosine" for the symmetric row of Table 2 (with margin 0.2). Run with
configs/order_embeddings.py.
"""

from experiments.fields.order_embeddings import FIELDS as FIELDS

from .data import sizes as sizes
from .experiment import make as make
