"""Which files a stability run looks at: those of ``stability_files``, and those named on the command line."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

__all__ = ["Files"]


class Files:
    """The gate of the collection: all else is passed over unread, ordinary tests and their conftests too.

    Args:
        config: Of the session; its ``python_files``, and its arguments where they came from ``testpaths``,
            are replaced, so that pytest's own collection goes on from there.

    Raises:
        pytest.UsageError: A pattern of ``stability_files`` is not a glob relative to rootdir.
    """

    def __init__(self, config: pytest.Config) -> None:
        if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            config.args[:] = [str(config.rootpath)]
        named = [Path(os.path.normpath(config.invocation_params.dir / arg.split("::", 1)[0])) for arg in config.args]
        self.open = bool(config.getoption("pyargs"))
        declared = _declared(config.rootpath, config.getini("stability_files"))
        # whole paths: pytest rewrites the asserts of every module that matches, torch's thousands too for *.py
        config.getini("python_files")[:] = [glob.escape(str(path)) for path in sorted(declared)]
        paths = {*declared, *named}
        self.wanted = paths | {parent for path in paths for parent in path.parents}

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Pass over what leads to no stability file."""
        return None if self.open or collection_path in self.wanted else True


def _declared(rootdir: Path, patterns: list[str]) -> set[Path]:
    found: set[Path] = set()
    for pattern in patterns:
        try:
            found |= {path for path in rootdir.glob(pattern) if path.suffix == ".py" and path.is_file()}
        except (ValueError, NotImplementedError) as error:
            raise pytest.UsageError(
                f"stability_files: {pattern!r} must be a glob relative to rootdir ({error})"
            ) from error
    return {path for path in found if path.name != "conftest.py"}
