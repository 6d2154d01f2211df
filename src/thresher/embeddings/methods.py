"""The methods Thresher ships, in one list: importing this module registers them. A new method adds its line here."""

from thresher.embeddings import (
    autodim,
    darts_emb,
    dnis,
    hashing,
    l1_projection,
    magnitude,
    mde,
    mgqe,
    nis,
    pep,
    quantised,
    quotient_remainder,
    uniform,
)

__all__ = [
    "autodim",
    "darts_emb",
    "dnis",
    "hashing",
    "l1_projection",
    "magnitude",
    "mde",
    "mgqe",
    "nis",
    "pep",
    "quantised",
    "quotient_remainder",
    "uniform",
]
