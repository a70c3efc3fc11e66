"""What the user asked for, from the command line and the configuration file, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from stabilitysuite.calibrate import FACTOR
from stabilitysuite.case import TIERS, Tier
from stabilitysuite.errors import MeasurementError, nearest
from stabilitysuite.plugin import SETTINGS

__all__ = ["Options", "Policy", "check_device"]

Policy = Literal["neutral", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of a session."""

    tier: Tier
    """The highest tier that runs."""
    seeds: int | None
    """Number of seeds of every case; each case's own where ``None``."""
    seed: tuple[int, ...]
    """The only seeds to run; empty for those of the case."""
    device: str
    """``cpu``, ``cuda`` or ``cuda:N``."""
    threads: int
    """torch threads."""
    budget: float | None
    """Wall-clock seconds for one case."""
    out: Path
    """The session folder."""
    undecided: Policy
    """Whether an undecided case fails the session."""
    controls: bool
    """Whether controls run in place of the cases."""
    calibration: Path | None
    """Folder of the calibration records; ``None`` where none are kept and every case gates."""
    calibrate: bool
    """Whether cases are calibrated in place of being judged."""
    calibration_seeds: int | None
    """Seeds of a calibration; each case's default where ``None``."""
    calibration_factor: float
    """Change of the learning rate in a calibration, above 1."""

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """The settings of this session: the command line wins over the configuration file.

        Raises:
            pytest.UsageError: A value cannot be; the message names the setting and what to write instead.
        """
        given = {setting.name: _Given(config, setting.name) for setting in SETTINGS}
        if given["seeds"].value is not None and given["seed"].value:
            raise pytest.UsageError(
                f"{given['seeds'].where} and {given['seed'].where} are both given: "
                "a number of seeds, or the seeds themselves, not both"
            )
        _check_calibrate(given)
        return cls(
            tier=given["tier"].choice(TIERS),
            seeds=given["seeds"].positive(None),
            seed=given["seed"].whole_numbers(),
            device=given["device"].device(),
            threads=given["threads"].positive(1),
            budget=given["budget"].positive(None),
            out=given["out"].folder(config) or config.rootpath / "stability-results",
            undecided=given["undecided"].choice(get_args(Policy)),
            controls=bool(given["controls"].value),
            calibration=given["calibration"].folder(config),
            calibrate=bool(given["calibrate"].value),
            calibration_seeds=given["calibration-seeds"].positive(None),
            calibration_factor=given["calibration-factor"].above_one(FACTOR),
        )

    def allows(self, tier: Tier) -> bool:
        """Whether cases of that tier run."""
        return TIERS.index(tier) <= TIERS.index(self.tier)

    def words(self) -> str:
        """In a few words, for the head of a session."""
        seeds = f"{self.seeds} seeds a case" if self.seeds else "each case's own seeds"
        if self.seed:
            seeds = f"seed {', '.join(map(str, self.seed))} only"
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        place = ", controls in place of the cases" if self.controls else ""
        if self.calibrate:
            seeds = f"{self.calibration_seeds} seeds a case" if self.calibration_seeds else "each case's own seeds"
            place = ", calibration in place of the cases"
        return f"tier {self.tier}, {self.device}, {threads}, {seeds}{place}"


def _check_calibrate(given: Mapping[str, _Given]) -> None:
    """Refuse what cannot go with a calibration, and a calibration without a place to keep its records."""
    if not given["calibrate"].value:
        return
    if not given["calibration"].value:
        raise pytest.UsageError(
            "--stability-calibrate writes a record for each case: say where, with --stability-calibration DIR or "
            "stability_calibration in the configuration"
        )
    if given["controls"].value:
        raise pytest.UsageError("--stability-calibrate and --stability-controls are both given: one after the other")
    for name in ("seeds", "seed"):
        if given[name].value and given[name].where.startswith("--"):
            raise pytest.UsageError(
                f"{given[name].where}: a calibration draws seeds of its own, use --stability-calibration-seeds N"
            )


class _Given:
    """One setting as it was given, and where."""

    def __init__(self, config: pytest.Config, name: str) -> None:
        setting = next(setting for setting in SETTINGS if setting.name == name)
        self.where = setting.option
        self.value: Any = config.getoption(setting.ini)
        if self.value is None:
            self.where = f"{setting.ini} in {config.inipath.name if config.inipath else 'the configuration'}"
            try:
                self.value = config.getini(setting.ini)
            except (TypeError, ValueError, pytest.UsageError) as error:
                raise pytest.UsageError(f"{self.where}: {error}") from error

    def choice(self, known: tuple[Any, ...]) -> Any:
        if self.value is None:
            return known[0]
        if self.value not in known:
            raise pytest.UsageError(f"{self.where}: {self.value!r} is not known: {nearest(self.value, known)}")
        return self.value

    def positive(self, default: Any) -> Any:
        if self.value is None:
            return default
        if not self.value > 0:
            raise pytest.UsageError(f"{self.where}: {self.value} is too few, it must be greater than zero")
        return self.value

    def above_one(self, default: float) -> float:
        if self.value is None:
            return default
        if not 1 < self.value < math.inf:
            raise pytest.UsageError(f"{self.where}: {self.value} is no factor away, give one above 1, such as 1.4 or 2")
        return float(self.value)

    def folder(self, config: pytest.Config) -> Path | None:
        """Relative to rootdir; ``None`` where none is given.

        pytest looks for its rootdir before it knows the options of plugins, and takes whatever follows a space and is
        there for a place to collect from: a folder elsewhere would move the rootdir, in the workers at the latest.
        """
        if not self.value:
            return None
        here = config.invocation_params
        if self.where in here.args and not (here.dir / self.value).resolve().is_relative_to(here.dir.resolve()):
            raise pytest.UsageError(
                f"{self.where} {self.value}: write {self.where}={self.value}; pytest takes a folder after a space for "
                "one to collect from, and would look for its configuration there"
            )
        return config.rootpath / str(self.value)

    def whole_numbers(self) -> tuple[int, ...]:
        try:
            seeds = tuple(int(one) for one in self.value or ())
        except ValueError as error:
            raise pytest.UsageError(f"{self.where}: a seed is a whole number: {error}") from error
        for seed in seeds:
            if seed < 0:
                raise pytest.UsageError(f"{self.where}: a seed is a whole number from 0, not {seed}")
        return tuple(dict.fromkeys(seeds))

    def device(self) -> str:
        name = str(self.value or "cpu")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
            raise pytest.UsageError(f"{self.where}: {name!r} is not a device: use cpu, cuda or cuda:N")
        return name


def check_device(name: str) -> None:
    """Refuse a device that this machine lacks, before anything is collected; ``cpu`` is always there.

    Raises:
        pytest.UsageError: torch does not see it.
    """
    if name == "cpu":
        return
    from stabilitysuite.lab.train import usable_device

    try:
        usable_device(name)
    except MeasurementError as error:
        raise pytest.UsageError(f"--stability-device: {error}") from error
