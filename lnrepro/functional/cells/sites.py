"""The norms as objects, and which of them stands at which site of a cell.

A site is a place in a cell's equations where a norm can stand: "x", the projected
input; "h", the projected state; "joint", their sum; "c", the cell that the LSTM's
output shows. Each cell has a table of its sites. It applies whatever stands there and
does not ask for the norm's name.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax

from lnrepro.functional import norms
from lnrepro.functional.arrays import add_row
from lnrepro.functional.cells.base import Initializer, StepContext
from lnrepro.functional.fast.layer_norm import Groups, centre, layer_norm_of_groups

# The parameters that a norm may have.
PARAMETERS = ("gain", "bias", "length")


class Site(NamedTuple):
    """A place where a norm can stand, a row of the table of a cell.

    Attributes:
      size: number of units.
      products: names of the weights whose products are summed there, and of the bias
        inside of the norm. `Norm.prepare` gets them. () where it does not get all that
        is summed, or where the site is no product.
      groups: sizes of the groups of units that are normalised by themselves, relative
        to each other.
      is_state: whether the site is no product, such as the LSTM's cell.
      has_bias: whether the bias of the norm is a parameter of its own.
    """

    size: int
    products: tuple[str, ...] = ()
    groups: Groups = (1,)
    is_state: bool = False
    has_bias: bool = True


@dataclasses.dataclass(frozen=True)
class Norm:
    """A norm as data, and how it is applied at a site; this one does nothing.

    `LSTMCell(8, norm=...)` takes a name of `NORMS` or such an object. The cell asks it
    for its copy at each site (`at`), and then calls `prepare` once a sequence and
    `apply` in every step. A norm of your own is a frozen dataclass that says where it
    stands (of_product, of_state) and defines `apply`. A cell that cannot apply it
    refuses it.

    Attributes:
      size: number of units at the site.
      epsilon: added to the variance under the root; None takes the cell's.
      groups: sizes of the groups of units that are normalised by themselves, relative
        to each other.
      is_product: whether the site is a sum of products v W, such as W_h h, of which
        `prepare` got all weights.
      products: names of the weights that `prepare` gets, and of the bias inside of the
        norm.
      names: names of the parameters at the site, [size] each: "gain", which starts as
        gain_init says, "bias", which starts at zero, and at a single product "length",
        which starts at `length`. The cell itself adds the bias.
      of_product: the names at a product, None where the norm does not stand at one.
      of_state: the same at what is no product, such as the LSTM's cell.
      splits_sums: whether it stands on each product of a sum, where a cell has the
        choice, and not on the sum.
      has_statistics: whether `apply` returns statistics of the batch.
      gain_init: how the gain starts.

    >>> from lnrepro.functional import GRUCell
    >>> @dataclasses.dataclass(frozen=True)
    ... class MaxNorm(Norm):
    ...     of_product = ("gain",)
    ...
    ...     def apply(self, params, a, context):
    ...         return a / abs(a).max(-1, keepdims=True) * params["gain"], None
    >>> params = GRUCell(4, norm=MaxNorm()).init(jax.random.key(0), features_in=3)
    >>> sorted(params)
    ['bias', 'gain_h', 'gain_x', 'w_h', 'w_x']
    """

    size: int = 0
    # A number or a traced one.
    epsilon: Any = None
    groups: Groups = (1,)
    is_product: bool = True
    products: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    of_product: ClassVar[tuple[str, ...] | None] = None
    of_state: ClassVar[tuple[str, ...] | None] = None
    splits_sums: ClassVar[bool] = False
    has_statistics: ClassVar[bool] = False
    gain_init: ClassVar[Initializer] = staticmethod(jax.nn.initializers.ones)

    def at(self, site: Site, epsilon: float) -> "Norm":
        """Return the norm at a site of a cell that has this epsilon."""
        names = self.of_state if site.is_state else self.of_product
        if names is None:
            return Norm(site.size)
        if not site.has_bias:
            names = tuple(name for name in names if name != "bias")
        return dataclasses.replace(
            self,
            size=site.size,
            epsilon=epsilon if self.epsilon is None else self.epsilon,
            groups=site.groups,
            is_product=bool(site.products),
            products=site.products,
            names=names,
        )

    @property
    def is_plain(self) -> bool:
        """Whether `apply` changes nothing: no norm, or one of the weight alone."""
        return type(self).apply is Norm.apply

    def length(self, weight: jax.Array) -> jax.Array:
        """Return the start of the length [N] of a fresh weight [D, N].

        It is that of the weight's columns, so that nothing changes at first.
        """
        return norms.weight_norm_preserving(weight)[1]

    def prepare(self, params: dict, weight: jax.Array) -> jax.Array:
        """Return the weight of the product at this site, ready to multiply.

        Args:
          params: the site's parameters.
          weight: [D, N], or a bias [N] that is added to the product before the norm.
        """
        return weight

    def apply(
        self, params: dict, a: jax.Array, context: StepContext
    ) -> tuple[jax.Array, Any]:
        """Normalise a [..., N].

        Args:
          params: the site's parameters.
          a: the values at the site, in float32 at least.
          context: the context of the step; its statistics are those of the site.

        Returns:
          (the normalised values times the gain; statistics of the batch, or None).
        """
        return a, None


@dataclasses.dataclass(frozen=True)
class LayerNorm(Norm):
    """Layer norm (eq. 15-16). The weight of a product is centred once a sequence.

    The mean of v W over the units is v times the mean of W's columns, so that centring
    W takes the mean out of every product.
    """

    of_product = of_state = ("gain", "bias")

    subtracts_mean = True

    def prepare(self, params, weight):
        """Centre the weight or bias."""
        if not self.subtracts_mean:
            return weight
        return centre(weight, groups=self.groups)

    def apply(self, params, a, context):
        """Normalise each group of a [..., N]."""
        y = layer_norm_of_groups(
            a,
            params["gain"],
            epsilon=self.epsilon,
            groups=self.groups,
            is_centred=self.is_product or not self.subtracts_mean,
        )
        return y, None


@dataclasses.dataclass(frozen=True)
class StateLayerNorm(LayerNorm):
    """Layer norm of the LSTM's cell alone (DRAW, eq. 29-31)."""

    of_product = None


