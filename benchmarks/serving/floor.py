"""The floor of any service built of these libraries: an interpreter that imports them and does nothing.

`CORE` are those without which there is no answer. `DESIGN` are all that the design names: also the store, the server,
settings, logs, metrics, the registry's client and the command line.
"""

import subprocess
from collections.abc import Sequence

from benchmarks.serving.servers import cpu_seconds, memory_bytes
from contracts.runtime.python_process import python_command

CORE = ("fastapi", "numpy", "onnxruntime")
DESIGN = (
    *CORE,
    *("sqlalchemy.dialects.postgresql.psycopg", "psycopg", "uvicorn", "uvloop", "httptools", "pydantic_settings"),
    *("structlog", "prometheus_client", "httpx", "httpcore", "msgspec", "typer"),
)


def measure_imports(modules: Sequence[str]) -> tuple[float, int]:
    """CPU seconds, and proportional set size in bytes, of an interpreter that has imported these."""
    program = f"import sys, {', '.join(modules)}; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(python_command("-c", program), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return cpu_seconds(process.pid), memory_bytes(process.pid)
