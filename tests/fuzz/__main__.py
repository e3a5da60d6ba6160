"""`python -m tests.fuzz run [--seconds N] [--seed N]`: frames, logins and log files in turn, until the time is
over.
`python -m tests.fuzz replay FILE`: send the saved frames of a failure again.

What failed is saved under .cache/fuzz and named. Exit codes: 0 nothing was found, 1 something was.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import SystemRandom

from tests.fuzz import frames, logs
from tests.fuzz.checkpoints import CheckpointFuzz, CutJournalFuzz, disk_with_checkpoints
from tests.fuzz.entrances import EntranceFuzz, entrances
from tests.support.pod import SoloPod

SAVED = Path(__file__).parents[2] / ".cache" / "fuzz"
SLICE_S = 10.0
"""Time for frames, then for files, and again: with a new seed and a new pod each."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--seconds", type=float, default=60.0)
    run.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    commands.add_parser("replay").add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "replay":
        return asyncio.run(replay(options.file))
    return asyncio.run(run_for(options.seconds, options.seed))


async def run_for(seconds: float, seed: int | None) -> int:
    first = seed if seed is not None else SystemRandom().randrange(2**32)
    deadline = time.monotonic() + seconds
    number = 0
    while time.monotonic() < deadline:
        until = min(deadline, time.monotonic() + SLICE_S)
        kind = FUZZERS[number % len(FUZZERS)]
        if not await kind(first + number // len(FUZZERS), until):
            return 1
        number += 1
    return 0


async def fuzz_frames(seed: int, until: float) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        async with pod_in(directory) as pod:
            fuzz = frames.FrameFuzz(pod, seed)
            try:
                while time.monotonic() < until:
                    await fuzz.run_round()
                await fuzz.check()
                await fuzz.settled()
            except Exception:
                path = SAVED / f"frames-{seed}.json"
                frames.save(fuzz.failing, path)
                return failed(f"frames, seed {seed}, round {fuzz.rounds}", path)
            print(f"frames, seed {seed}: {fuzz.frames} frames in {fuzz.rounds} rounds, nothing found", flush=True)
    return True


async def fuzz_entrances(seed: int, until: float) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        async with entrances(Path(directory)) as pod:
            fuzz = EntranceFuzz(pod, seed)
            try:
                while time.monotonic() < until:
                    await fuzz.run_round()
                await fuzz.check()
            except Exception:
                traceback.print_exc()
                again = f"`run --seed {seed}` does the same again"
                print(f"FAILED: entrances, seed {seed}, round {fuzz.rounds}: {again}", file=sys.stderr)
                return False
            print(f"entrances, seed {seed}: {fuzz.connections} connections, nothing found", flush=True)
    return True


async def fuzz_logs(seed: int, until: float) -> bool:
    return await fuzz_files("log files", logs.LogFuzz(await logs.written_disk(), seed), seed, until)


async def fuzz_checkpoints(seed: int, until: float) -> bool:
    return await fuzz_files("checkpoints", CheckpointFuzz(await disk_with_checkpoints(), seed), seed, until)


async def fuzz_cut_journals(seed: int, until: float) -> bool:
    return await fuzz_files("cut journals", CutJournalFuzz(await disk_with_checkpoints(), seed), seed, until)


async def fuzz_files(what: str, fuzz: logs.LogFuzz, seed: int, until: float) -> bool:
    try:
        while time.monotonic() < until:
            await fuzz.run_round()
    except Exception:
        path = SAVED / f"{what.replace(' ', '-')}-{seed}.json"
        logs.save(fuzz.failing, path)
        return failed(f"{what}, seed {seed}, round {fuzz.rounds}", path)
    print(f"{what}, seed {seed}: {fuzz.rounds} rounds, {fuzz.active} partitions served, nothing found", flush=True)
    return True


FUZZERS = (fuzz_frames, fuzz_logs, fuzz_entrances, fuzz_checkpoints, fuzz_frames, fuzz_cut_journals)


def failed(what: str, path: Path) -> bool:
    traceback.print_exc()
    print(f"FAILED: {what}; saved as {path}", file=sys.stderr)
    return False


async def replay(file: Path) -> int:
    """Send the frames connection by connection, and look at the pod after each round."""
    with tempfile.TemporaryDirectory() as directory:
        async with pod_in(directory) as pod:
            fuzz = frames.FrameFuzz(pod, 0)
            for number, scripts in enumerate(frames.load(file)):
                for script in scripts:
                    client = await pod.client()
                    client.writer.write(b"".join(script))
                    await client.writer.drain()
                    try:
                        await asyncio.wait_for(client.reader.read(), frames.PARKED_S)
                    except (TimeoutError, ConnectionError):
                        pass
                    client.writer.transport.abort()
                try:
                    await fuzz.check()
                except Exception:
                    traceback.print_exc()
                    print(f"FAILED: after round {number}", file=sys.stderr)
                    return 1
    print("nothing found")
    return 0


def pod_in(directory: str) -> SoloPod:
    return SoloPod(Path(directory) / "data", frames.PARTITIONS, {"t": 3, "u": 3}, frames.CONFIG)


if __name__ == "__main__":
    sys.exit(main())
