"""Two yardsticks that are servers of our own: `python -m benchmarks.serving.yardsticks NAME PORT`.

`noop` is the cost of FastAPI itself: a decorated route that checks eight floats and answers their sum. `bare` is the
floor of the server: a constant without any framework. Both run as the service does, on uvicorn with its defaults.
"""

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

HOST = "127.0.0.1"
NOOP_PATH = "/predict?" + "&".join(f"{name}={value}.25" for value, name in enumerate("abcdefgh"))
_BODY = b'{"prediction":0.5}'


def make_noop() -> FastAPI:
    """A decorated route with eight float parameters."""
    app = FastAPI()

    @app.get("/predict")
    async def predict(  # noqa: PLR0917 it is what is measured
        a: float, b: float, c: float, d: float, e: float, f: float, g: float, h: float
    ) -> dict[str, float]:
        return {"prediction": a + b + c + d + e + f + g + h}

    return app


async def bare(scope: Any, _receive: Any, send: Any) -> None:
    """A constant."""
    if scope["type"] == "http":
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": _BODY})


def main(name: str, port: int) -> None:
    """Serve one of them until stopped."""
    uvicorn.run(
        make_noop() if name == "noop" else bare,
        host=HOST,
        port=port,
        access_log=False,
        log_level="error",
        loop="uvloop",
        http="httptools",
        lifespan="off",
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
