"""Logs on standard error: plain lines for people, JSON lines (`--json-output`) for machines."""

import json
import logging
import sys
import time

LOGGER = logging.getLogger("headrace_server")


class _PlainFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, rank: int | None = None) -> None:
        whose = "" if rank is None else f"[rank {rank}] "
        super().__init__(f"%(asctime)s.%(msecs)03dZ %(levelname)s {whose}%(message)s", "%Y-%m-%dT%H:%M:%S")


class _JsonFormatter(_PlainFormatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "timestamp": f"{self.formatTime(record, self.datefmt)}.{record.msecs:03.0f}Z",
            "level": record.levelname,
            "target": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure(json_output: bool, rank: int | None = None) -> None:
    """Send this package's logs, and warnings of the libraries below it, to standard error.

    `rank` is put before plain lines, for people who have several on one screen; who reads JSON knows whose they are.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if json_output else _PlainFormatter(rank))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # Whoever reads JSON lines chooses by their level; a person is spared the details.
    LOGGER.setLevel(logging.DEBUG if json_output else logging.INFO)
