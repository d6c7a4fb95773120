"""All cases."""

from planted_loops import cases_of_data, cases_of_fits, cases_of_stages, cases_of_steps, two_ranks

CASES = (*cases_of_steps.CASES, *cases_of_data.CASES, *cases_of_fits.CASES, *cases_of_stages.CASES, *two_ranks.CASES)
