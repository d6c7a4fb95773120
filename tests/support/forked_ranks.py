"""Ranks of a job, forked from a process that has imported torch and Lightning, which takes each of them seconds."""

import os
import socket
import sys
from collections.abc import Callable


def forked_ranks(work: Callable[[int], object], *, nodes: bool = False, ranks: int = 2) -> list[int]:
    """Let ranks work and end; gives their process ids.

    Args:
        work: What a rank does, called with its number.
        nodes: Each is a node of its own: nobody is there who would end the one when the other is killed.
        ranks: How many.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    pids = []
    for rank in range(ranks):
        if not (pid := os.fork()):
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
            os.environ["NODE_RANK"], os.environ["LOCAL_RANK"] = (str(rank), "0") if nodes else ("0", str(rank))
            work(rank)
            sys.exit()
        pids.append(pid)
    return pids
