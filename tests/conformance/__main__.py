"""`python -m tests.conformance [AREA-OR-SCRIPT ...]`: compare, print, exit.

Exit codes: 0 no unexplained difference (or Kafka cannot run here: one line says why), 1 differences or broken scripts,
2 a name that is no area and no script.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.builds import KAFKA_VERSION, KAFKA_VERSIONS
from tests.conformance import differences, scripts  # noqa: F401  # importing the scripts registers them
from tests.conformance.differences import Explanation
from tests.conformance.registry import SCRIPTS, Script
from tests.conformance.runner import Report, run_all
from tests.conformance.servers import both
from tests.support.kafka_broker import why_no_kafka


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="areas or scripts; all without")
    parser.add_argument("--kafka", choices=KAFKA_VERSIONS, default=KAFKA_VERSION, help="release (%(default)s)")
    parser.add_argument("--list", action="store_true", help="list areas and scripts, and end")
    parser.add_argument("--show", action="store_true", help="print Kafka's answers too")
    parser.add_argument("--fetch", action="store_true", help="fetch Kafka if it is not here yet, and end")
    parser.add_argument("--require-kafka", action="store_true", help="fail instead of skip where Kafka cannot run")
    options = parser.parse_args()
    chosen = [s for s in SCRIPTS if not options.names or {s.area, s.name} & set(options.names)]
    unknown = [n for n in options.names if not any(n in (s.area, s.name) for s in SCRIPTS)]
    if unknown:
        print(f"no area and no script is called {', '.join(unknown)}; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        for script in chosen:
            print(f"{script.area:<22} {script.name}")
        return 0
    missing = why_no_kafka(options.kafka)
    if missing:
        print(f"skipped: {missing}")
        return 1 if options.require_kafka else 0
    if options.fetch:
        return 0
    meant = differences.load(options.kafka)
    report = asyncio.run(_compare(options.kafka, chosen, meant))
    if options.show:
        for name, answers in report.answers.items():
            print(f"\n{name}", *(f"  {where} = {value}" for where, value in answers.items()), sep="\n")
    return _conclude(report, meant, every_script=not options.names)


async def _compare(version: str, chosen: Sequence[Script], meant: Sequence[Explanation]) -> Report:
    directory = Path(tempfile.mkdtemp(prefix="muster-conformance-"))
    report = Report()
    wanted = list(dict.fromkeys(tuple(script.settings.items()) for script in chosen))
    try:
        for number, settings in enumerate(wanted):
            print(" ".join([f"starting Kafka {version} and Muster", *(f"{k}={v}" for k, v in settings)]), flush=True)
            of_these = [script for script in chosen if tuple(script.settings.items()) == settings]
            async with both(version, directory / str(number), dict(settings)) as servers:
                await run_all(of_these, servers, meant, report)
    except BaseException:
        print(f"logs: {directory}", file=sys.stderr)
        raise
    if report.unexplained or report.broken:
        print(f"logs: {directory}")
    else:
        shutil.rmtree(directory)
    return report


def _conclude(report: Report, meant: Sequence[Explanation], *, every_script: bool) -> int:
    """`every_script`: all have run, so that every explanation must have been of use."""
    unused = [e for e in meant if not e.uses] if every_script else []
    for name, what in sorted(report.broken):
        print(f"\nBROKEN {name} {what}")
    shown = ""
    for name, where, kafka, muster in sorted(report.unexplained, key=lambda each: each[0]):
        if name != shown:
            print(f"\nDIFFERS {name}")
            shown = name
        print(f"  {where}\n    kafka:  {kafka}\n    muster: {muster}")
    for entry in unused:
        print(f"\nUNUSED explanation: {entry.scripts} {entry.where} ({entry.reason})")
    explained = sum(e.uses for e in meant)
    reasons = sum(e.uses > 0 for e in meant)
    print(
        f"\n{sum(report.scripts.values())} scripts in {len(report.scripts)} areas, {report.steps} requests compared, "
        f"{explained} meant differences ({reasons} reasons), "
        f"{len(report.unexplained)} unexplained, {len(report.broken)} broken, "
        f"{len(unused)} unused explanations, {report.seconds:.0f} s"
    )
    return 1 if report.unexplained or report.broken or unused else 0


if __name__ == "__main__":
    sys.exit(main())
