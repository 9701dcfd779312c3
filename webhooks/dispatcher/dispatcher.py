"""Dispatcher: wires the loops and the network thread."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import defaultdict
from uuid import UUID

import psycopg

from webhooks import deliveries, fanouts, metrics, rollups
from webhooks.attempt import Claim, Withheld
from webhooks.backoff import Policy
from webhooks.db import connect
from webhooks.deliveries import Settlement
from webhooks.dispatcher import attempt_log
from webhooks.dispatcher.hands import Hands
from webhooks.dispatcher.lease import Lease
from webhooks.dispatcher.loop import Loop
from webhooks.dispatcher.network import Network
from webhooks.dispatcher.pace import CLAIM_EVERY_S, Pace
from webhooks.dispatcher.put_off import PutOff
from webhooks.dispatcher.verdicts import settlement
from webhooks.lanes import Rules
from webhooks.partitions import make_partitions
from webhooks.sending import Sender
from webhooks.settings import Settings
from webhooks.tally import Tally
from webhooks.transports.base import Transport
from webhooks.wakeup import FAN_OUT, listen
from webhooks.workers import retire

SETTLE_EVERY_S = 0.05
SETTLE_ROWS = 100
SETTLE_MOST_ROWS = 500
MOST_UNSETTLED = 1_000
# One claim in so many takes bulk replays first, so that a busy lane does not starve them.
BULK_EVERY = 8
PROMOTE_EVERY_S = 0.25
RECLAIM_EVERY_S = 5.0
COUNT_EVERY_S = 5.0
PARTITIONS_EVERY_S = 3_600.0
MOST_ORPHANS = 4
DRAIN_WAIT_S = 0.02
LOOP_JOIN_S = 5.0
TICK_LIMIT_S = 60.0
NETWORK_TICK_LIMIT_S = 10.0

log = logging.getLogger(__name__)


class Dispatcher:
    """Claims what is due, sends it, settles what came of it, until ``drain``.

    Every loop has a thread and a database connection of its own; no transaction is open
    while anything is sent. It survives a database that is away and any single bad row.
    """

    def __init__(self, settings: Settings, transport: Transport, sender: Sender) -> None:
        self._settings = settings
        self._policy = Policy.from_settings(settings)
        self._rules = Rules.from_settings(settings)
        self._hands = Hands(min(settings.max_in_flight, transport.capacity))
        self._lease = Lease(self._hands.capacity, settings.lease_s)
        self._cursor = deliveries.random_cursor()
        self._pace = Pace()
        self._put_off = PutOff()
        self._tally = Tally()
        # So that the first round is a whole interval away, but partitions are made at once.
        self._reclaimed = time.monotonic()
        self._partitioned = float("-inf")
        self._counted = time.monotonic()
        self._strays: set[tuple[UUID, int]] = set()
        self._claiming = True
        self._running = True
        url = settings.database_url
        self._claimer = Loop("claimer", url, self._claim)
        self._settler = Loop("settler", url, self._settle)
        self._keeper = Loop("keeper", url, self._keep)
        self._heart = Loop("heart", url, self._beat)
        self._loops = (self._heart, self._settler, self._keeper, self._claimer)
        self._network = Network(
            transport, sender, self._hands, lambda: self._sending_as, self._on_outcome
        )
        self._listener = threading.Thread(target=self._listen, name="listener", daemon=True)
        metrics.CAPACITY.set(self._hands.capacity)

    def start(self) -> None:
        self._network.start()
        self._listener.start()
        for loop in self._loops:
            loop.start()

    def stop_claiming(self) -> None:
        """Take nothing new. Only sets a flag: a signal handler may call it."""
        self._claiming = False

    @property
    def ticking(self) -> bool:
        """Whether every loop has gone round lately."""
        now = time.monotonic()
        fresh = all(now - loop.ticked < TICK_LIMIT_S for loop in self._loops)
        return fresh and now - self._network.ticked < NETWORK_TICK_LIMIT_S

    def drain(self, deadline_s: float) -> None:
        """Stop: finish what is being sent, give the rest back, retire.

        ``deadline_s`` is counted from now; what is still being sent then is given back
        too, and its receiver may see it twice.
        """
        deadline = time.monotonic() + deadline_s
        self.stop_claiming()
        self._hands.close()
        while self._hands.held and time.monotonic() < deadline:
            time.sleep(DRAIN_WAIT_S)
        self._running = False
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop.join(LOOP_JOIN_S)
        self._network.stop()
        self._network.join(LOOP_JOIN_S)
        self._retire()

    def _retire(self) -> None:
        worker_id = self._lease.row
        if worker_id is None:
            return
        try:
            with connect(self._settings.database_url, "retire") as connection:
                while self._hands.unsettled:
                    self._settle(connection)
                held = deliveries.held_by(connection, worker_id)
                deliveries.give_back(connection, worker_id, held)
                retire(connection, worker_id)
                rollups.flush(connection, self._tally.take())
        except psycopg.Error as error:
            log.warning("not retired, the lease will end by itself: %s", error)

    @property
    def _sending_as(self) -> UUID | None:
        """The worker's id while it may send: its lease runs and the database answers.

        Nothing is sent that cannot be recorded, or that may be somebody else's by now.
        """
        healthy = self._settler.healthy and self._claimer.healthy and self._heart.healthy
        return self._lease.current if healthy else None

    def _on_outcome(self) -> None:
        if self._hands.unsettled >= SETTLE_ROWS:
            self._settler.wake()

    # The loops' actions. Each answers how long to wait before the next.

    def _claim(self, connection: psycopg.Connection) -> float:
        worker_id = self._sending_as
        if worker_id is None or not self._may_claim():
            return CLAIM_EVERY_S
        begun = time.monotonic()
        shares = self._put_off.limit(self._hands.shares())
        hosts = self._hands.host_room(self._settings.host_max_in_flight, self._lease.workers)
        try:
            with metrics.CLAIM_SECONDS.time():
                batch = deliveries.claim(
                    connection, worker_id, self._cursor, self._hands.room, shares, hosts,
                    bulk_first=random.randrange(BULK_EVERY) == 0,  # noqa: S311 - no secret
                )  # fmt: skip
        except deliveries.Fenced:
            self._fenced()
            return CLAIM_EVERY_S
        self._cursor = batch.cursor
        self._hands.put(batch.claims)
        metrics.IN_FLIGHT.set(self._hands.held)
        if batch.claims:
            self._network.wake()
        if batch.orphans:
            deliveries.cancel_orphans(connection, batch.orphans[:MOST_ORPHANS])
        crowded = self._hands.room < self._hands.capacity // 4
        return self._pace.pause(batch, time.monotonic() - begun, crowded=crowded)

    def _may_claim(self) -> bool:
        return self._claiming and self._hands.room > 0 and self._hands.unsettled < MOST_UNSETTLED

    def _settle(self, connection: psycopg.Connection) -> float:
        finished = self._hands.finished(SETTLE_MOST_ROWS)
        by_worker: dict[UUID, list[Settlement]] = defaultdict(list)
        withheld: dict[UUID, list[tuple[Claim, str]]] = defaultdict(list)
        for claim, result in finished:
            assert claim.worker_id is not None  # noqa: S101 - claim() sets it
            if isinstance(result, Withheld):
                withheld[claim.worker_id].append((claim, result.detail))
            else:
                by_worker[claim.worker_id].append(settlement(claim, result, self._policy))
        for worker_id, pairs in withheld.items():
            self._return(connection, worker_id, pairs)
        for worker_id, settlements in by_worker.items():
            with metrics.SETTLE_SECONDS.time():
                held = deliveries.settle(connection, worker_id, settlements, self._rules)
            self._settled(settlements, held)
        full = self._hands.unsettled >= SETTLE_ROWS
        return 0.0 if full else SETTLE_EVERY_S

    def _settled(self, settlements: list[Settlement], held: set[UUID]) -> None:
        mine = []
        for each in settlements:
            recorded = each.claim.delivery_id in held
            self._hands.settled(each.claim, recorded=recorded)
            if recorded:
                mine.append(each)
        attempt_log.failures(mine)
        self._tally.add((each.claim, each.outcome, each.delay is None) for each in mine)
        metrics.IN_FLIGHT.set(self._hands.held)
        metrics.count_attempts([each.outcome for each in mine])
        metrics.FENCED.inc(len(settlements) - len(mine))
        if self._hands.room >= self._hands.capacity // 4:
            self._claimer.wake()

    def _return(
        self, connection: psycopg.Connection, worker_id: UUID, pairs: list[tuple[Claim, str]]
    ) -> None:
        """Give back claims that cannot be signed here; their endpoints wait, or for another one."""
        for why in sorted({why for _, why in pairs}):
            log.warning("deliveries wait: %s", why)
        claims = [claim for claim, _ in pairs]
        self._put_off.add(claim.endpoint_id for claim in claims)
        numbers = {(claim.delivery_id, claim.attempt) for claim in claims}
        deliveries.give_back(connection, worker_id, numbers)
        for claim in claims:
            self._hands.settled(claim, recorded=False)

    def _keep(self, connection: psycopg.Connection) -> float:
        promoted = deliveries.promote(connection)
        if promoted:
            metrics.PROMOTED.inc(promoted)
            self._claimer.wake()
        if time.monotonic() - self._reclaimed >= RECLAIM_EVERY_S:
            self._reclaimed = time.monotonic()
            deliveries.show_closed(connection)
            if self._lease.steady:
                metrics.RECLAIMED.inc(deliveries.reclaim(connection))
            self._give_back_strays(connection)
        if time.monotonic() - self._counted >= COUNT_EVERY_S:
            self._counted = time.monotonic()
            rollups.flush(connection, self._tally.take())
        if time.monotonic() - self._partitioned >= PARTITIONS_EVERY_S:
            make_partitions(connection)
            self._partitioned = time.monotonic()
        return self._expand(connection)

    def _expand(self, connection: psycopg.Connection) -> float:
        """One chunk of a fan-out, the next round at once; else one of a bulk replay."""
        expanded = fanouts.expand(connection)
        if expanded:
            metrics.EXPANDED.inc(expanded)
        if expanded or deliveries.advance_replay(connection):
            self._claimer.wake()
        return 0.0 if expanded else PROMOTE_EVERY_S

    def _give_back_strays(self, connection: psycopg.Connection) -> None:
        """Return rows that two rounds running were this worker's and not in its hands.

        Once is not enough: a claim may have been committed a moment ago.
        """
        worker_id = self._lease.row
        if worker_id is None:
            return
        theirs = deliveries.held_by(connection, worker_id)
        held = set(self._hands.ids())
        strays = {claim for claim in theirs if claim[0] not in held}
        deliveries.give_back(connection, worker_id, strays & self._strays)
        self._strays = strays - self._strays

    def _beat(self, connection: psycopg.Connection) -> float:
        if not self._lease.renew(connection, self._hands.held):
            self._hands.drop_waiting()
            self._lease.begin(connection)
            self._claimer.wake()
        return self._settings.heartbeat_s

    def _fenced(self) -> None:
        log.warning("the lease was lost: what was claimed is dropped, registering anew")
        self._hands.drop_waiting()
        self._lease.lose()
        self._heart.wake()

    def _listen(self) -> None:
        url = self._settings.listen_url or self._settings.database_url
        listen(url, self._woken, lambda: not self._running)

    def _woken(self, says: str) -> None:
        self._claimer.wake()
        if says == FAN_OUT:
            self._keeper.wake()
