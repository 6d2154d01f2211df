"""Every method but PEP and the uniform table; a file holds a method's config, embedding, search and grid.

    bilevel.py           dnis, and the bilevel search of dnis, darts-emb and autodim
    candidate_sizes.py   darts-emb, autodim
    hashing.py           hash, double-hash, quotient-remainder
    l1_projection.py     l1-projection
    magnitude.py         magnitude, gradual-magnitude, iterative-magnitude
    mde.py, mgqe.py, nis.py, quantized.py: the methods of these names

A new method is listed in `embeddings/base.py` (`_BASELINES`) and, if it has a search of its own, in
`search/find_tickets.py` (`_MODULES`).
"""
