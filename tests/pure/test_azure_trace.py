"""Azure's CSV: what is read, and what is refused with its line number."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.azure_trace import TraceError, TraceRow, read_azure_csv, rows_of

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
FIRST = "2023-11-16 18:15:46.6805900,374,44"
SECOND = "2023-11-16 18:15:50.9951690,396,109"


def read(tmp_path: Path, text: str) -> list[TraceRow]:
    path = tmp_path / "trace.csv"
    path.write_bytes(text.encode())
    return read_azure_csv(path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "BOM"])
@pytest.mark.parametrize("end", [True, False], ids=["ended", "last line open"])
def test_rows_are_read_with_their_100_ns_digits(tmp_path, newline, mark, end):
    rows = read(tmp_path, mark + newline.join([HEADER, FIRST, SECOND]) + (newline if end else ""))

    assert [(row.prompt_tokens, row.output_tokens) for row in rows] == [(374, 44), (396, 109)]
    assert rows[1].stamp_ns - rows[0].stamp_ns == 4_314_579_000
    assert rows[0].stamp_ns % 1_000_000_000 == 680_590_000


@pytest.mark.parametrize(
    "stamp",
    ["2023-11-16 18:15:46", "2023-11-16T18:15:46", "2023-11-16 18:15:46+00:00", "2023-11-16 19:15:46.000+01:00"],
)
def test_stamps_without_fraction_or_with_an_offset_are_the_same_moment(stamp):
    assert next(rows_of([HEADER, f"{stamp},1,1"], "t")).stamp_ns == 1_700_158_546 * 10**9


def test_further_columns_and_another_order_are_accepted():
    lines = ["GeneratedTokens,Model,TIMESTAMP,ContextTokens", "5,gpt,2023-11-16 18:15:46.5,7"]

    assert [(r.prompt_tokens, r.output_tokens) for r in rows_of(lines, "t")] == [(7, 5)]


def test_a_request_of_no_tokens_asks_for_one():
    row = next(rows_of([HEADER, "2023-11-16 18:15:46,0,0"], "t"))

    assert (row.prompt_tokens, row.output_tokens) == (1, 1)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ["empty file", HEADER]),
        ([HEADER], ["no rows"]),
        (["TIMESTAMP,Tokens", FIRST], [":1:", "no column ContextTokens, GeneratedTokens"]),
        ([HEADER, FIRST, "2023-11-16 18:15:50.9,-3,4"], [":3:", "ContextTokens -3 is negative"]),
        ([HEADER, "2023-11-16 18:15:50.9,3,4.5"], [":2:", "GeneratedTokens '4.5' is not a whole number"]),
        ([HEADER, "2023-11-16 18:15:50.9,,4"], [":2:", "ContextTokens '' is not a whole number"]),
        ([HEADER, SECOND, FIRST], [":3:", "2023-11-16 18:15:46.6805900 is earlier"]),
        ([HEADER, "yesterday,3,4"], [":2:", "TIMESTAMP 'yesterday'"]),
        ([HEADER, "2023-11-16 18:15:50.,3,4"], [":2:", "TIMESTAMP"]),
        ([HEADER, FIRST, "", "2023-11-16 18:15:50.9,3"], [":4:", "2 fields, expected 3"]),
    ],
    ids=lambda value: "" if isinstance(value, list) and value and value[0].startswith(HEADER) else None,
)
def test_a_fault_is_told_with_its_line(lines, words):
    with pytest.raises(TraceError) as caught:
        list(rows_of(lines, "trace.csv"))

    assert str(caught.value).startswith("trace.csv:")
    for word in words:
        assert word in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path):
    with pytest.raises(TraceError, match=r"nope\.csv: cannot read: No such file"):
        read_azure_csv(tmp_path / "nope.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="not UTF-8"):
        read_azure_csv(tmp_path / "binary.csv")


SAMPLE = Path(__file__).parents[3] / "shared" / "traces" / "azure_llm_2023_conv_head2500.csv"


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the recorded sample is not part of the project")
def test_the_recorded_sample_is_read_whole():
    rows = read_azure_csv(SAMPLE)

    assert len(rows) == 2500
    assert (rows[-1].stamp_ns - rows[0].stamp_ns) / 1e9 == pytest.approx(527, abs=1)
