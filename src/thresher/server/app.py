"""The ASGI application: routes, and what happens around each request (limits, errors, metrics, access log)."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from thresher.server.access_log import AccessLog
from thresher.server.bundles import BundleStore, ServedBundle
from thresher.server.config import ServerConfig
from thresher.server.decoding import content_kind, reply_kind
from thresher.server.limits import Slots, read_body
from thresher.server.memory import give_back, share_arena
from thresher.server.metrics import CONTENT_TYPE, Metrics
from thresher.server.openapi import openapi_document
from thresher.server.page import page_routes
from thresher.server.predictions import Answer, RankQuery, answer_predict, answer_rank
from thresher.server.replies import JSON, ClientGoneError, RequestError, error_response, json_response

logger = logging.getLogger("thresher.server")
CLIENT_GONE = 499  # logged only: the client is no longer there to read a status
Endpoint = Callable[[Request, dict[str, Any]], Awaitable[Response]]


class Server:
    """The state of one process, and its endpoints. `details` of a request go to the access log."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.store = BundleStore(config)
        self.metrics, self.log = Metrics(), AccessLog(enabled=config.access_log)
        self.slots = Slots(config.max_concurrent)
        self.ready = False

    async def predict(self, request: Request, details: dict[str, Any]) -> Response:
        explain = request.query_params.get("explain", "").lower() in ("1", "true", "yes")
        max_rows = self.config.max_rows
        return await self._compute(
            request,
            details,
            lambda bundle, body, kind, reply: answer_predict(
                bundle, body, kind, reply, explain=explain, max_rows=max_rows
            ),
            factor=10 if explain else 1,
        )

    async def rank(self, request: Request, details: dict[str, Any]) -> Response:
        query, max_rows = RankQuery.parse(request.query_params), self.config.max_rows
        return await self._compute(
            request, details, lambda bundle, body, kind, reply: answer_rank(bundle, body, kind, reply, query, max_rows)
        )

    async def _compute(
        self,
        request: Request,
        details: dict[str, Any],
        answer: Callable[[ServedBundle, bytes, str, str], Answer],
        factor: int = 1,
    ) -> Response:
        bundle = self._bundle(request)
        details["bundle"] = bundle.name
        kind = content_kind(request.headers.get("content-type", ""))
        reply = reply_kind(request.headers.get("accept", ""), kind)
        self.slots.take()
        try:
            body = await read_body(request, self.config.max_body_bytes, self.config.body_seconds)
            found = await self.slots.run(lambda: answer(bundle, body, kind, reply), factor * len(body))
        finally:
            self.slots.release()
        details |= {"rows": found.num_rows, "bytes": len(body)}
        self.metrics.rows.labels(bundle.name).inc(found.num_rows)
        self.metrics.unknown.labels(bundle.name).inc(found.num_unknown)
        if reply == JSON:
            return json_response(found.content)
        return Response(found.content, media_type=reply)

    def _bundle(self, request: Request) -> ServedBundle:
        name = request.query_params.get("bundle")
        bundle = self.store.find(name)
        if bundle is None:
            raise RequestError(404, f"no bundle {name!r}; the bundles are {', '.join(self.store.folders)}")
        return bundle

    async def health(self, request: Request, details: dict[str, Any]) -> Response:
        return json_response({"status": "ok"})

    async def is_ready(self, request: Request, details: dict[str, Any]) -> Response:
        bundles = {
            name: {"loaded_at": bundle.loaded_at, "reload_failed": self.store.failures.get(name)}
            for name, bundle in self.store.bundles.items()
        }
        return json_response({"ready": self.ready, "bundles": bundles}, 200 if self.ready else 503)

    async def show_metrics(self, request: Request, details: dict[str, Any]) -> Response:
        self.metrics.in_progress.set(self.slots.taken)
        return Response(self.metrics.write(), media_type=CONTENT_TYPE)

    async def list_bundles(self, request: Request, details: dict[str, Any]) -> Response:
        bundles = [bundle.describe() for bundle in self.store.bundles.values()]
        return json_response({"default": self.config.default_bundle, "bundles": bundles})

    async def schema(self, request: Request, details: dict[str, Any]) -> Response:
        bundle = self._bundle(request)
        content = {"bundle": bundle.name, "inputs": bundle.inputs, "example": bundle.example_row()}
        return json_response(content)

    async def openapi(self, request: Request, details: dict[str, Any]) -> Response:
        return json_response(openapi_document(self.store.bundles, self.config))

    async def load(self) -> None:
        share_arena()
        self.store.load_all()  # not in a thread, which would leave a larger heap behind
        give_back()
        for name, bundle in self.store.bundles.items():
            self.metrics.loaded_at.labels(name).set(bundle.loaded_at)
        self.ready = True

    async def watch_bundles(self) -> None:
        """Reload changed bundles until cancelled."""
        while True:
            await asyncio.sleep(self.config.reload_seconds)
            try:
                for name, worked in await run_in_threadpool(self.store.reload_changed):
                    self.metrics.reloads.labels(name, "ok" if worked else "failed").inc()
                    self.metrics.loaded_at.labels(name).set(self.store.bundles[name].loaded_at)
                    await run_in_threadpool(give_back)
            except Exception:
                logger.exception("looking for changed bundles failed")

    def endpoint(self, path: str, run: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint with metrics and log, which answers every error without a traceback."""
        seconds = self.metrics.seconds.labels(path)

        async def answer(request: Request) -> Response:
            start, details = time.perf_counter(), dict[str, Any]()
            try:
                response = await run(request, details)
            except RequestError as error:
                response = error_response(error)
                details["error"] = str(error)
            except ClientGoneError:
                response = Response(status_code=CLIENT_GONE)
            except Exception:
                logger.exception("%s %s failed", request.method, path)
                response = error_response(RequestError(500, "internal error; the log of the server has the details"))
            passed = time.perf_counter() - start
            seconds.observe(passed)
            self.metrics.requests.labels(path, response.status_code).inc()
            self.log.write(request, response.status_code, passed, details)
            return response

        return answer


def make_app(config: ServerConfig | None = None) -> Starlette:
    """The application, by default with the settings in the environment, as worker processes start it."""
    server = Server(config or ServerConfig.from_environment())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await server.load()
        watcher = asyncio.create_task(server.watch_bundles()) if server.config.reload_seconds else None
        try:
            yield
        finally:
            server.ready = False
            if watcher is not None:
                watcher.cancel()

    endpoints: list[tuple[str, str, Endpoint]] = [
        ("/predict", "POST", server.predict),
        ("/rank", "POST", server.rank),
        ("/health", "GET", server.health),
        ("/ready", "GET", server.is_ready),
        ("/metrics", "GET", server.show_metrics),
        ("/bundles", "GET", server.list_bundles),
        ("/schema", "GET", server.schema),
        ("/openapi.json", "GET", server.openapi),
    ]
    routes = [Route(path, server.endpoint(path, run), methods=[method]) for path, method, run in endpoints]
    return Starlette(
        routes=[*routes, *page_routes()], lifespan=lifespan, exception_handlers={HTTPException: _answer_http_error}
    )


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    return error_response(RequestError(error.status_code, str(error.detail), headers=error.headers))
