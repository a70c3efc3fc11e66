from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from ci import github
from stabilitysuite.claims.finding import Finding, Verdict
from stabilitysuite.record import Record
from stabilitysuite.store import Session, newest, unfinished

ROOT = Path(__file__).parents[3]
Run = Callable[..., subprocess.CompletedProcess[str]]


def record(verdict: Verdict = "violated", *, id: str = "warmup/warm", says: str = "it converges") -> Record:
    found = Finding(
        arm="",
        claim="converges",
        verdict=verdict,
        number="0 of 3 seeds (3 stalled), worst progress 0.01",
        value=0.01,
        interval=None,
        threshold="progress at least 0.5 in every seed",
        margin=-0.49,
        margin_unit="difference",
        seeds=(1, 2, 3),
        values=(0.01, 0.02, 0.03),
    )
    return Record(
        id=id,
        case={"says": says, "expect": []},
        digest="0123456789ab",
        sources={},
        control=False,
        status="judged",
        findings=(found,),
        traces=(),
        message="",
        environment={},
        started="2026-01-02T03:04:05+00:00",
        seconds=1.0,
        cpu_seconds=1.0,
        file="cases/warmup.py",
        line=12,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stability-results"


def write(folder: Path, *records: Record, session: str = "one", lost: tuple[str, ...] = ()) -> None:
    writer = Session(folder, session, "main")
    for one in records:
        writer.started(one.id)
        writer.record(one)
    for name in lost:
        writer.started(name)


@pytest.fixture
def publish(tmp_path: Path, folder: Path) -> Run:
    """Run the command, inside GitHub Actions or elsewhere, with the runner's files in the temporary folder."""

    def run(*arguments: str, where: Literal["actions", "terminal"] = "actions") -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
        files = {f"GITHUB_{name}": tmp_path / name for name in ("STEP_SUMMARY", "OUTPUT", "ENV", "STATE")}
        if where == "actions":
            kept |= {"GITHUB_ACTIONS": "true"} | {name: str(path) for name, path in files.items()}
            for path in files.values():
                path.touch()
        words = [sys.executable, "-m", "ci.publish", *(arguments or [str(folder)])]
        return subprocess.run(words, cwd=ROOT, env=kept, capture_output=True, text=True, encoding="utf-8", check=False)

    return run


def test_in_actions_it_writes_summary_annotation_and_outputs(tmp_path: Path, folder: Path, publish: Run) -> None:
    write(folder, record(), record("holds", id="warmup/cold"))
    (tmp_path / "STEP_SUMMARY").write_text("written before\n")
    done = publish()
    assert (done.returncode, done.stderr) == (0, "")
    summary = (tmp_path / "STEP_SUMMARY").read_text(encoding="utf-8")
    assert summary.startswith("written before\n### ❌ Stability: 2 cases: 1 holds, 1 violated\n")
    (line,) = done.stdout.splitlines()
    head, _, message = line.removeprefix("::error ").partition("::")
    properties = dict(item.split("=", 1) for item in head.split(","))
    assert properties["title"] == "warmup/warm%3A violated"
    assert (properties["file"], properties["line"]) == ("cases/warmup.py", "12")
    assert message.startswith("converges: VIOLATED, 0 of 3 seeds (3 stalled), worst progress 0.01, wanted")
    outputs = (tmp_path / "OUTPUT").read_text(encoding="utf-8").splitlines()
    assert [line.partition("<<")[0] for line in outputs[::3]] == [
        "cases",
        "violated",
        "errors",
        "undecided",
        "unfinished",
    ]
    assert outputs[1::3] == ["2", "1", "0", "0", "0"]


def test_elsewhere_it_prints_the_summary_and_nothing_else(folder: Path, publish: Run) -> None:
    write(folder, record())
    done = publish(where="terminal")
    assert done.returncode == 0
    assert done.stdout.startswith("### ❌ Stability: 1 case: 1 violated\n")
    assert "::error" not in done.stdout


INJECTION = "x\r\n::error::owned\n::add-mask::e\n ::stop-commands::t ##[add-mask]e %0A::warning::f | <img src=y> @me"


def test_no_text_of_a_case_becomes_a_command(tmp_path: Path, folder: Path, publish: Run) -> None:
    write(folder, record(says=INJECTION, id=f"warmup/{INJECTION}"))
    done = publish()
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()  # one command, and no other line that the runner could read
    assert line.startswith("::error title=warmup/x %3A%3Aerror%3A%3Aowned")
    assert "%250A" in line
    assert done.stderr == ""
    assert "owned" not in (tmp_path / "OUTPUT").read_text(encoding="utf-8")
    summary = (tmp_path / "STEP_SUMMARY").read_text(encoding="utf-8")
    assert "<img" not in summary.partition("<details>")[0]


def test_a_case_that_never_ended_is_named(tmp_path: Path, folder: Path, publish: Run) -> None:
    write(folder, record("holds"), lost=("deep/killed",))
    publish()
    assert "**1 case never came to an end** (killed, out of memory, or out of time): deep/killed" in (
        (tmp_path / "STEP_SUMMARY").read_text(encoding="utf-8")
    )


def test_the_newest_session_is_published_and_an_older_one_on_demand(folder: Path, publish: Run) -> None:
    write(folder, record(), session="older")
    write(folder, record("holds"), session="newer")
    for path, year in ((folder.glob("session-older-*"), "2025"), (folder.glob("session-newer-*"), "2026")):
        (file,) = path
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        lines = [line | {"time": f"{year}-01-01T00:00:00+00:00"} if "time" in line else line for line in lines]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert newest(folder) == "newer"
    assert "1 case: 1 holds" in publish(where="terminal").stdout
    assert "1 case: 1 violated" in publish(str(folder), "--session", "older", where="terminal").stdout


def test_an_empty_session_says_so(folder: Path, publish: Run) -> None:
    folder.mkdir()
    done = publish(where="terminal")
    assert (done.returncode, done.stdout) == (0, "### Stability: no records\n")


def test_a_missing_folder_is_refused_with_what_to_do(folder: Path, publish: Run) -> None:
    done = publish()
    assert done.returncode == 2
    assert done.stderr == (
        f"ci.publish: there is no session folder {folder}: run pytest --stability first, or name another one\n"
    )


def test_an_unknown_session_is_refused_with_the_newest(folder: Path, publish: Run) -> None:
    write(folder, record())
    done = publish(str(folder), "--session", "two")
    assert done.returncode == 2
    assert "holds no session two; the newest is one" in done.stderr


def test_a_broken_folder_is_refused_and_its_content_cannot_start_a_command(folder: Path, publish: Run) -> None:
    folder.mkdir()
    line = record().to_json() | {"format": 1}
    line["findings"][0]["verdict"] = "\n::add-mask::e ##[add-mask]e"
    head = {"kind": "session", "session": "one", "worker": "main", "pid": 1}
    lines = [head, {"kind": "record", "record": line}]
    (folder / "session-one-main-1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    done = publish()
    assert done.returncode == 2
    assert done.stdout == ""
    (message,) = done.stderr.splitlines()
    assert message.startswith("ci.publish: ")
    assert "##[" not in message


def test_without_a_summary_file_it_says_so_and_still_annotates(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ci.publish import main

    write(folder, record())
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main([str(folder)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "GITHUB_STEP_SUMMARY is not set" in first
    assert second.startswith("::error ")


def test_an_output_file_that_is_gone_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "gone"))
    github.set_outputs({"cases": "1"})
    assert not (tmp_path / "gone").exists()


def test_without_the_toolkit_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ci.publish import main

    write(folder, record())
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setitem(sys.modules, "actions_toolkit", None)
    assert main([str(folder)]) == 2
    assert "pip install 'stabilitysuite[github]'" in capsys.readouterr().err


def test_a_case_of_a_process_of_another_machine_counts_as_ended(folder: Path) -> None:
    write(folder, lost=("deep/killed",))  # by this process, which is alive
    assert unfinished(folder) == []
    assert [one.id for one in unfinished(folder, ended=True)] == ["deep/killed"]


def test_newest_of_nothing_is_nothing(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    assert newest(tmp_path / "missing") is None
