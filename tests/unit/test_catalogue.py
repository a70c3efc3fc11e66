from __future__ import annotations

import json
from pathlib import Path

import pytest

from stabilitysuite.catalogue import place, read_calibration, write_calibration
from stabilitysuite.errors import RecordError

from .test_calibration import calibration, tally


def test_a_record_is_a_small_file_that_comes_back(tmp_path: Path) -> None:
    one = calibration(claims=(tally(values=(0.5, float("inf"), -1e-7)),))
    path = write_calibration(tmp_path / "new", one)
    assert path == tmp_path / "new" / "net" / "trains.json"
    assert read_calibration(tmp_path / "new", "net/trains") == one
    assert '"values": [0.5, "inf", -1e-07]' in path.read_text()
    assert max(map(len, path.read_text().splitlines())) < 400
    assert path.stat().st_mode & 0o044


def test_no_record_is_none(tmp_path: Path) -> None:
    assert read_calibration(tmp_path / "missing", "net/trains") is None


@pytest.mark.parametrize("name", ["cases[a/b]", "cases[../../x]", "cases[.]", "cases[a b]", "cases[ä%2F]"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    assert place(tmp_path, f"net/{name}").parent == tmp_path / "net"
    assert place(tmp_path, f"net/{name}") != place(tmp_path, "net/cases[a%2Fb]")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', "\x00"])
def test_a_spoilt_record_is_an_error_with_its_place(tmp_path: Path, text: str) -> None:
    path = write_calibration(tmp_path, calibration())
    path.write_text(text)
    with pytest.raises(RecordError, match=r"net.trains\.json cannot be read: .*calibrate the case again"):
        read_calibration(tmp_path, "net/trains")


def test_a_writer_that_fails_leaves_the_old_record_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_calibration(tmp_path, calibration())
    before = path.read_text()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RecordError, match=r"cannot be written: .*No space left"):
        write_calibration(tmp_path, calibration(seeds=12, claims=(tally(12),)))
    assert path.read_text() == before
    assert [one.name for one in path.parent.iterdir()] == ["trains.json"]
    assert json.loads(before)["seeds"] == 30
