"""Files that are replaced in one step: a kill at any moment leaves the old content or the new one."""

import os
import tempfile
from pathlib import Path

# Names of files and folders that are not complete yet begin with it.
TEMPORARY_PREFIX = ".incoming-"


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file, readable by its owner only, in one step; a failure leaves the old file and nothing beside it.

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
