"""The pages about the API itself: its operations, and the types of its problems."""

from typing import Any

from fastapi import APIRouter, Depends
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from service.dashboard.operations import list_components, list_operations
from service.web.html import answer_page
from service.web.parameters import takes_only
from service.web.problems import HTTP_KINDS, KINDS


def add_reference_pages(router: APIRouter, links: dict[str, Any]) -> None:
    """Add `/docs` and `/problems/…`; `links` are those of every page."""

    plain = [Depends(takes_only())]

    @router.get("/docs", dependencies=plain)
    async def get_docs(request: Request) -> HTMLResponse:
        document = request.app.openapi()
        address = str(request.base_url).rstrip("/")
        shown: dict[str, Any] = {
            "operations": list_operations(document, address),
            "components": list_components(document),
        }
        return answer_page("docs.html", request.url.path, **links, document=document, **shown)

    @router.get("/problems/{name}", dependencies=plain)
    async def get_problem(name: str, request: Request) -> HTMLResponse:
        for error, kind in KINDS.items():
            if kind.name == name:
                said = (error.__doc__ or "").strip()
                return answer_page("problem.html", request.url.path, kind=kind, text=said)
        for kind in HTTP_KINDS.values():
            if kind.name == name:
                return answer_page("problem.html", request.url.path, kind=kind, text="")
        raise HTTPException(404, "There is no such type of problem.")
