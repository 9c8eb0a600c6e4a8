"""Which earlier request a request continues: a rolling chain over the items, seeded by the tenant. Hints are no identity."""

from collections.abc import Callable, Sequence

from gateway.context.digest import EMPTY, chain, digest
from gateway.context.items import Item


def seed(tenant: str) -> bytes:
    """Return the chain's start for one tenant: equal conversations of two tenants share no link."""
    return digest(tenant.encode()) if tenant else EMPTY


def links(start: bytes, items: Sequence[Item]) -> list[bytes]:
    """Return the chain digest after each item, begun from `start`."""
    return chain((item.digest for item in items), start)


def continues(made: Sequence[bytes], known: Callable[[bytes], bool]) -> int:
    """Return how many items an earlier request shares with this one, by the deepest link that is known; 0 for a new lineage."""
    return next((n + 1 for n in range(len(made) - 1, -1, -1) if known(made[n])), 0)
