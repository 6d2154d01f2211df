"""What /predict and /rank compute, from a decoded body to a reply; runs without the network."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thresher.data.encode.dict_rows import NotPlainError
from thresher.data.table import EncodedRows
from thresher.errors import DataError, ForkedProcessError, ThresherError
from thresher.server.bundles import ServedBundle, count_unknown_values
from thresher.server.decoding import (
    check_rows,
    decode_json,
    encode_frame,
    encode_probabilities,
    json_rows,
    polars_errors,
)
from thresher.server.frame_reader import READER
from thresher.server.replies import JSON, RequestError
from thresher.serving.contributions import field_contributions

PROBABILITY = "probability"
MAX_EXPLAINED = 100  # rows; each costs one prediction for every field


@dataclass
class Answer:
    """The content of a reply: Python values for JSON, bytes in a bulk format; and what is logged of it."""

    content: Any
    num_rows: int
    num_unknown: int


def answer_predict(bundle: ServedBundle, body: bytes, kind: str, reply: str, *, explain: bool, max_rows: int) -> Answer:
    """Probabilities of the rows of a body; one row as an object gives one probability."""
    rows: list[Any] = []
    plain = _encode_plain(bundle, body, max_rows) if kind == JSON and not explain else None
    if plain is not None:
        encoded, single = plain
    elif kind == JSON:
        content = decode_json(body)
        rows, single = json_rows(content, max_rows), isinstance(content, Mapping)
        encoded = _checked(lambda: bundle.encode(rows))
    else:
        frame = _checked(lambda: READER.read(body, kind, bundle.schema.input_columns, max_rows))
        encoded, single = _checked(lambda: bundle.encoder.encode_frame(frame)), False
    probabilities = _checked(lambda: bundle.predictor.predict_rows(encoded))
    unknown = count_unknown_values(encoded, bundle.schema)
    if reply != JSON:
        if explain:
            raise RequestError(422, "explain needs a JSON reply")
        return Answer(encode_probabilities(probabilities, reply), len(probabilities), unknown)
    result: dict[str, Any] = {"bundle": bundle.name}
    result |= {PROBABILITY: float(probabilities[0])} if single else {"probabilities": probabilities.tolist()}
    if explain:
        if kind != JSON or len(rows) > MAX_EXPLAINED:
            raise RequestError(422, f"explain needs rows in JSON, at most {MAX_EXPLAINED}")
        explained = [_explain(bundle, row) for row in rows]
        result |= {"inputs": explained[0] if single else explained}
    return Answer(result, len(probabilities), unknown)


def _encode_plain(bundle: ServedBundle, body: bytes, max_rows: int) -> tuple[EncodedRows, bool] | None:
    """The ids of rows that have exactly the columns of the schema, and whether the body is a single row.

    None for bodies and values that need the slower way, or its error message.
    """
    found = bundle.row_decoder.cells(body)
    if found is None or not found[0]:
        return None
    cells, single = found
    check_rows(len(cells), max_rows)
    try:
        return _checked(lambda: bundle.dict_rows.encode_cells(cells)), single
    except NotPlainError:
        return None


def answer_rank(bundle: ServedBundle, body: bytes, kind: str, reply: str, query: "RankQuery", max_rows: int) -> Answer:
    """The most probable rows of each group."""
    from thresher.serving.ranking import top_k
    from thresher.serving.request_rows import rows_to_frame

    if kind == JSON:
        content = decode_json(body)
        if not isinstance(content, Mapping) or not isinstance(content.get("rows"), list):
            raise RequestError(422, "the body must be an object with the key rows, a list of rows")
        query = RankQuery.parse({name: content.get(name, getattr(query, name)) for name in ("k", "group", "keep")})
        rows = json_rows(content["rows"], max_rows)
        frame = _checked(lambda: rows_to_frame(rows, bundle.schema, also=query.columns))
    else:
        columns = tuple(dict.fromkeys([*bundle.schema.input_columns, *query.columns]))
        frame = _checked(lambda: READER.read(body, kind, columns, max_rows))
    counts = []

    def count(encoded: EncodedRows) -> None:
        counts.append(count_unknown_values(encoded, bundle.schema))

    parts: Iterator[Any] = iter([frame])
    best = _checked(lambda: top_k(bundle, parts, query.k, group=query.group, keep=query.keep, on_chunk=count))
    if reply != JSON:
        return Answer(encode_frame(best, reply), len(frame), sum(counts))
    return Answer({"bundle": bundle.name, "rows": best.to_dicts()}, len(frame), sum(counts))


@dataclass(frozen=True)
class RankQuery:
    """How many rows of each group, and the columns to copy."""

    k: int = 10
    group: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*([] if self.group is None else [self.group]), *self.keep)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> "RankQuery":
        """From a JSON body or a query string, whose values are text."""
        k, group, keep = values.get("k", 10), values.get("group"), values.get("keep") or ()
        if isinstance(k, str) and k.isdecimal() and len(k) < 10:
            k = int(k)
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise RequestError(422, f"k must be a number of at least 1, got {k!r}")
        if isinstance(keep, str):
            keep = [name for name in keep.split(",") if name]
        if not isinstance(keep, list | tuple) or not all(isinstance(name, str) for name in keep):
            raise RequestError(422, "keep must be a list of columns")
        if group is not None and not isinstance(group, str):
            raise RequestError(422, "group must be a column")
        return cls(k, group or None, tuple(keep))


def _explain(bundle: ServedBundle, row: Any) -> list[dict[str, Any]]:
    """The inputs of one row: value, whether it is known, contribution."""
    found = field_contributions(bundle, bundle.encode([row]))
    return [
        {
            "name": each.name,
            "column": each.column,
            "value": row.get(each.column),
            "state": "missing" if _is_missing(row.get(each.column)) and each.state != "known" else each.state,
            "contribution": each.contribution,
        }
        for each in found
    ]


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or value == [] or value != value


def _checked(work: Any) -> Any:
    """The result of `work`; errors of the data become replies with status 422."""
    try:
        return work()
    except DataError as error:
        raise RequestError.of_data(error) from None
    except ForkedProcessError as error:
        raise RequestError(500, str(error)) from None
    except (ThresherError, OverflowError) as error:
        raise _unreadable(error) from None
    except polars_errors() as error:
        raise _unreadable(error) from None


def _unreadable(error: BaseException) -> RequestError:
    first = str(error).partition("\n")[0][:300]
    return RequestError(422, f"the rows cannot be read: {first}")
