"""What is shown of transactions: DescribeTransactions, ListTransactions, FindCoordinator for transactional ids."""

from __future__ import annotations

from tests.conformance.producers import Producer
from tests.conformance.registry import script
from tests.conformance.session import Session

AREA = "transactions"
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


async def _one_of_each(s: Session) -> dict[str, Producer]:
    """Transactional ids in the states that last."""
    found = {state: Producer(s, f"{s.name}-{state}") for state in STATES if not state.startswith("Prepare")}
    for state, producer in found.items():
        await producer.init()
        if state != "Empty":
            await producer.add_group()
        if state.startswith("Complete"):
            await producer.end(state == "CompleteCommit", 5)
    return found


@script()
async def transactions_are_described(s: Session) -> None:
    producers = await _one_of_each(s)
    for state in ("Ongoing", "CompleteCommit", "CompleteAbort"):
        await producers[state].describe()


@script()
async def several_transactions_are_described_at_once(s: Session) -> None:
    producers = await _one_of_each(s)
    names = [producers["Ongoing"].name, f"{s.name}-missing", "", producers["CompleteCommit"].name]
    await s.ask("describe_transactions", 0, transactional_ids=names)


@script()
async def unknown_transactions_are_described(s: Session) -> None:
    await s.ask("describe_transactions", 0, transactional_ids=[f"{s.name}-missing", "", f"{s.name}-missing-2"])
    await s.ask("describe_transactions", 0, transactional_ids=[""])


@script()
async def no_transactions_are_described(s: Session) -> None:
    await s.ask("describe_transactions", 0, transactional_ids=[])


@script(versions=range(2))
async def transactions_are_listed(s: Session, version: int) -> None:
    producers = await _one_of_each(s)
    await producers["Empty"].list(version)
    for state in STATES:
        await producers["Empty"].list(version, state_filters=[state])
    await producers["Empty"].list(version, state_filters=["Ongoing", "Empty"])


@script(versions=range(2))
async def transactions_are_listed_by_producer(s: Session, version: int) -> None:
    producers = await _one_of_each(s)
    ids = [producers[state].identity[0] for state in ("Empty", "CompleteAbort")]
    await producers["Empty"].list(version, producer_id_filters=ids)
    await producers["Empty"].list(version, producer_id_filters=[*ids, 1 << 62], state_filters=["Empty"])
    await producers["Empty"].list(version, producer_id_filters=[-1])


@script(versions=range(2))
async def transactions_are_listed_by_states_that_do_not_exist(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.list(version, state_filters=["Unknown"])
    await p.list(version, state_filters=["Empty", "empty", "Nonsense", ""])
    await p.list(version, state_filters=["Dead"])
    await p.list(version, state_filters=["PrepareEpochFence"])


@script()
async def transactions_are_listed_by_age(s: Session) -> None:
    producers = await _one_of_each(s)
    for duration in (0, -1, -5, 3_600_000, 1 << 62):
        await producers["Empty"].list(duration_filter=duration)


PATTERNS = {
    "all": ".*",
    "some": ".*Complete.*",
    "none": None,
    "empty": "",
    "part_of_a_name": "Complete",
    "that_nothing_matches": "x",
    "that_is_broken": "(ab(cd",
    "that_looks_back": r"(a)\1",
}


@script(cases=PATTERNS)
async def transactions_are_listed_by_pattern(s: Session, pattern: str | None) -> None:
    producers = await _one_of_each(s)
    await producers["Empty"].list(2, transactional_id_pattern=pattern)


@script(versions=range(1, 7))
async def coordinator_of_a_transactional_id(s: Session, version: int) -> None:
    if version < 4:
        await s.ask("find_coordinator", version, key=s.name, key_type=1)
        await s.ask("find_coordinator", version, key="", key_type=1)
    else:
        await s.ask("find_coordinator", version, key_type=1, coordinator_keys=[s.name, "", f"{s.name}-2"])
        await s.ask("find_coordinator", version, key_type=1, coordinator_keys=[])
