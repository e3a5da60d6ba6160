"""Random requests of every served API and version, valid or mutated; names and ids come from small pools, so that
requests meet each other's groups and members."""

from __future__ import annotations

import datetime
import io
import types
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from random import Random
from typing import Any

from kio.serial import entity_writer
from tests.unit.wire.kio_oracle import schema

from muster_coordinator.wire.api import Api
from muster_coordinator.wire.apis import APIS

EVERY_VERSION = [(api, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]
GROUP_APIS = {8, 9, 11, 12, 13, 14, 15, 28, 42, 47}
CLAIMS = [bytes.fromhex(claim) for claim in ("7fffffff", "ffffffff", "80000000", "ffffffff0f", "00", "ff", "7fff")]
POOLS: dict[str, list[str]] = {
    "group": ["g0", "g1", "g2", "", "ü" * 50],
    "member": ["", "m0", "m1"],
    "instance": ["i0", "i1"],
    "protocol_type": ["consumer", "connect", ""],
    "topic": ["t", "u", "__consumer_offsets", ""],
    "": ["", "x", "range", "y" * 300],
}
SUBSCRIPTION = bytes.fromhex("000000000001000174ffffffff")


@dataclass(frozen=True)
class Frame:
    """One request as it is sent; `valid`: nothing was mutated, so the answer must be one of its kind."""

    data: bytes
    api: Api
    version: int
    correlation_id: int
    valid: bool


class Requests:
    """`members`: ids that the pod gave out, to be used again."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.members: list[str] = []

    def frame(self, correlation_id: int, mutated: float) -> Frame:
        random = self.random
        api, version = random.choice(EVERY_VERSION)
        while api.key not in GROUP_APIS and random.random() < 0.6:
            api, version = random.choice(EVERY_VERSION)
        body = self.encode(api, version, correlation_id)
        if random.random() >= mutated:
            return Frame(len(body).to_bytes(4, "big") + body, api, version, correlation_id, True)
        body = mutate(random, body)
        length = (
            len(body) if random.random() < 0.95 else random.choice([0, 1, len(body) + 5, 0x7FFFFFFF, -1 & 0xFFFFFFFF])
        )
        return Frame(length.to_bytes(4, "big") + body, api, version, correlation_id, False)

    def encode(self, api: Api, version: int, correlation_id: int) -> bytes:
        request = self.entity(schema(api.name, version, "request"))
        header = request.__header_schema__(
            request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id="fuzz"
        )
        out = io.BytesIO()
        entity_writer(type(header))(out, header)
        entity_writer(type(request))(out, request)
        return out.getvalue()

    def entity(self, kind: Any) -> Any:
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: self.value(f.name, f.metadata.get("kafka_type"), hints[f.name]) for f in fields(kind)})

    def value(self, name: str, kafka_type: str | None, hint: Any) -> Any:
        optional = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        if optional:
            if self.random.random() < 0.3:
                return None
            hint = next(each for each in typing.get_args(hint) if each is not type(None))
        if typing.get_origin(hint) is tuple:
            element = typing.get_args(hint)[0]
            return tuple(self.value(name, kafka_type, element) for _ in range(self.random.choice([0, 1, 1, 2, 3])))
        if is_dataclass(hint):
            return self.entity(hint)
        assert kafka_type is not None, name
        return self.primitive(name, kafka_type)

    def primitive(self, name: str, kafka_type: str) -> Any:
        random = self.random
        if kafka_type == "string":
            return self.text(name)
        makers: dict[str, Callable[[], Any]] = {
            "bool": lambda: random.random() < 0.5,
            "uuid": lambda: uuid.UUID(bytes=random.randbytes(16)),
            "bytes": lambda: random.choice([b"", SUBSCRIPTION, SUBSCRIPTION, random.randbytes(20)]),
            "records": lambda: random.choice([None, random.randbytes(30)]),
            "timedelta_i32": lambda: datetime.timedelta(milliseconds=random.choice([-1, 0, 1, 50, 6000, 2**31 - 1])),
            "timedelta_i64": lambda: datetime.timedelta(milliseconds=random.choice([-1, 0, 1000])),
        }
        if kafka_type in makers:
            return makers[kafka_type]()
        bits = int(kafka_type.removeprefix("u").removeprefix("int"))
        low, high = (0, 2**bits - 1) if kafka_type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if "wait" in name or "coordinator_type" in name or "key_type" in name:
            return random.choice([0, 1])
        return max(low, random.choice([-1, 0, 0, 1, 1, 2, 5, low, high]))

    def text(self, name: str) -> str:
        random = self.random
        if "member" in name and self.members and random.random() < 0.7:
            return random.choice(self.members)
        kind = next((kind for kind in POOLS if kind and kind in name), "")
        if name == "name":
            kind = "topic"
        return random.choice(POOLS[kind])


def mutate(random: Random, data: bytes) -> bytes:
    """One to three changes: bits, bytes, lengths, cuts, repeats."""
    out = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(out) + 1)
        kind = random.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
        elif kind == 2:
            claim = random.choice(CLAIMS)
            out[at : at + len(claim)] = claim
        elif kind == 3:
            del out[at:]
        elif kind == 4:
            out[at:at] = random.randbytes(random.randrange(1, 20))
        else:
            out[at:at] = out[at : at + random.randrange(1, 200)] * random.choice([1, 2, 50])
    return bytes(out)
