"""With planted signal and noise fields, the ticket keeps mostly signal fields."""

from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.embeddings.pep import PepConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.run.run_models import new_model
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.training.optimizers import OptimizerConfig


def test_a_ticket_keeps_mostly_signal_fields(tmp_path):
    rows = SyntheticConfig(num_rows=60_000, num_signal_fields=4, num_noise_fields=4, field_size=100, seed=3)
    source = build_source(DataConfig(source="synthetic", synthetic=rows))
    table = encode(source, tmp_path / "encoded")
    config = RunConfig(embedding=PepConfig(embedding_dim=8))
    data = SplitBatches.of(table, 512, seed=0)
    search = SearchConfig(warmup_epochs=2, plan_epochs=4, optimizer=OptimizerConfig(learning_rate=1e-2))
    (ticket,) = find_tickets(new_model(config, table, config.embedding), data, ["5%"], search)

    sizes = ticket.sizes()["embedding"]
    by_field = dict(zip(table.schema.field_names, sizes.split(list(table.schema.field_sizes)), strict=True))
    kept = {name: int(sizes.sum()) for name, sizes in by_field.items()}
    signal, noise = ([kept[name] for name in names] for names in (source.signal_fields, source.noise_fields))
    assert sum(signal) > 5 * sum(noise)
    assert min(signal) > max(noise)
