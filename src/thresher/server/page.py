"""The page at `/` and the documentation at `/docs`: files of this package, without resources of other servers."""

from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILES = {
    "/": ("page.html", "text/html"),
    "/docs": ("docs.html", "text/html"),
    "/static/page.js": ("page.js", "text/javascript"),
    "/static/docs.js": ("docs.js", "text/javascript"),
    "/static/style.css": ("style.css", "text/css"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    return [Route(path, _answer_with(name, kind), methods=["GET"]) for path, (name, kind) in FILES.items()]


def _answer_with(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(_read(name), media_type=kind, headers=HEADERS)

    return answer


@cache
def _read(name: str) -> bytes:
    return (Path(__file__).with_name("static") / name).read_bytes()
