"""Advice that is tried: settings change in turn while a training runs; the steps of each are compared with the base.

Flows in: a plan (arms, seconds). Flows out: events (blocks of steps), from which :mod:`.judging` makes results.
"""
