"""How many values of predicted rows the model does not know: many mean a wrong file, or a model out of date."""

import numpy as np
from numpy.typing import NDArray

from thresher.data.encode.row_encoder import EncodedRows, count_unknown
from thresher.data.schema import Schema

SHOWN_FIELDS = 5
WORTH_A_WORD = 0.01  # of the rows
SUSPICIOUS = 0.5


class UnknownValues:
    """Counts the rows whose value is the field's unknown feature, for each single-valued field, chunk by chunk."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.fields = schema, schema.single_fields
        self._counts: NDArray[np.int64] = np.zeros(len(self.fields), np.int64)
        self.num_rows = 0

    def add(self, rows: EncodedRows) -> None:
        self._counts += count_unknown(rows.ids, self.schema)
        self.num_rows += len(rows.ids)

    def words(self) -> str | None:
        """The fields with the most, in a sentence; None if there is nothing to say."""
        shares = self._counts / max(self.num_rows, 1)
        worst = [at for at in np.argsort(-shares, kind="stable") if shares[at] >= WORTH_A_WORD]
        if not worst:
            return None
        told = ", ".join(f"{self.fields[at].column} {shares[at]:.0%}" for at in worst[:SHOWN_FIELDS])
        more = f", and {len(worst) - SHOWN_FIELDS} more columns" if len(worst) > SHOWN_FIELDS else ""
        doubt = "; is this the right file, or the model out of date?" if shares[worst[0]] >= SUSPICIOUS else ""
        return f"Values the model does not know (new, or too rare in training), of the rows: {told}{more}{doubt}"
