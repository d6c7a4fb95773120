"""All cases: faults, pairs of faults, healthy fits, and fits that only look as if something were wrong."""

from truths.case import Case
from truths.cases_of_data import DATA
from truths.cases_of_drivers import DRIVERS
from truths.cases_of_gpus import GPUS
from truths.cases_of_hosts import HOSTS
from truths.cases_of_loops import LOOPS
from truths.cases_of_pairs import PAIRS
from truths.cases_of_ranks import RANKS
from truths.cases_of_recorded import RECORDED
from truths.cases_of_steps import STEPS
from truths.cases_without_fault import DECOYS, HEALTHY

CASES: tuple[Case, ...] = (*DATA, *LOOPS, *STEPS, *RANKS, *PAIRS, *HEALTHY, *DECOYS, *GPUS, *HOSTS, *RECORDED, *DRIVERS)
"""Real fits on the CPU, computed runs on a GPU or on CPUs, recorded traces, and real fits beside a scripted driver."""
