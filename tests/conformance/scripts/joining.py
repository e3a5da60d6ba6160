"""JoinGroup: what is refused, and what a group looks like afterwards."""

from __future__ import annotations

from typing import Any

from tests.conformance.members import Member, describe, form, stable, subscription
from tests.conformance.registry import script
from tests.conformance.servers import MIN_SESSION_MS
from tests.conformance.session import Session

RANGE = ("range", subscription("t"))


@script(versions=range(10))
async def join_with_the_empty_group_id(s: Session, version: int) -> None:
    await Member(s, "a", version=version).join(group_id="")


@script(versions=range(10))
async def join_with_a_member_id_that_nobody_has(s: Session, version: int) -> None:
    a = Member(s, "a", version=version)
    a.member_id = "nobody"
    await a.join()
    await describe(s)


@script(cases={"too_short": MIN_SESSION_MS - 1, "too_long": 1_800_001, "zero": 0, "negative": -1})
async def join_with_a_session_timeout(s: Session, session_ms: int) -> None:
    await Member(s, "a").join(session_timeout=session_ms)
    await describe(s)


@script(cases={"v0": 0, "v3": 3})
async def join_with_a_session_timeout_too_short(s: Session, version: int) -> None:
    await Member(s, "a", version=version).join(session_timeout=MIN_SESSION_MS - 1)


@script(versions=(3, 4, 6, 7, 9))
async def join_an_empty_group_without_protocols(s: Session, version: int) -> None:
    await Member(s, "a", version=version, protocols=()).join()
    await s.until_exists()
    await describe(s)


@script(versions=(3, 4, 6, 7, 9))
async def join_an_empty_group_without_a_protocol_type(s: Session, version: int) -> None:
    await Member(s, "a", version=version, protocol_type="").join()
    await s.until_exists()
    await describe(s)


@script(versions=(3, 4, 5, 9))
async def join_with_another_protocol_type(s: Session, version: int) -> None:
    await stable(Member(s, "a"))
    await Member(s, "b", version=version, protocol_type="connect").join()
    await describe(s)


@script(versions=(3, 4, 6, 9))
async def join_with_protocols_that_the_group_does_not_support(s: Session, version: int) -> None:
    await stable(Member(s, "a"))
    await Member(s, "b", version=version, protocols=(("roundrobin", b""),)).join()
    await describe(s)


@script()
async def join_a_stable_group_without_protocols(s: Session) -> None:
    await stable(Member(s, "a"))
    await Member(s, "b", protocols=()).join()


@script()
async def only_member_rejoins_with_other_protocols(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    a.protocols = (("roundrobin", subscription("t")),)
    await a.join()
    await describe(s)


@script(versions=range(4, 10))
async def dynamic_member_is_first_given_an_id(s: Session, version: int) -> None:
    a = Member(s, "a", version=version)
    await a.join()
    await s.until_exists()
    await describe(s)


@script(versions=range(4))
async def dynamic_member_of_an_old_version_joins_at_once(s: Session, version: int) -> None:
    a = Member(s, "a", version=version)
    await a.join()
    await describe(s)


@script()
async def pending_member_id_cannot_be_used_by_a_static_member(s: Session) -> None:
    a = Member(s, "a")
    await a.join()
    a.instance = "i"
    await a.join()
    await s.until_exists()
    await describe(s)


@script()
async def pending_member_cannot_send_heartbeats_or_commits(s: Session) -> None:
    a = Member(s, "a")
    await a.join()
    await a.heartbeat(generation_id=0)
    await a.sync(generation_id=0)
    await a.commit(generation_id_or_member_epoch=0)


@script()
async def pending_member_rejoins_with_unsupported_protocols(s: Session) -> None:
    await stable(Member(s, "a"))
    b = Member(s, "b")
    await b.join()
    b.protocols = (("roundrobin", b""),)
    await b.join()
    await describe(s)


@script(cases={"connect": "connect", "schema_registry": "sr", "own": "my-type"})
async def group_of_protocol_type(s: Session, protocol_type: str) -> None:
    a = Member(s, "a", protocol_type=protocol_type, protocols=(("v0", b"\x00\x01"),))
    await stable(a)
    await describe(s)


@script()
async def subscription_may_be_any_bytes_outside_consumer_groups(s: Session) -> None:
    a = Member(s, "a", protocol_type="connect", protocols=(("v0", b"\xff\xff\xff\xff\xff\xff\xff"),))
    await stable(a)
    await describe(s)


@script(cases={"empty": b"", "short": b"\x00", "version_only": b"\x00\x00"})
async def consumer_subscription_that_cannot_be_parsed(s: Session, metadata: bytes) -> None:
    a = Member(s, "a", protocols=(("range", metadata),))
    await stable(a)
    await describe(s)


@script()
async def consumer_subscription_of_a_newer_version(s: Session) -> None:
    a = Member(s, "a", protocols=(("range", b"\x00\x09" + subscription("t")[2:] + b"more"),))
    await stable(a)
    await describe(s)


@script()
async def client_id_becomes_the_start_of_the_member_id(s: Session) -> None:
    a = Member(s, "client with spaces é")
    await stable(a)
    await describe(s)


@script()
async def empty_client_id(s: Session) -> None:
    a = Member(s, "")
    await stable(a)
    await describe(s)


@script()
async def group_id_with_any_characters(s: Session) -> None:
    s.group = "group_id_with_any_characters é 😀 /\\ \n"
    a = Member(s, "a")
    await stable(a)
    await describe(s)
    await s.ask("list_groups", 5)


@script(cases={"zero": 0, "negative": -1, "one": 1})
async def rebalance_timeout(s: Session, rebalance_ms: int) -> None:
    a = Member(s, "a", rebalance_ms=rebalance_ms)
    await form(a)


# -- votes ------------------------------------------------------------------------------------------------------------


def _protocols(*names: str) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, subscription("t", user_data=name.encode())) for name in names)


@script(
    cases={
        "first_of_the_only_member": [("x", "y")],
        "common_one": [("x", "y"), ("y", "z")],
        "most_votes": [("x", "y"), ("y", "x"), ("y", "x")],
        "tie_x_y": [("x", "y"), ("y", "x")],
        "tie_range_roundrobin": [("range", "roundrobin"), ("roundrobin", "range")],
        "tie_sticky_range": [("cooperative-sticky", "range"), ("range", "cooperative-sticky")],
        "tie_of_three": [("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")],
        "not_supported_by_all": [("x", "y", "z"), ("x", "z"), ("z", "y")],
    }
)
async def protocol_vote(s: Session, wanted: list[tuple[str, ...]]) -> None:
    members = [Member(s, f"m{i}", protocols=_protocols(*names)) for i, names in enumerate(wanted)]
    await stable(*members)
    await describe(s)


@script()
async def vote_changes_with_the_members(s: Session) -> None:
    a = Member(s, "a", protocols=_protocols("x", "y"))
    await stable(a)
    b = Member(s, "b", protocols=_protocols("y"))
    await b.ask_for_id()
    joining = await b.park_join()
    await a.join()
    await b.joined_by(joining)
    await describe(s)


@script()
async def every_member_gets_the_metadata_of_the_chosen_protocol(s: Session) -> None:
    both: tuple[Any, ...] = _protocols("x", "y")
    await stable(Member(s, "a", protocols=both), Member(s, "b", protocols=_protocols("y")))
    await describe(s)
