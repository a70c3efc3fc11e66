"""The calibration records of a repository: a folder beside the cases, one small file a case."""

from __future__ import annotations

import json
import os
import re
import urllib.parse
from pathlib import Path

from stabilitysuite.calibration import Calibration
from stabilitysuite.errors import RecordError

__all__ = ["place", "read_calibration", "write_calibration"]

NUMBERS = re.compile(r'\[\n\s+(?:(?:-?\d[\d.e+-]*|"-?(?:nan|inf)"),?\s+)+\]')
"""A list of numbers in indented JSON; no text in it can look so, as it has no line breaks."""


def place(folder: Path, case_id: str) -> Path:
    """Where the record of a case is kept: ``FOLDER/FILE STEM/NAME.json``.

    Args:
        folder: The folder of all records.
        case_id: ``file stem/name``.
    """
    stem, _, name = case_id.partition("/")
    # the key of a dict of cases may be any text, also one that leads out of the folder
    return folder / urllib.parse.quote(stem, safe=" ") / f"{urllib.parse.quote(name, safe='[]=,+ ')}.json"


def read_calibration(folder: Path, case_id: str) -> Calibration | None:
    """The record of a case; ``None`` where there is none.

    Args:
        folder: The folder of all records.
        case_id: ``file stem/name``.

    Raises:
        RecordError: There is a file, but no record that can be read in it.
    """
    path = place(folder, case_id)
    try:
        return Calibration.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecordError) as error:
        raise RecordError(f"{path} cannot be read: {error}; calibrate the case again") from error


def write_calibration(folder: Path, calibration: Calibration) -> Path:
    """Write the record of a case in place of an older one; whoever reads sees the whole old or the whole new one.

    Args:
        folder: The folder of all records, made when missing.
        calibration: The record.

    Returns:
        The file.

    Raises:
        RecordError: It cannot be written.
    """
    path = place(folder, calibration.id)
    text = json.dumps(calibration.to_json(), indent=1, allow_nan=False, ensure_ascii=False)
    text = NUMBERS.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error}; make room, or choose another folder") from error
    return path
