"""The unsharded modules of TorchRec: bags of a keyed jagged tensor."""

from typing import Any

import torch
from torch import Tensor, nn

from compatibility_models.case import BATCH, FIELD_SIZES, WIDTH, Case, fields

NAMES = [f"field_{k}" for k in range(len(FIELD_SIZES))]


def cases() -> list[Case]:
    import torchrec
    from torchrec.models.deepfm import SimpleDeepFMNN
    from torchrec.models.dlrm import DLRM

    def batch(step: int) -> tuple[Any, ...]:
        ids = fields(step)
        values = ids.T.reshape(-1)
        keyed = torchrec.KeyedJaggedTensor(
            keys=NAMES, values=values, lengths=torch.ones(len(values), dtype=torch.int64)
        )
        return torch.rand(BATCH, 4, generator=torch.Generator().manual_seed(step)), keyed

    def bags() -> Any:
        configs = [
            torchrec.EmbeddingBagConfig(
                name=f"t_{name}", embedding_dim=WIDTH, num_embeddings=size, feature_names=[name]
            )
            for name, size in zip(NAMES, FIELD_SIZES, strict=True)
        ]
        return torchrec.EmbeddingBagCollection(tables=configs)

    def sequences() -> Any:
        configs = [
            torchrec.EmbeddingConfig(name=f"t_{name}", embedding_dim=WIDTH, num_embeddings=size, feature_names=[name])
            for name, size in zip(NAMES, FIELD_SIZES, strict=True)
        ]
        return torchrec.EmbeddingCollection(tables=configs)

    def of_bags(model: nn.Module, dense: Tensor, keyed: Any) -> Tensor:
        found: Tensor = model(keyed).values()
        return found

    def of_sequences(model: nn.Module, dense: Tensor, keyed: Any) -> Tensor:
        return torch.cat([jagged.values() for jagged in model(keyed).values()])

    return [
        Case("EmbeddingBagCollection", bags, batch, of_bags),
        Case("EmbeddingCollection", sequences, batch, of_sequences),
        Case("DLRM", lambda: DLRM(bags(), 4, [8, WIDTH], [8, 1]), batch),
        Case("DeepFM", lambda: SimpleDeepFMNN(4, bags(), 8, 4), batch),
    ]