@dataclasses.dataclass(frozen=True)
class RMSNorm(LayerNorm):
    """RMS norm: layer norm without subtracting the mean, and without a bias."""

    of_product = of_state = ("gain",)
    subtracts_mean = False


@dataclasses.dataclass(frozen=True)
class BatchNorm(Norm):
    """Batch norm with statistics of each time step (Cooijmans et al. 2016)."""

    of_product = ("gain",)
    of_state = ("gain", "bias")
    splits_sums = True
    has_statistics = True
    # A gain of 1 would saturate tanh and make gradients vanish (Cooijmans et al.).
    gain_init = staticmethod(jax.nn.initializers.constant(0.1))

    def apply(self, params, a, context):
        """Normalise each unit of a [..., N] over the rows that are no padding."""
        # Without statistics this is training: `batch_norm` takes those of the batch.
        mean, var = context.statistics or (None, None)
        y, used = norms.batch_norm(
            a,
            params["gain"],
            mask=context.mask,
            epsilon=self.epsilon,
            mean=mean,
            var=var,
        )
        # The running statistics move by them, and no gradient flows that way.
        return y, jax.lax.stop_gradient(used)


@dataclasses.dataclass(frozen=True)
class WeightNorm(Norm):
    """Weight norm: the weight of the product is normalised once per sequence."""

    of_product = ("length",)
    splits_sums = True

    def prepare(self, params, weight):
        """Give every column of the weight its length; a bias has none."""
        if weight.ndim == 1:
            return weight
        return norms.weight_norm(weight, params["length"])


# Every norm that has a name. A cell has those that its sites have a place for.
NORMS = {
    "none": Norm(),
    "layer": LayerNorm(),
    "layer_cell": StateLayerNorm(),
    "rms": RMSNorm(),
    "batch": BatchNorm(),
    "weight": WeightNorm(),
}


@dataclasses.dataclass
class Normaliser:
    """Applies the norms of a cell within one step, and collects their statistics.

    Attributes:
      site_norms: {site: norm}.
      params: the parameters of the cell.
      context: the context of the step.
      statistics: {site: those of the batch} so far.
    """

    site_norms: dict[str, Norm]
    params: dict
    context: StepContext
    statistics: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __call__(self, site: str, a: jax.Array) -> jax.Array:
        """Normalise a [..., N], the values at a site, in float32 at least as a is."""
        norm = self.site_norms.get(site)
        if norm is None:
            return a
        params = site_params(self.params, site)
        given = (self.context.statistics or {}).get(site)
        context = self.context._replace(statistics=given)
        y, found = norm.apply(params, a, context)
        if found is not None and not norm.has_statistics:
            raise ValueError(
                f"{type(norm).__name__}.apply returns statistics, which a norm with "
                "has_statistics = True has"
            )
        if found is not None:
            self.statistics[site] = found
        return add_row(y, params, "bias")


def site_params(params: dict, site: str) -> dict:
    """Return the parameters of one site, by their short names.

    Args:
      params: parameters of all sites.
      site: name of the site.

    >>> site_params({"gain_x": 1, "gain_h": 2, "bias": 3}, "h")
    {'gain': 2}
    """
    found = {}
    for name in PARAMETERS:
        if f"{name}_{site}" in params:
            found[name] = params[f"{name}_{site}"]
    return found
