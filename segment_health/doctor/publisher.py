"""Who publishes in the directory. Pure."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from segment_health import scope as scopes

from .check import error, ok, seconds, skipped, warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segment_health.memory import Heartbeat

    from .check import Check

CHECKS = ("publisher.alive", "publisher.policy", "publisher.overlap")
_SHOWN = 5


def living(heartbeats: Sequence[Heartbeat], now: float) -> list[Heartbeat]:
    """Return those whose publisher counts as alive, the last to make a pass first."""
    alive = [beat for beat in heartbeats if beat.is_alive(now)]
    return sorted(alive, key=lambda beat: beat.last_complete_pass, reverse=True)


def asking_elsewhere(alive: Sequence[Heartbeat], host: str) -> str | None:
    """Name a publisher that lives on another host and goes on asking Slurm; None where there is none."""
    asking = [beat.publisher for beat in alive if beat.loop and beat.publisher.host != host]
    return f"{asking[0].scope} on {asking[0].host}" if asking else None


def serves_many(heartbeats: Sequence[Heartbeat]) -> bool:
    """Whether a publisher of other people's jobs has been here, alive or not."""
    return any(scopes.named(beat.publisher.scope).kind in {"all", "partition"} for beat in heartbeats)


def check_alive(heartbeats: Sequence[Heartbeat], now: float, own_job: str | None) -> Check:
    """Judge whether anybody decides here: of a dead publisher the exclusions stay, and nothing new is excluded.

    Of sidecars that died only `own_job`'s is an error: those of other jobs ended with their jobs. A heartbeat that
    no loop makes is a warning: nobody here can tell whether there will be a next one.
    """
    name = "publisher.alive"
    if not heartbeats:
        return warning(
            name,
            "no publisher has made a complete pass here yet",
            "segment-health publish --dir DIR --all, in a job without --all, or from cron with --once",
        )
    alive = living(heartbeats, now)
    watched = {(beat.publisher.cluster, beat.publisher.scope) for beat in alive}
    dead = [beat for beat in heartbeats if beat not in alive and not _is_covered(beat, watched)]
    lost = [beat for beat in dead if _is_missed(beat, own_job)]
    remedy = (
        "start it again (its log says why it ended), or let cron run `segment-health prune --dir DIR "
        "--max-age 1h`: until then its exclusions stay, and nothing new is excluded"
    )
    if lost:
        return error(name, "; ".join(_told(beat, now) for beat in lost[:_SHOWN]), remedy)
    loops = [beat for beat in alive if beat.loop]
    watched = {(beat.publisher.cluster, beat.publisher.scope) for beat in loops}
    single = [beat for beat in alive if not beat.loop and not _is_covered(beat, watched)]
    if single and (not loops or any(_is_missed(beat, own_job) for beat in single)):
        return warning(
            name,
            "; ".join(_told(beat, now) for beat in single[:_SHOWN]),
            "start `segment-health publish` without --once, or let cron run it every INTERVAL seconds",
        )
    if not alive:
        return warning(name, "; ".join(_told(beat, now) for beat in dead[:_SHOWN]), remedy)
    return ok(name, "; ".join(_told(beat, now) for beat in alive[:_SHOWN]))


def check_policy(alive: Sequence[Heartbeat]) -> Check:
    """Judge whether every living publisher uses the newest policy."""
    name = "publisher.policy"
    if not alive:
        return skipped(name, "no publisher lives")
    wrong = [beat for beat in alive if beat.policy_error is not None]
    if wrong:
        told = "; ".join(f"{beat.publisher.scope}: {beat.policy_error}" for beat in wrong[:_SHOWN])
        return error(
            name,
            f"{told}; judged by {wrong[0].policy}",
            "mend the file (`segment-health policy check FILE`); a restart would refuse it",
        )
    return ok(name, "; ".join(sorted({beat.policy for beat in alive})))


def check_overlap(alive: Sequence[Heartbeat]) -> Check:
    """Tell where two publishers speak for the same units: the contract says whose word counts."""
    name = "publisher.overlap"
    if not alive:
        return skipped(name, "no publisher lives")
    told = [
        f"{one.publisher.scope} and {other.publisher.scope}"
        for one, other in combinations(alive, 2)
        if one.publisher.cluster == other.publisher.cluster
        and _overlap(one.publisher.scope, other.publisher.scope)
    ]
    if told:
        return ok(name, f"{', '.join(told[:_SHOWN])} overlap: whoever wrote an exclusion lifts it")
    return ok(name, "no unit is watched twice")


def _overlap(one: str, other: str) -> bool:
    """Whether two scopes can have a unit in common, as far as their names tell."""
    first, second = scopes.named(one), scopes.named(other)
    if first.kind == second.kind:
        return first.kind == "all" or not set(first.values).isdisjoint(second.values)
    return "all" in {first.kind, second.kind} or {first.kind, second.kind} == {"user", "partition"}


def _is_covered(beat: Heartbeat, watched: set[tuple[str, str]]) -> bool:
    """Whether a living publisher of everything speaks for what a dead one left."""
    return (beat.publisher.cluster, "all") in watched


def _is_missed(beat: Heartbeat, own_job: str | None) -> bool:
    scope = scopes.named(beat.publisher.scope)
    return scope.kind != "job" or own_job in scope.values


def _told(beat: Heartbeat, now: float) -> str:
    who, age = beat.publisher, now - beat.last_complete_pass
    when = f"{seconds(age)} ago" if age >= 0 else f"{seconds(-age)} in the future, by this host's clock"
    name, last = f"{who.scope} of {who.cluster} on {who.host}", f"last complete pass {when}"
    if beat.is_alive(now) and not beat.loop:
        by = "by a single pass, or by a publisher that has ended"
        return f"{name}: {last} {by}: nobody makes the next one unless cron does"
    alive = "alive" if beat.is_alive(now) else "dead"
    return f"{name}: {alive}, {last}, one is due every {seconds(beat.interval)}"
