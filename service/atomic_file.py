"""Files that are replaced in one step: a kill at any moment leaves the old content or the new one."""

import os
import tempfile
from pathlib import Path

# Prefix of the names of incomplete files and folders.
TEMPORARY_PREFIX = ".incoming-"


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file in one step; only its owner can read it. A failure leaves the old file and no other.

    Raises OSError.
    """
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=TEMPORARY_PREFIX, delete=False) as written:
            temporary = Path(written.name)
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
        temporary.replace(file)
    except OSError:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise
    sync(file.parent)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
