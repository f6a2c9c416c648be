"""Recordings: what each format's rows are read as, and what is refused, or skipped and counted, with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.traces.reader import Recording, read_trace, recording_of
from loadtest.traces.rows import TraceError, TraceRow

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
FIRST = "2023-11-16 18:15:46.6805900,374,44"
SECOND = "2023-11-16 18:15:50.9951690,396,109"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
MOON = '{"timestamp": 3000, "input_length": 700, "output_length": 5, "hash_ids": [0, 14]}'
SAMPLES = Path(__file__).parents[3] / "shared" / "traces"
recorded_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded samples are not part of the project")


def read(*lines: str, **options) -> Recording:
    return recording_of([line.encode() + b"\n" for line in lines], "t", **options)


def rows(*lines: str) -> tuple[TraceRow, ...]:
    return read(*lines).rows


def moon(**changes) -> str:
    return json.dumps({**json.loads(MOON), **changes})


FORMATS = {
    "azure": ([AZURE, FIRST, SECOND], [(0, 374, 44), (4_314_579_000, 396, 109)]),
    "burstgpt": (
        [BURST, "5,ChatGPT,472,18,490,Conversation log", "45.25,GPT-4,1087,230,1317,API log"],
        [(0, 472, 18), (40_250_000_000, 1087, 230)],
    ),
    "mooncake": ([MOON, moon(timestamp=3001.5, input_length=9, hash_ids=[])], [(0, 700, 5), (1_500_000, 9, 5)]),
}


@pytest.mark.parametrize("given", ["auto", "named"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "BOM"])
@pytest.mark.parametrize("end", [True, False], ids=["ended", "last line open"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_recording_is_read_whatever_its_line_ends(tmp_path, name, end, mark, newline, given):
    lines, expected = FORMATS[name]
    path = tmp_path / "recording"
    path.write_bytes((mark + newline.join(["", *lines]).lstrip("\n\r") + (newline * 2 if end else "")).encode())
    recording = read_trace(path, "auto" if given == "auto" else name)
    first_ns = recording.rows[0].stamp_ns

    assert [(row.stamp_ns - first_ns, row.prompt_tokens, row.output_tokens) for row in recording.rows] == expected
    assert (recording.skipped, recording.faults) == (0, ())


def test_azure_stamps_keep_their_100_ns_digits():
    assert rows(AZURE, FIRST)[0].stamp_ns == 1_700_158_546_680_590_000


@pytest.mark.parametrize(
    "stamp",
    ["2023-11-16 18:15:46", "2023-11-16T18:15:46", "2023-11-16 18:15:46+00:00", "2023-11-16 19:15:46.000+01:00"],
)
def test_azure_stamps_without_fraction_or_with_an_offset_are_the_same_moment(stamp):
    assert rows(AZURE, f"{stamp},1,1")[0].stamp_ns == 1_700_158_546 * 10**9


def test_hash_ids_stay_with_their_row():
    assert [row.hash_ids for row in rows(MOON, moon(hash_ids=[]))] == [(0, 14), ()]
    without = json.loads(MOON)
    del without["hash_ids"]
    assert rows(json.dumps(without))[0].hash_ids == ()


@pytest.mark.parametrize(
    ("lines", "tokens"),
    [
        (["GeneratedTokens,Model,TIMESTAMP,ContextTokens", "5,gpt,2023-11-16 18:15:46.5,7"], (7, 5)),
        (["Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens", '0,x,1,"GPT-4",100,10'], (100, 10)),
        ([moon(prompt="x", input_length=1, hash_ids=[3])], (1, 5)),
    ],
    ids=FORMATS,
)
def test_further_columns_and_another_order_are_accepted(lines, tokens):
    assert [(row.prompt_tokens, row.output_tokens) for row in rows(*lines)] == [tokens]


@pytest.mark.parametrize(
    "lines",
    [
        [AZURE, "2023-11-16 18:15:46,0,0"],
        [BURST, "5,ChatGPT,0,0,0,API log"],
        [moon(input_length=0, output_length=0, hash_ids=[])],
    ],
    ids=FORMATS,
)
def test_a_request_of_no_tokens_asks_for_one(lines):
    assert [(row.prompt_tokens, row.output_tokens) for row in rows(*lines)] == [(1, 1)]


FAULTS = [
    ("2023-11-16 18:15:50.9,-3,4", "ContextTokens -3 is negative"),
    ("2023-11-16 18:15:50.9,3,4.5", "GeneratedTokens '4.5' is not a whole number"),
    ("2023-11-16 18:15:50.9,3,1_0", "GeneratedTokens '1_0' is not a whole number"),
    ("2023-11-16 18:15:50.9,,4", "ContextTokens '' is not a whole number"),
    ("2023-11-16 18:15:50.9,3,10000001", "GeneratedTokens 10000001 is out of range; allowed: 0 to 10000000"),
    (f"2023-11-16 18:15:50.9,3,{'9' * 5000}", "GeneratedTokens 99999999999999999999 is out of range"),
    ("2023-11-16 18:15:46.6,3,4", "recorded 0.08059 s earlier than the row before it"),
    ("yesterday,3,4", "TIMESTAMP 'yesterday' is not of the form 2023-11-16 18:15:46.6805900"),
    ("2023-11-16 18:15:50.,3,4", "TIMESTAMP '2023-11-16 18:15:50.' is not of the form"),
    ("1969-11-16 18:15:50,3,4", "TIMESTAMP 1969-11-16 18:15:50 is negative"),
    ("2023-11-16 18:15:50.9,3", "2 fields, expected 3"),
    ('2023-11-16 18:15:50.9,3,"4', "not CSV: unexpected end of data"),
    ("2023-11-16 18:15:50.9,3,\x00", "GeneratedTokens '\\x00' is not a whole number"),
]
BURST_FAULTS = [
    ("soon,GPT-4,1,1,2,API log", "Timestamp 'soon' is not a number of seconds"),
    ("nan,GPT-4,1,1,2,API log", "Timestamp 'nan' is not a number of seconds"),
    ("-5,GPT-4,1,1,2,API log", "Timestamp -5 is negative"),
    ("999999999999,GPT-4,1,1,2,API log", "Timestamp 999999999999 is out of range"),
    ("4.5,GPT-4,1,1,2,API log", "recorded 0.5 s earlier than the row before it"),
    ("9,GPT-4,1,-1,0,API log", "Response tokens -1 is negative"),
    ("9,GPT-4,x,1,1,API log", "Request tokens 'x' is not a whole number"),
    ("9,GPT-4,1", "3 fields, expected 6"),
]
MOON_FAULTS = [
    (MOON[:-20], "not JSON: "),
    ("[1]", "list is not an object"),
    ("[" * 100_000, "not JSON: "),
    ('{"timestamp": 3000, "hash_ids": []}', "no input_length, output_length"),
    (moon(timestamp="3000"), "timestamp '3000' is not a number of milliseconds"),
    (moon(timestamp=True), "timestamp True is not a number of milliseconds"),
    (moon(timestamp=float("inf")), "timestamp inf is not a number of milliseconds"),
    (moon(timestamp=-1), "timestamp -1 is negative"),
    (moon(timestamp=2999), "recorded 0.001 s earlier than the row before it"),
    (moon(timestamp=10**30), f"timestamp {10**30} is out of range"),
    (moon(input_length=True), "input_length True is not a whole number"),
    (moon(input_length=7.0), "input_length 7.0 is not a whole number"),
    (moon(output_length=-1), "output_length -1 is negative"),
    (moon(output_length=None), "output_length None is not a whole number"),
    (moon(hash_ids=5), "hash_ids is not a list of whole numbers"),
    (moon(hash_ids=[1, True]), "hash_ids is not a list of whole numbers"),
    (moon(hash_ids=[1, -1]), "hash_ids is not a list of whole numbers from 0 on"),
    (moon(hash_ids=[1, 2, 3]), "3 hash_ids, but the prompt has 2 blocks of 512 tokens"),
]
CASES = [
    *((FORMATS["azure"][0][:2], *case) for case in FAULTS),
    *((FORMATS["burstgpt"][0][:2], *case) for case in BURST_FAULTS),
    *(([MOON], *case) for case in MOON_FAULTS),
]


@pytest.mark.parametrize(("good", "bad", "words"), CASES, ids=[words for _, _, words in CASES])
def test_a_fault_is_told_with_its_line_or_skipped_and_counted(good, bad, words):
    lines = [good[0], "", *good[1:], bad, good[-1]]
    where = f"t:{len(lines) - 1}: "

    with pytest.raises(TraceError) as caught:
        read(*lines)
    assert str(caught.value).startswith(where + words)

    recording = read(*lines, skip_bad=True)
    assert recording.rows == rows(*good, good[-1])
    assert recording.skipped == 1
    assert recording.faults[0].startswith(where + words)


def test_skipped_rows_are_all_counted_and_the_first_told():
    recording = read(AZURE, *["x,1,1"] * 5, FIRST, skip_bad=True)

    assert (len(recording.rows), recording.skipped) == (1, 5)
    assert [fault.split(":")[1] for fault in recording.faults] == ["2", "3", "4"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_recording_cut_at_any_byte_is_read_up_to_there_or_refused_with_its_last_line(name):
    lines, _ = FORMATS[name]
    content = "\n".join(lines).encode()
    whole = recording_of(content.splitlines(keepends=True), "t").rows
    for size in range(len(content)):
        last, told, found = content[:size].count(b"\n") + 1, "", ()
        try:
            found = recording_of(content[:size].splitlines(keepends=True), "t").rows
        except TraceError as error:
            told = str(error)
        if found:  # the last number may have lost digits
            assert found[:-1] == whole[: len(found) - 1]
            assert found[-1].stamp_ns == whole[len(found) - 1].stamp_ns
        else:
            assert told.startswith((f"t:{last}: ", "t: no rows after the header", "t: empty file"))


@pytest.mark.parametrize("skip_bad", [False, True], ids=["", "skipping"])
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "t: empty file; expected azure: TIMESTAMP,ContextTokens,GeneratedTokens; burstgpt: "),
        (["", " "], "t: empty file"),
        ([AZURE], "t: no rows after the header"),
        (["TIMESTAMP,Tokens", FIRST], "t:1: no column ContextTokens, GeneratedTokens; expected " + AZURE),
        (["", "Timestamp,Model,Request tokens", "1,2,3"], "t:2: no column Response tokens; expected Timestamp,"),
        (["a,b", "1,2"], "t:1: 'a,b' begins no recording of a known format; expected azure: "),
    ],
)
def test_a_file_without_rows_or_columns_cannot_be_skipped_over(lines, words, skip_bad):
    with pytest.raises(TraceError) as caught:
        read(*lines, skip_bad=skip_bad)

    assert str(caught.value).startswith(words)


def test_a_file_of_nothing_but_broken_rows_is_told():
    with pytest.raises(TraceError, match=r"t: no rows; all 2 were skipped, the first: t:2: TIMESTAMP 'x'"):
        read(AZURE, "x,1,1", "y,1,1", skip_bad=True)


def test_a_named_format_is_taken_at_its_word():
    with pytest.raises(TraceError, match="t:1: no column TIMESTAMP"):
        read(BURST, "5,ChatGPT,472,18,490,API log", trace_format="azure")
    with pytest.raises(TraceError, match="t:1: not JSON"):
        read(AZURE, trace_format="mooncake")


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path):
    with pytest.raises(TraceError, match=r"nope\.csv: cannot read: No such file"):
        read_trace(tmp_path / "nope.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match=r"binary\.csv:1: not UTF-8 text"):
        read_trace(tmp_path / "binary.csv")
    recording = recording_of([AZURE.encode(), FIRST.encode(), b"\xe9t\xe9,1,1"], "t", skip_bad=True)
    assert recording.faults == ("t:3: not UTF-8 text: invalid continuation byte",)


@recorded_samples
@pytest.mark.parametrize(
    ("name", "count", "lasts_s", "first", "last"),
    [
        ("azure_llm_2023_code_head1500.csv", 1500, 604.19847, (4808, 10), (1186, 16)),
        ("azure_llm_2023_conv_head2500.csv", 2500, 527.339592, (374, 44), (1248, 423)),
        ("mooncake_fast25_conversation_head240.jsonl", 240, 84.0, (6758, 500), (6809, 196)),
    ],
)
def test_a_recorded_sample_is_read_whole(name, count, lasts_s, first, last):
    found = read_trace(SAMPLES / name).rows

    assert len(found) == count
    assert (found[-1].stamp_ns - found[0].stamp_ns) / 1e9 == pytest.approx(lasts_s, abs=1e-6)
    assert (found[0].prompt_tokens, found[0].output_tokens) == first
    assert (found[-1].prompt_tokens, found[-1].output_tokens) == last


@recorded_samples
def test_each_block_of_the_mooncake_sample_has_an_id():
    found = read_trace(SAMPLES / "mooncake_fast25_conversation_head240.jsonl").rows

    assert all(len(row.hash_ids) == -(-row.prompt_tokens // 512) for row in found)
    assert found[-1].hash_ids == (0, *range(6263, 6276))
