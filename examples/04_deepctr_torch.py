"""Prune a DeepCTR-Torch model with its own `compile`, `fit` and `predict`.

A hook of the optimizer steps the searcher, so this works with any trainer, also without callbacks.
"""

import torch
from deepctr_torch.inputs import SparseFeat
from deepctr_torch.models import DeepFM
from sklearn.metrics import roc_auc_score

from thresher import Searcher, attach_, compact_

FIELDS, SIZE, BATCH_SIZE = ("user", "item", "hour", "device"), 60, 128


def clicks(num_rows, seed):
    ids = torch.randint(SIZE, (num_rows, len(FIELDS)), generator=torch.Generator().manual_seed(seed))
    labels = ((ids[:, 0] % 3) == (ids[:, 1] % 3)).float()  # hour and device are noise
    return {name: ids[:, k].numpy() for k, name in enumerate(FIELDS)}, labels.numpy()


def new_model():
    torch.manual_seed(0)
    columns = [SparseFeat(name, SIZE, embedding_dim=16) for name in FIELDS]
    return DeepFM(columns, columns, dnn_hidden_units=(32,), l2_reg_embedding=0, init_std=0.05, seed=0)


def fit(model, epochs, prepare=lambda optimizer: None):
    model.compile("adam", "binary_crossentropy")
    for group in model.optim.param_groups:
        group["lr"] = 0.005
    prepare(model.optim)
    model.fit(*clicks(8000, seed=1), batch_size=BATCH_SIZE, epochs=epochs, verbose=0)
    inputs, labels = clicks(2000, seed=2)
    return roc_auc_score(labels, model.predict(inputs))


if __name__ == "__main__":
    print(f"dense AUC {fit(new_model(), epochs=3):.4f}")

    model, epochs = new_model(), 6
    tables = attach_(model)
    searcher = Searcher(model, budgets=["10%"], steps=epochs * (8000 // BATCH_SIZE))

    # `compile` is called after `attach_`, so its optimizer includes the thresholds
    fit(model, epochs, lambda optimizer: optimizer.register_step_post_hook(lambda *_: searcher.step()))
    [ticket] = searcher.tickets
    kept = {name: int(mask.sum()) for name, mask in ticket.masks.items()}
    print(f"ticket of {ticket.num_parameters} parameters in {len(tables)} tables: {kept}")
    pruned = new_model()
    ticket.apply_(pruned)
    print(f"pruned AUC {fit(pruned, epochs=3):.4f}, {sum(size.storage_bytes for size in compact_(pruned)):,} bytes")
