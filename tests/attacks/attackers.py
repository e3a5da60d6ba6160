"""The attackers of one attack, in a process of their own: `python -m tests.attacks.attackers NAME TARGET`.

It prepares what the attack needs and says `ready`; attacks from the next line of its input to the one after; and says
then, as one line of JSON, what it has done. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import uvloop
from tests.attacks.catalogue import ATTACKS
from tests.attacks.site import Site, Target

NICE = 10
"""Attackers have machines of their own; here they share one, and leave its processors to who is attacked."""


async def main(name: str, target: Target) -> None:
    attack, site = ATTACKS[name], Site(target)
    if attack.prepare is not None:
        await attack.prepare(site)
    print("ready", flush=True)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    if not await commands.readline():
        return
    attacking = asyncio.ensure_future(attack.run(site))
    stopping = asyncio.ensure_future(commands.readline())
    await asyncio.wait((attacking, stopping), return_when=asyncio.FIRST_COMPLETED)
    if attacking.done():
        attacking.result()  # it failed, or has done what it does once
        await stopping
    if attack.undo is not None:
        await attack.undo(site)
    print(json.dumps(site.counts), flush=True)
    os._exit(0)  # its connections end with it, as those of a process that is killed


if __name__ == "__main__":
    os.nice(NICE)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], Target.of_text(sys.argv[2])))
