"""Prune a torch-rechub model with its own trainer and dict batches."""

import tempfile

import torch
from torch.utils.data import DataLoader
from torch_rechub.basic.features import SparseFeature
from torch_rechub.basic.initializers import RandomNormal
from torch_rechub.models.ranking import DCN
from torch_rechub.trainers import CTRTrainer
from torch_rechub.utils.data import TorchDataset

from thresher import Searcher, attach_, compact_, threshold_group

FIELDS, SIZE = ("user", "item", "hour", "device"), 60


def clicks(num_rows, seed):
    ids = torch.randint(SIZE, (num_rows, len(FIELDS)), generator=torch.Generator().manual_seed(seed))
    labels = ((ids[:, 0] % 3) == (ids[:, 1] % 3)).float()  # hour and device are noise
    columns = {name: ids[:, k] for k, name in enumerate(FIELDS)}
    return DataLoader(TorchDataset(columns, labels), batch_size=128, shuffle=seed == 1)


def new_trainer(epochs):
    torch.manual_seed(0)
    features = [SparseFeature(name, SIZE, embed_dim=16, initializer=RandomNormal(0, 0.05)) for name in FIELDS]
    model = DCN(features, n_cross_layers=2, mlp_params={"dims": [32], "dropout": 0.0})
    return trainer_of(model, epochs)


def trainer_of(model, epochs):
    settings = {"lr": 0.005, "weight_decay": 0.0}
    return CTRTrainer(model, optimizer_params=settings, n_epoch=epochs, model_path=tempfile.mkdtemp())


if __name__ == "__main__":
    train, test, epochs = clicks(8000, seed=1), clicks(2000, seed=2), 6
    dense = new_trainer(epochs=3)
    dense.fit(train)
    print(f"dense AUC {dense.evaluate(dense.model, test):.4f}")

    search = new_trainer(epochs)  # creates its optimizer, before attach_
    tables = attach_(search.model)
    search.optimizer.add_param_group(threshold_group(search.model))
    searcher = Searcher(search.model, budgets=["10%"], steps=epochs * len(train))
    search.optimizer.register_step_post_hook(lambda *_: searcher.step())
    search.fit(train)

    [ticket] = searcher.tickets
    ticket.apply_(search.model)
    pruned = trainer_of(search.model, epochs=3)
    pruned.fit(train)
    size = sum(table.num_parameters for table in compact_(pruned.model))
    print(f"pruned AUC {pruned.evaluate(pruned.model, test):.4f} with {size} parameters in {len(tables)} tables")
