"""Cases: trainings on CPUs of a machine that is computed, each fault with the same training without it."""

from collections.abc import Callable
from random import Random

from truths import faults_of_hosts as hosts
from truths.case import Case
from truths.host_runs import Hosted, HostProgram


def _twins(
    name: str,
    program: Callable[[Random, bool], HostProgram],
    rule: str,
    *,
    allowed: tuple[str, ...] = (),
    without: str,
) -> tuple[Case, Case]:
    """A fault, which a rule names, and the same training without it, of which the rule can judge, too."""
    faulty = Case(
        name=f"host: {name}",
        source=Hosted(program=program),
        expected=((rule,),),
        verdicts=("host-bound",),
        allowed=allowed,
    )
    healthy = Case(
        name=f"host: {without}",
        source=Hosted(program=program, faulty=False),
        group="healthy",
        verdicts=("compute-bound",),
        must_judge=(rule, "blocked-in-step"),
    )
    return faulty, healthy


HOSTS: tuple[Case, ...] = (
    *_twins(
        "the quota of the container is used up",
        hosts.quota_used_up,
        "host-cpu-quota",
        allowed=("cpu-contention", "cpu-oversubscription"),  # threads that fit into the quota are another way out
        without="no quota is used up",
    ),
    *_twins("memory comes from swap", hosts.swapped_memory, "host-swap", without="memory is there"),
    *_twins(
        "memory comes from swap, and for how long is not counted",
        hosts.swapped_memory_untimed,
        "host-swap",
        without="memory is there, and waits for it are not counted",
    ),
    Case(
        name="host: the memory of others comes from swap",
        source=Hosted(program=hosts.swapped_memory_of_others),
        group="decoy",
        verdicts=("compute-bound",),
        must_judge=("host-swap",),
    ),
)
