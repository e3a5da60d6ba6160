"""Processes beside the one that is attacked, which are told what to do by lines and answer by lines."""

from __future__ import annotations

import asyncio
import sys
from typing import Self

from tests.attacks.errors import HarnessError

LIMIT = 1 << 20
END_S = 10.0


class Child:
    """`python -m MODULE WORDS`, from entering to leaving."""

    def __init__(self, module: str, *words: str) -> None:
        self._module = module
        self._words = words

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._module, *self._words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LIMIT,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await asyncio.wait_for(self._process.wait(), END_S)

    async def line(self, within_s: float) -> str:
        """Its next line. Raises HarnessError when it ends, or says nothing."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            async with asyncio.timeout(within_s):
                line = await self._process.stdout.readline()
                if line:
                    return line.decode().strip()
                said = (await self._process.stderr.read()).decode(errors="replace").strip()
        except TimeoutError:
            raise HarnessError(f"{self._module} said nothing for {within_s:g} s") from None
        raise HarnessError(f"{self._module} ended: {said[-2000:]}")

    async def told(self, within_s: float, word: bytes = b"") -> str:
        """What it answers to a line. Raises HarnessError."""
        self.tell(word)
        return await self.line(within_s)

    def tell(self, word: bytes = b"") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + b"\n")
