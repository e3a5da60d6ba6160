"""One run: a group is to move, perhaps back, while everything goes wrong, and then nothing does any more."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.moves.gateways import Client, Gateway
from tests.simulation.moves.world import TROUBLE_MS, Violation, World

HEALED_MS = 25_000
RECENT_MS = 4_000


def run(seed: int) -> World:
    """Raises Violation."""
    world = World(seed)
    world.elect()
    gateways = [Gateway(world, f"gateway{number}") for number in range(world.random.randint(1, 3))]
    clients = [Client(world, gateways, f"client{number}") for number in range(4)]
    for _ in range(world.random.randint(0, 10)):
        latest_ms = world.random.choice([TROUBLE_MS // 4, TROUBLE_MS])
        world.after(world.random.randint(0, latest_ms), _trouble(world, world.random.choice(gateways)))
    world.run(TROUBLE_MS + HEALED_MS)
    world.check()
    route = world.route()
    if route is None or route.epoch != world.flips:
        raise Violation("the group has not moved as often as it should")
    if any(world.now_ms - client.last_ms > RECENT_MS for client in clients):
        raise Violation("a client commits no more")
    return world


def _trouble(world: World, gateway: Gateway) -> Callable[[], None]:
    def cut_off() -> None:
        gateway.cut_off_until_ms = world.now_ms + world.random.randint(200, 4_000)

    def split() -> None:
        gateway.split(world.random.randint(200, 4_000))
        world.elect()

    return world.random.choice(
        [split, world.elect, gateway.restart, lambda: gateway.freeze(world.random.randint(100, 4_000)), cut_off]
    )
