"""From logs on a disk to the page: tables by a run, the analytics of them, and `muster report` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from tests.pipeline.hand_made import HandMadeLog, at

from muster_cli.main import cli

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("few_rows")]
HOUR = 3600


def write_logs(root: Path) -> None:
    log = HandMadeLog(0)
    log.generation(0, "payments", 1, {"a": [0], "b": [1]})
    for minute in range(60):
        log.commit(60 * minute + 1, "payments", 0, 100 * minute)
        if minute < 20:
            log.commit(60 * minute + 1, "payments", 1, 100 * minute)
    log.commit(HOUR, "payments", 0, 50)
    log.commit(HOUR + 1, "later", 0, 1)
    log.write(root)
    other = HandMadeLog(3)
    other.commit(5, "<b>simple</b>", 0, 7)
    other.data += bytes(40)
    other.write(root)


def succeeded(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def test_tables_of_logs_and_the_page_of_a_moment(muster: CliRunner, tmp_path: Path) -> None:
    logs, tables, ends = tmp_path / "logs", tmp_path / "tables", tmp_path / "ends.csv"
    write_logs(logs)
    lines = [f"orders,{partition},{at(second)},6000" for partition in (0, 1) for second in (0, HOUR)]
    lines.append(f"orders,0,{at(HOUR + 60)},999999")  # later than the moment that is asked for
    ends.write_text("\n".join(["topic,partition,timestamp_ms,end_offset", *lines]))
    made = succeeded(muster.invoke(cli, ["pipeline", "tables", str(logs), "--output", str(tables), "--json"]))
    told = json.loads(made.stdout)
    assert told["kinds"] == {"group_metadata": 1, "offset_commit": 83}
    assert (told["run"], told["problems"]) == (1, 1)
    page, plots = tmp_path / "page.html", tmp_path / "plots"
    arguments = ["report", str(tables), "--at", "2023-11-14T23:13:20", "--end-offsets", str(ends), "--json"]
    written = succeeded(muster.invoke(cli, [*arguments, "--output", str(page), "--plots", str(plots)])).stdout
    slugs = ("lag", "commits", "regressions", "rebalances", "load", "what-if")
    assert json.loads(written) == {"report": str(page), "plots": [str(plots / f"{slug}.png") for slug in slugs]}
    html = page.read_text()
    for text in (
        "1 stretch of the log could not be read",
        "1 group with members and lag made no progress for 10min",
        "1 time an offset went back: 5,850 records to read again",
        "as of 2023-11-14 23:13:20 UTC",
        "&lt;b&gt;simple&lt;/b&gt;",
        ">5,950<",
    ):
        assert text in html, text
    assert ">later<" not in html


def test_stream_goes_on_with_what_comes_until_it_is_interrupted(
    muster: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path / "logs")
    log = tmp_path / "logs" / "__consumer_offsets-0" / f"{0:020d}.log"
    more = HandMadeLog(0)
    more.offset = 1000
    more.commit(HOUR + 2, "payments", 0, 60)
    looks = iter(["more", "nothing"])

    def wait(seconds: float) -> None:
        assert seconds == 0.5
        match next(looks, "interrupt"):
            case "more":
                log.write_bytes(log.read_bytes() + more.data)
            case "interrupt":
                raise KeyboardInterrupt

    monkeypatch.setattr("muster_cli.pipeline.command.time", SimpleNamespace(sleep=wait))
    arguments = [
        "pipeline",
        "stream",
        str(tmp_path / "logs"),
        "--output",
        str(tmp_path / "t"),
        "--every",
        "0.5",
        "--json",
    ]
    result = muster.invoke(cli, arguments)
    assert result.exit_code == 130, result.output
    assert result.stderr.endswith("Interrupted. The tables are those of the last run that ended.\n")
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["run"], each["kinds"]["offset_commit"]) for each in told] == [(1, 83), (2, 84)]


def test_mistakes_are_one_line_that_says_what_to_do(muster: CliRunner, tmp_path: Path) -> None:
    result = muster.invoke(cli, ["report", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {tmp_path} holds no tables: `muster pipeline tables` makes them\n",
    )
    empty = HandMadeLog(0)
    empty.remove(0, "g", 0)
    empty.write(tmp_path / "logs")
    result = muster.invoke(cli, ["pipeline", "run", str(tmp_path / "logs"), "--output", str(tmp_path / "t")])
    assert result.exit_code == 1
    assert "there is nothing to report" in result.stderr
    (tmp_path / "ends.csv").write_text("topic\n")
    both = ["--end-offsets", str(tmp_path / "ends.csv"), "--bootstrap-server", "localhost:1"]
    result = muster.invoke(cli, ["report", str(tmp_path / "t"), *both])
    assert result.exit_code == 2
    assert "give one of them" in result.stderr
    assert not (tmp_path / "t" / "report.html").exists()
    both = [str(tmp_path / "t"), str(tmp_path / "logs")]
    for command, text in (("rebalances", "--engine local"), ("offsets", "t holds tables: name it alone, or logs")):
        result = muster.invoke(cli, ["pipeline", command, *both])
        assert (result.exit_code, text in result.stderr) == (2, True), result.stderr
    result = muster.invoke(cli, ["pipeline", "groups", *both])
    assert (result.exit_code, "t holds tables" in result.stderr) == (1, True)


def test_local_engine_answers_from_logs_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(_master: str) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("muster_cli.pipeline.queries.spark", no_spark)
    write_logs(tmp_path / "logs")

    def rows(command: str, *arguments: str) -> list[dict[str, object]]:
        local = ["pipeline", command, str(tmp_path / "logs"), "--engine", "local", "--json", *arguments]
        return [json.loads(line) for line in succeeded(CliRunner().invoke(cli, local)).stdout.splitlines()]

    assert [(row["group"], row["partition"], row["committed_offset"]) for row in rows("offsets")] == [
        ("<b>simple</b>", 0, 7),
        ("later", 0, 1),
        ("payments", 0, 50),
        ("payments", 1, 1900),
    ]
    past = rows("offsets", "--group", "payments", "--at", "2023-11-14T22:14:22")
    assert [row["committed_offset"] for row in past] == [100, 100]
    assert [row["joined"] for row in rows("rebalances")] == [["a", "b"]]
    assert [row["problem"] for row in rows("quality")] == ["zero_tail"]
    shown = ["pipeline", "groups", str(tmp_path / "logs")]
    [group] = [json.loads(line) for line in succeeded(CliRunner().invoke(cli, [*shown, "--json"])).stdout.splitlines()]
    assert (group["group"], [each["member_id"] for each in group["members"]]) == ("payments", ["a", "b"])
    assert "payments" in succeeded(CliRunner().invoke(cli, shown)).stdout
    assert "payments" not in succeeded(CliRunner().invoke(cli, [*shown, "--at", "2023-11-14"])).stdout
