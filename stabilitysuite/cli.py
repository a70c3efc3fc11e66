"""The command ``stabilitysuite``: what is wanted besides ``pytest --stability`` itself.

Verbs that need cases go through pytest, so that there is one loader and one selection.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import click

__all__ = ["main"]

PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.group()
@click.version_option(package_name="stabilitysuite")
def main() -> None:
    """Stability cases for neural networks; to run them: pytest --stability."""


@main.command(context_settings=PASSED_ON)
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def controls(pytest_args: tuple[str, ...]) -> None:
    """Run each case's control in its place: does the suite see what it must see?

    PYTEST_ARGS are handed to pytest; its exit code comes back.
    """
    import pytest

    sys.exit(pytest.main(["--stability", "--stability-controls", *pytest_args]))


@main.command(context_settings=PASSED_ON)
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def calibrate(pytest_args: tuple[str, ...]) -> None:
    """Run many seeds of each case and write its calibration record: is it admitted as a gate?

    PYTEST_ARGS, such as a case, -k, -n 2 or --stability-calibration-seeds, are handed to pytest; its exit code
    comes back. Records go to the folder that stability_calibration names.
    """
    import pytest

    sys.exit(pytest.main(["--stability", "--stability-calibrate", *pytest_args]))


@main.command("list", context_settings=PASSED_ON)
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
def list_cases(pytest_args: tuple[str, ...]) -> None:
    """List the cases of all tiers: id, tier, seeds, expected seconds, and what each says.

    PYTEST_ARGS, such as a file, -k or --stability-tier, are handed to pytest; its exit code comes back.
    """
    import pytest

    from stabilitysuite.plugin.listing import Listing

    args = ["--stability", "--stability-tier", "paper", "--collect-only", "-qq", *pytest_args]
    sys.exit(pytest.main(args, plugins=[Listing()]))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("stability-results"))
def report(folder: Path) -> None:
    """Print the table of the newest session in FOLDER (default: stability-results)."""
    from stabilitysuite.errors import RecordError
    from stabilitysuite.report.row import Row
    from stabilitysuite.report.terminal import run_again, table
    from stabilitysuite.store import newest, read, unfinished

    try:
        records = read(folder, session=newest(folder))
        left = unfinished(folder)
    except RecordError as error:
        raise click.ClickException(str(error)) from error
    columns = shutil.get_terminal_size((100, 24)).columns
    rows = [Row.of(record) for record in records]
    _say(table(rows, width=columns))
    _say(run_again(rows))
    _say(f"never finished: {one.id}, started {one.started} in session {one.session}" for one in left)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
