"""The door: what every pytest run of every project loads once the package is installed.

It holds the options and nothing else; all of the plugin is imported when ``--stability`` is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from stabilitysuite.plugin.fixture import Stability

__all__ = ["DEFAULT_FILES", "SETTINGS", "Setting"]

DEFAULT_FILES = ("stability/*.py", "stability_*.py")


class Setting(NamedTuple):
    """One setting: an option ``--stability-NAME`` and its ini twin ``stability_NAME``."""

    name: str
    kind: type[str] | type[int] | type[float] | type[bool]
    metavar: str
    help: str
    many: bool = False
    """May be given several times."""

    @property
    def option(self) -> str:
        """The name on the command line."""
        return f"--stability-{self.name}"

    @property
    def ini(self) -> str:
        """The name in a configuration file, and of the parsed option."""
        return f"stability_{self.name.replace('-', '_')}"

    @property
    def ini_type(self) -> Any:
        """Its type in a configuration file, as pytest calls it."""
        kinds = {str: "string", int: "int", float: "float", bool: "bool"}
        return "args" if self.many else kinds[self.kind]


SETTINGS = (
    Setting("tier", str, "TIER", "Run the cases up to this tier: quick (default), full or paper"),
    Setting("seeds", int, "N", "Number of seeds of every case, in place of each case's own number"),
    Setting("seed", int, "SEED", "Run every case on this seed only; may be repeated", many=True),
    Setting("device", str, "DEVICE", "Where to train: cpu (default), cuda or cuda:N"),
    Setting("threads", int, "N", "torch threads of each process (default: 1)"),
    Setting("budget", float, "SECONDS", "Wall-clock seconds that one run of a case may take (default: no limit)"),
    Setting("out", str, "DIR", "Folder of the records, relative to rootdir (default: stability-results)"),
    Setting("undecided", str, "POLICY", "What an undecided case is: neutral (default) or fail"),
    Setting("controls", bool, "", "Run each case's control in its place: it passes when it is caught"),
    Setting(
        "calibration",
        str,
        "DIR",
        "Folder of calibration records, relative to rootdir; a case without one then "
        "does not gate (default: none, all cases gate)",
    ),
    Setting("calibrate", bool, "", "Calibrate each case in its place and write its record: it passes when admitted"),
    Setting("calibration-seeds", int, "N", "Seeds of a calibration (default: 30, and 12 from 100 layers on)"),
    Setting("calibration-factor", float, "X", "Change of the learning rate in a calibration (default: 1.4)"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the switch, and every setting both as an option and for configuration files."""
    group = parser.getgroup("stability", "training stability")
    group.addoption("--stability", action="store_true", help="Run the stability cases and nothing else")
    for setting in SETTINGS:
        if setting.kind is bool:
            group.addoption(setting.option, action="store_true", default=None, help=setting.help)
        else:
            action = "append" if setting.many else "store"
            group.addoption(
                setting.option, action=action, type=setting.kind, metavar=setting.metavar, help=setting.help
            )
        parser.addini(setting.ini, f"{setting.help} ({setting.option}).", type=setting.ini_type, default=None)
    files = "Globs, relative to rootdir, of the files that declare stability cases."
    parser.addini("stability_files", files, type="args", default=list(DEFAULT_FILES))


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin when it is asked for, else refuse a stability file that is named without the switch."""
    if config.getoption("stability"):
        from stabilitysuite.plugin.session import start

        start(config)
    elif config.args_source is pytest.Config.ArgsSource.ARGS:
        for path in _stability_files_named(config):
            raise pytest.UsageError(
                f"{path} declares stability cases, which an ordinary test run leaves alone: add --stability"
            )


def _stability_files_named(config: pytest.Config) -> Iterator[str]:
    """Arguments that only this plugin would collect from; a foreign file of such a name is left alone."""
    patterns = config.getini("stability_files")
    for arg in config.args:
        path = Path(os.path.normpath(config.invocation_params.dir / arg.split("::", 1)[0]))
        if path.suffix != ".py" or not path.is_file() or not path.is_relative_to(config.rootpath):
            continue
        if any(path.match(pattern) for pattern in config.getini("python_files")):
            continue
        relative = path.relative_to(config.rootpath)
        if any(relative.match(pattern) for pattern in patterns) and b"stabilitysuite" in path.read_bytes():
            yield arg.split("::", 1)[0]


@pytest.fixture
def stability(request: pytest.FixtureRequest) -> Stability:
    """Trains one declared run inside a test of a stability file: ``stability.run(model=..., steps=...)``."""
    if not request.config.getoption("stability"):
        pytest.fail("'stability' trains, as only a stability run does: add --stability", pytrace=False)
    from stabilitysuite.plugin.fixture import Stability
    from stabilitysuite.plugin.options import Options

    return Stability(Options.of(request.config))
