from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabilitysuite.report.row import Row
from stabilitysuite.report.terminal import shortened, style_of, styled_table, table

PROGRESS = "1 of 3 seeds (2 stalled, 1 converged), worst progress 0.0123"
BRANCH = "branch_ratio (max over sublayers) = 0.0563 at layer 3 ffn (99 % interval 0.0551 to 0.0575)"


def row(id: str, verdict: str | None, number: str = "", margin: str = "-", **more: Any) -> Row:
    plain: dict[str, Any] = {
        "says": "",
        "status": "judged",
        "control": False,
        "threshold": "",
        "seeds": 3,
        "seconds": 8.14,
        "message": "",
        "file": "",
        "line": 0,
        "reproduce": "",
    }
    return Row(**plain | {"id": id, "verdict": verdict, "number": number, "margin": margin} | more)


ROWS = [
    row("warmup/post_ln_cold", "holds", "3 of 3 seeds (3 stalled), worst progress 0.0231", "+0.0769"),
    row("warmup/post_ln_warm", "violated", PROGRESS, "-0.488"),
    row("gau/gau_branch", "holds", BRANCH, "x1.15", seeds=16, seconds=0.42),
    row("place/collapse", "undecided", "token_cosine of the last layer at step 60 = 0.731", "-0.0312"),
    row("my_gpt/own", None, status="error", message="token_cosine has no data for seed 12", seconds=112.25),
    row("my_gpt/cuda", None, status="skipped", message="needs a GPU", seconds=0.0),
    row("depth/ratio", "violated", "gradient_norm of the first layer = nan", "-"),
]


AT_100 = """\
verdict    case                 deciding number                               margin  seeds  seconds
---------  -------------------  -------------------------------------------  -------  -----  -------
violated   depth/ratio          gradient_norm of the first layer = nan             -      3      8.1
violated   warmup/post_ln_warm  1 of 3 seeds, worst progress 0.0123           -0.488      3      8.1
error      my_gpt/own           token_cosine has no data for seed 12                           112.2
undecided  place/collapse       token_cosine of the last layer … = 0.731     -0.0312      3      8.1
skipped    my_gpt/cuda          needs a GPU                                                      0.0
holds      gau/gau_branch       branch_ratio = 0.0563 at layer 3 ffn           x1.15     16      0.4
holds      warmup/post_ln_cold  3 of 3 seeds, worst progress 0.0231          +0.0769      3      8.1

7 cases: 2 hold, 2 violated, 1 error, 1 undecided, 1 skipped
"""


AT_60 = """\
verdict    case                 deciding number       margin
---------  -------------------  -------------------  -------
violated   depth/ratio          … = nan                    -
violated   warmup/post_ln_warm  … progress 0.0123     -0.488
error      my_gpt/own           token_cosine has no data…
undecided  place/collapse       … = 0.731            -0.0312
skipped    my_gpt/cuda          needs a GPU
holds      gau/gau_branch       … = 0.0563             x1.15
holds      warmup/post_ln_cold  … progress 0.0231    +0.0769

7 cases: 2 hold, 2 violated, 1 error, 1 undecided, 1 skipped
"""


def test_table_at_100_columns() -> None:
    assert table(ROWS) == AT_100.splitlines()


def test_table_at_60_columns() -> None:
    assert table(ROWS, width=60) == AT_60.splitlines()


def test_a_table_is_no_wider_than_its_content() -> None:
    lines = table([row("a/b", "holds", "progress 0.93", "+0.43")])
    assert lines == [
        "verdict  case  deciding number  margin  seeds  seconds",
        "-------  ----  ---------------  ------  -----  -------",
        "holds    a/b   progress 0.93     +0.43      3      8.1",
        "",
        "1 case: 1 holds",
    ]


def test_a_table_of_controls_says_caught() -> None:
    lines = table([row("a/b", "violated", "p 0.1", "-1", control=True), row("a/c", "holds", "p 0.9", control=True)])
    assert [line.split()[0] for line in lines[2:4]] == ["not", "caught"]
    assert lines[-1] == "2 controls: 1 caught, 1 not caught"


def test_a_long_name_keeps_its_end() -> None:
    names = [f"stability_of_the_longest_file_name/two_hundred_layers_of_deepnorm_{end}" for end in ("cold", "warm")]
    lines = table([row(name, "holds", PROGRESS, "+0.43") for name in names], width=80)
    assert max(map(len, lines)) <= 80
    assert "…" in lines[2]
    assert "norm_cold " in lines[2]
    assert "norm_warm " in lines[3]


def test_nothing_to_show_is_said() -> None:
    assert table([]) == ["no cases"]


def test_each_line_has_the_colour_of_its_row() -> None:
    styles = [line.style for line in styled_table(ROWS)]
    assert styles == ["", "", "red", "red", "red", "yellow", "yellow", "green", "green", "", "red"]
    assert style_of(row("a/b", "holds", control=True)) == "red"
    assert style_of(row("a/b", "violated", control=True)) == "green"


@pytest.mark.parametrize(
    ("number", "room", "short"),
    [
        (PROGRESS, 60, PROGRESS),
        (PROGRESS, 40, "1 of 3 seeds, worst progress 0.0123"),
        (PROGRESS, 30, "… worst progress 0.0123"),
        (PROGRESS, 18, "… progress 0.0123"),
        (PROGRESS, 8, "… 0.0123"),
        (PROGRESS, 7, "…"),
        (BRANCH, 60, "branch_ratio (max over sublayers) = 0.0563 at layer 3 ffn"),
        (BRANCH, 40, "branch_ratio = 0.0563 at layer 3 ffn"),
        (BRANCH, 26, "branch_ratio = 0.0563"),
        (BRANCH, 12, "… = 0.0563"),
        ("gradient_norm / gradient_norm of the first layer = inf", 30, "gradient_norm / … = inf"),
        ("gradient_norm of the last layer at step 60 = nan", 30, "gradient_norm … = nan"),
    ],
)
def test_a_number_loses_words_before_its_figure(number: str, room: int, short: str) -> None:
    assert shortened(number, room) == short


WORDS = st.sampled_from(
    ["progress", "of", "the", "layer", "0.0123", "1e-05", "-4.2", "=", "seeds,", "(2", "nan)", "at"]
)


@given(st.lists(WORDS, min_size=1, max_size=14).map(" ".join), st.integers(1, 60))
def test_no_figure_is_ever_cut_and_no_line_too_long(number: str, room: int) -> None:
    short = shortened(number, room)
    assert len(short) <= room
    figures = re.findall(r"[-\d.e]*\d", number)
    assert all(figure in figures for figure in re.findall(r"[-\d.e]*\d", short))


@given(st.integers(56, 140), st.lists(st.sampled_from(ROWS), min_size=1, max_size=5))
def test_no_row_is_wider_than_the_terminal(width: int, rows: list[Row]) -> None:
    assert all(len(line) <= width for line in table(rows, width=width)[:-1])
