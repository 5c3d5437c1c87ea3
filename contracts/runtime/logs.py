"""Structured logs: a stable event name plus keys. JSON in containers, aligned text on a terminal.

Both renderers escape values, so no input can forge a line. Tracebacks show no local variables, and so no password.
"""

import logging
import sys

import structlog

from contracts.runtime.settings import SharedSettings


def configure_logs(settings: SharedSettings) -> None:
    """Send structlog's and the standard library's records to standard error in one format."""
    as_text = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    last: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(pad_event_to=28, exception_formatter=structlog.dev.plain_traceback)]
        if as_text
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=settings.log_level, force=True)
    # httpx logs each request of ours; our own records say as much.
    logging.getLogger("httpx").setLevel(logging.WARNING)
