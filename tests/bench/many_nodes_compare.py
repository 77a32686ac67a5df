"""Helper of many_nodes.py: a rank on each node, as a thread. Each opens the feed at the daemon of its node, and all compare
what they see over one TCPStore, as under torchrun. Prints the times from the first OPEN to the end of the comparison.

usage: many_nodes_compare.py PACKAGE ENDPOINT..."""
import json
import os
import resource
import sys
import threading
import time

from torch.distributed import TCPStore

sys.path.insert(0, sys.argv[1])
import trajd  # noqa: E402
from trajd import agree  # noqa: E402


def main():
    endpoints, taken, failed = sys.argv[2:], [], []
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port), TORCHELASTIC_USE_AGENT_STORE="True",
                      WORLD_SIZE=str(len(endpoints)))
    compared = agree.compare

    def timed(*arguments):
        gate.wait()
        begin = time.perf_counter()
        compared(*arguments)
        taken.append(time.perf_counter() - begin)

    def open_feed(rank):
        try:
            with trajd.connect(endpoints[rank], feed="train", rank=rank, world_size=len(endpoints), local_ranks=[rank], timeout=300) as feed:
                feed.info
        except trajd.Error as error:
            failed.append(str(error))
            gate.abort()

    gate, agree.compare = threading.Barrier(len(endpoints)), timed
    ranks = [threading.Thread(target=open_feed, args=[rank]) for rank in range(len(endpoints))]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert not failed, failed[:3]
    taken.sort()
    print(json.dumps({"compare_ranks": len(taken), "compare_p50_s": round(taken[len(taken) // 2], 3), "compare_p99_s": round(taken[int(0.99 * len(taken))], 3)}))


main()
