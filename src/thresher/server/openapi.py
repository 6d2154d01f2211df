"""The OpenAPI document, with the columns of every bundle."""

from collections.abc import Mapping
from typing import Any

import thresher
from thresher.server.bundles import ServedBundle
from thresher.server.config import ServerConfig
from thresher.server.decoding import FILE, PARQUET, STREAM
from thresher.server.replies import JSON

TYPES: Mapping[str, Any] = {
    "text": {"type": ["string", "number", "boolean", "null"]},
    "number": {"type": ["number", "string", "null"]},
    "list": {"type": ["array", "string", "null"], "items": {"type": ["string", "number"]}},
}
BINARY = {"schema": {"type": "string", "format": "binary"}}


def openapi_document(bundles: Mapping[str, ServedBundle], config: ServerConfig) -> dict[str, Any]:
    rows = {name: _row_schema(bundle) for name, bundle in bundles.items()}
    row = {"anyOf": [{"$ref": f"#/components/schemas/{_component(name)}"} for name in rows]}
    examples = {
        name: {"summary": f"one row of {name}", "value": bundle.example_row()} for name, bundle in bundles.items()
    }
    named = {
        "name": "bundle", "in": "query", "schema": {"type": "string", "enum": list(bundles)},
        "description": f"Which bundle answers; by default {config.default_bundle}.",
    }  # fmt: skip
    explain = {
        "name": "explain", "in": "query", "schema": {"type": "boolean", "default": False},
        "description": "Also what each input contributes: the change of the log-odds if it were unknown.",
    }  # fmt: skip
    rank_query = [_text_query("k", "Rows of each group."), _text_query("group", "Raw column to group by."),
                  _text_query("keep", "Columns to copy, separated by commas.")]  # fmt: skip
    predict_body = {"oneOf": [row, {"type": "array", "items": row, "maxItems": config.max_rows}]}
    rank_body = {
        "type": "object",
        "required": ["rows"],
        "properties": {
            "rows": {"type": "array", "items": row, "maxItems": config.max_rows},
            "k": {"type": "integer", "minimum": 1, "default": 10},
            "group": {"type": ["string", "null"]},
            "keep": {"type": "array", "items": {"type": "string"}},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Thresher", "version": thresher.__version__, "description": "Predictions of pruned models."},
        "paths": {
            "/predict": {"post": _operation(
                "Probabilities of rows", [named, explain], predict_body, _predicted(), examples)},
            "/rank": {"post": _operation("The most probable rows of each group", [named, *rank_query], rank_body, {
                "type": "object", "properties": {"bundle": {"type": "string"}, "rows": {"type": "array"}}})},
            "/health": _get("Whether the process runs"),
            "/ready": _get("Whether all bundles are loaded"),
            "/metrics": _get("Metrics for Prometheus", "text/plain"),
            "/bundles": _get("Model, sizes and metrics of every bundle"),
            "/schema": _get("The columns of a row, with an example", parameters=[named]),
        },
        "components": {"schemas": {
            **{_component(name): schema for name, schema in rows.items()},
            "Error": {"type": "object", "required": ["error"], "properties": {
                "error": {"type": "string"}, "column": {"type": "string"},
                "row": {"type": "integer", "description": "From 0."}}},
        }},
    }  # fmt: skip


def _component(name: str) -> str:
    """A name of a component: letters, digits, `.`, `-` and `_`."""
    return "row-" + "".join(char if char.isascii() and (char.isalnum() or char in ".-_") else "_" for char in name)


def _row_schema(bundle: ServedBundle) -> dict[str, Any]:
    columns = {}
    for entry in bundle.inputs:
        columns[entry["column"]] = {**TYPES[entry["kind"]], "examples": entry.get("values", [])[:3]}
    return {"type": "object", "properties": columns, "required": list(columns), "additionalProperties": True}


def _text_query(name: str, text: str) -> dict[str, Any]:
    description = f"{text} For Arrow and Parquet; in JSON it is a key of the body."
    return {"name": name, "in": "query", "schema": {"type": "string"}, "description": description}


def _predicted() -> dict[str, Any]:
    probability = {"type": "number", "minimum": 0, "maximum": 1}
    return {
        "type": "object",
        "properties": {
            "bundle": {"type": "string"},
            "probability": probability,
            "probabilities": {"type": "array", "items": probability},
            "inputs": {"type": "array", "description": "With explain."},
        },
    }


def _operation(
    summary: str, parameters: list[Any], body: Any, result: Any, examples: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    bulk = {STREAM: BINARY, FILE: BINARY, PARQUET: BINARY}
    content = {JSON: {"schema": body, **({"examples": examples} if examples else {})}, **bulk}
    errors = {
        "400": "The body cannot be decoded.", "404": "There is no such bundle.", "408": "The body came too slowly.",
        "413": "Too many bytes or rows.", "415": "An unknown Content-Type.",
        "422": "The rows do not fit the schema; column and row say where.", "503": "Busy; see Retry-After.",
    }  # fmt: skip
    error = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "summary": summary,
        "parameters": parameters,
        "requestBody": {"required": True, "content": content},
        "responses": {
            "200": {"description": "The result.", "content": {JSON: {"schema": result}, **bulk}},
            **{status: {"description": text, "content": error} for status, text in errors.items()},
        },
    }


def _get(summary: str, kind: str = JSON, parameters: list[Any] | None = None) -> dict[str, Any]:
    response = {"description": summary, "content": {kind: {"schema": {}}}}
    return {"get": {"summary": summary, "parameters": parameters or [], "responses": {"200": response}}}
