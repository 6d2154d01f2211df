"""What a search by rows holds, and what a step of it allocates: a few tables, and nothing else of a table's size."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils._python_dispatch import TorchDispatchMode

from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.models.fm import Fm, FmConfig
from thresher.search.searcher import Searcher
from thresher.training.optimizers import OptimizerConfig, build_optimizer

NUM_FEATURES, DIM, BATCH = 80_000, 16, 32


class Allocations(TorchDispatchMode):
    """The largest tensor made inside that is no view of a tensor that was there before."""

    def __init__(self, before):
        super().__init__()
        self.before, self.largest = {tensor.untyped_storage().data_ptr() for tensor in before}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.numel():
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.before:
                    self.largest = max(self.largest, storage.nbytes() // tensor.element_size())
        return made


@pytest.mark.parametrize(
    ("granularity", "most_tables"), [("feature-dimension", 5), ("feature", 3), ("dimension", 3), ("field-dimension", 3)]
)
def test_a_search_holds_few_tables_and_a_step_makes_none(granularity, most_tables):
    torch.manual_seed(0)
    embedding = PepEmbedding([NUM_FEATURES // 4] * 4, PepConfig(embedding_dim=DIM, granularity=granularity))
    model = Fm(embedding, FmConfig())
    optimizer = build_optimizer(model, OptimizerConfig(updates="rows"))
    searcher = Searcher(model, [1000], steps=60, warmup_steps=5, every=10)
    offsets = torch.arange(4) * (NUM_FEATURES // 4)
    largest = []
    for step in range(58):
        ids = (torch.randint(NUM_FEATURES // 4, (BATCH, 4)) + offsets).int()
        labels = torch.rand(BATCH).round()
        states = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
        with Allocations([*model.parameters(), *model.buffers(), *states]) as made:
            optimizer.zero_grad(set_to_none=True)
            binary_cross_entropy_with_logits(model(ids), labels).backward()
            optimizer.step()
        searcher.step()
        if step > 48:  # by then thresholds have cut into the rows seen, and have their state
            largest.append(made.largest)
    held = sum(parameter.numel() for parameter in embedding.parameters())
    held += sum(
        value.numel()
        for parameter in embedding.parameters()
        for value in optimizer.state[parameter].values()
        if torch.is_tensor(value)
    )
    assert held <= most_tables * NUM_FEATURES * DIM + 8 * (NUM_FEATURES + DIM)
    assert max(largest) < NUM_FEATURES * DIM / 8  # rows of the batch; less than two numbers per row of the table
