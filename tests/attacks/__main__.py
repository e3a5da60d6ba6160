"""Attacks beside well-behaved members: `make attack [ATTACK="NAME ..."] [SECONDS=n]`.

Each attack has a pod, or a gateway, of its own, and 64 members of groups that commit and heartbeat. An attack that
misses the bar of p99 is made three times, and the median counts; what the machine is the cause of is then measured at a
neighbour. docs/attacks.md says what the bars are.

Exit codes: 0 all keep their bars; 1 not so; 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from tests.attacks import report
from tests.attacks.catalogue import ATTACKS, Attack
from tests.attacks.errors import HarnessError, Skipped
from tests.attacks.judging import RATIO_MAX, Verdict, missed, slow
from tests.attacks.measuring import Measured, at_a_neighbour, measured

SECONDS = 2.0
RUNS = 3
LONGEST_S = 180.0
"""Of one run; an attack that takes longer is an error of its own."""
_MEMORY = Path("/dev/shm")
DIRECTORY = (_MEMORY if _MEMORY.is_dir() else Path(__file__).resolve().parents[2] / ".cache") / "muster-attacks"
"""In memory where there is such a place: what others write to disks of this machine is none of the attacks' doing."""


def main() -> int:
    parser = arguments()
    options = parser.parse_args()
    for name in options.attacks:
        if name not in ATTACKS:
            parser.error(f"no attack {name}; --list says which there are")
    chosen = [ATTACKS[name] for name in options.attacks] or list(ATTACKS.values())
    if options.list:
        for attack in chosen:
            print(f"{attack.name:<28} {attack.what}")
        return 0
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    verdicts: list[Verdict] = []
    try:
        for attack in chosen:
            verdicts.append(judged(attack, options.seconds, options.runs))
            print(json.dumps(verdicts[-1].as_dict()) if options.json else report.line(verdicts[-1]), flush=True)
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        return 130
    print(report.summary([*map(report.row, verdicts)]), file=sys.stderr if options.json else sys.stdout)
    if options.document:
        report.write_page(verdicts, options.seconds, is_whole=not options.attacks)
    return 1 if any(each.reasons for each in verdicts) else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.attacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("attacks", nargs="*", metavar="NAME", help="which attacks; default: all")
    parser.add_argument("--list", action="store_true", help="say what these attacks are, and end")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of each attack; default {SECONDS:g}")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of one that misses the bar of p99; default {RUNS}")
    parser.add_argument("--json", action="store_true", help="print all figures, a line of JSON for each attack")
    parser.add_argument("--document", action="store_true", help="write docs/attacks.md, or these rows of it")
    return parser


def judged(attack: Attack, seconds: float, runs: int) -> Verdict:
    """The verdict; files of a run that has missed a bar stay."""
    verdict = Verdict(attack)
    try:
        while True:
            run = once(attack, seconds)
            verdict.runs.append(run)
            verdict.reasons += [each for each in missed(attack, run) if each not in verdict.reasons]
            if verdict.reasons or not slow(attack, verdict.runs[0].ratio) or len(verdict.runs) == runs:
                break
        verdict.judge_p99(lambda: beside_another(attack, seconds), runs)
    except Skipped as error:
        verdict.skipped = str(error)
    except HarnessError as error:
        verdict.reasons.append(str(error))
    return verdict


def once(attack: Attack, seconds: float) -> Measured:
    """Raises HarnessError and Skipped."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{attack.name}-", dir=DIRECTORY))
    keep = False
    try:
        run = asyncio.run(asyncio.wait_for(measured(attack, directory, seconds), LONGEST_S))
        keep = bool(missed(attack, run)) or run.ratio > RATIO_MAX
        return run
    except (Skipped, HarnessError) as error:
        keep = isinstance(error, HarnessError)
        raise
    except TimeoutError:
        keep = True
        raise HarnessError(f"it did not end in {LONGEST_S:g} s; {directory}") from None
    except Exception as error:  # a call that nobody expected to fail: the other attacks are made all the same
        keep = True
        (directory / "harness.log").write_text(traceback.format_exc(), encoding="utf-8")
        raise HarnessError(f"{type(error).__name__}: {error}; {directory}") from error
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def beside_another(attack: Attack, seconds: float) -> float:
    """What members feel of the machine alone. Raises HarnessError and Skipped."""
    with tempfile.TemporaryDirectory(prefix=f"{attack.name}-", dir=DIRECTORY, ignore_cleanup_errors=True) as directory:
        try:
            return asyncio.run(asyncio.wait_for(at_a_neighbour(attack, Path(directory), seconds), LONGEST_S))
        except TimeoutError:
            raise HarnessError(f"the control did not end in {LONGEST_S:g} s") from None
        except OSError as error:
            raise HarnessError(f"the control: {type(error).__name__}: {error}") from error


def interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
