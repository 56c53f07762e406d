"""The modules of all experiments keep their contract; pyright compares the types."""

from experiments import (
    attentive_reader,
    convnet,
    draw,
    handwriting,
    mnist,
    order_embeddings,
    sequential_mnist,
    skip_thoughts,
)
from experiments.attentive_reader import use as attentive_reader_use
from experiments.convnet import use as convnet_use
from experiments.draw import use as draw_use
from experiments.handwriting import use as handwriting_use
from experiments.mnist import use as mnist_use
from experiments.order_embeddings import use as order_embeddings_use
from experiments.sequential_mnist import use as sequential_mnist_use
from experiments.skip_thoughts import use as skip_thoughts_use
from experiments.skip_thoughts.triples import EqualLengths
from lnrepro.data.plan import BatchPlan, Plan
from lnrepro.engine.experiment import SizedModule, UseModule
from lnrepro.engine.loaded_run import LoadedRun
from tests.runs import EXPERIMENTS

MODULES: tuple[SizedModule, ...] = (
    attentive_reader,
    convnet,
    draw,
    handwriting,
    mnist,
    order_embeddings,
    sequential_mnist,
    skip_thoughts,
)
USES: tuple[UseModule, ...] = (
    attentive_reader_use,
    convnet_use,
    draw_use,
    handwriting_use,
    mnist_use,
    order_embeddings_use,
    sequential_mnist_use,
    skip_thoughts_use,
)
PLANS: tuple[BatchPlan, ...] = (
    Plan(7, 2, seed=3),
    EqualLengths([4, 3], 2, seed=3, buckets=(2, 3)),
)


def test_every_experiment_keeps_the_contract():
    assert len(MODULES) == len(USES) == len(EXPERIMENTS)
    for module, use in zip(MODULES, USES, strict=True):
        assert isinstance(module, SizedModule)
        assert issubclass(use.Model, LoadedRun)
