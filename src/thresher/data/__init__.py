"""Raw rows → feature ids → batches.

`read`: files → raw rows. `encode`: raw rows → feature ids in an `EncodedTable`. `batches`: table → tensors.
`datasets`: named data sets. `config`: the settings; `schema`: the meaning of the columns; `summary`: for display.
"""
