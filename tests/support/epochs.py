"""Reads batches of the feed `train` through libtrajd clients and returns their window ids."""
import libtrajd as trajd


def take(client, count):
    """Returns the window ids of the next `count` batches. Each batch is released before the next one is requested."""
    ids = []
    for _ in range(count):
        batch = client.next()
        ids += batch.arrays()["window_id"].tolist()
        batch.release()
    return ids


def rest(client):
    """Returns the window ids of all batches up to the end of the epoch."""
    return [i for _, arrays in client.epoch() for i in arrays["window_id"].tolist()]


def sequence(one, epoch=0):
    """Returns the window ids of an epoch in the order in which a single worker gets them."""
    client = one.client()
    client.open("train", epoch=epoch)
    ids = rest(client)
    client.close()
    return ids


def global_batches(clients, count=None):
    """Yields (position, window ids over all ranks) of the next `count` global batches. The clients are the ranks in order."""
    while count is None or count > 0:
        parts = [client.next() for client in clients]
        if parts[0] is None:
            assert all(part is None for part in parts)
            return
        assert len({part.position for part in parts}) == 1
        yield parts[0].position, [i for part in parts for i in part.arrays()["window_id"].tolist()]
        for part in parts:
            part.release()
        count = count and count - 1


def arrays_of(clients):
    """Reads the epoch with one client per rank. Returns {(position, rank): arrays}."""
    result = {}
    while True:
        parts = [client.next() for client in clients]
        if parts[0] is None:
            return result
        for rank, part in enumerate(parts):
            result[part.position, rank] = part.copy()
            part.release()


def open_local(one, ranks, world):
    """Returns one client per rank. Each open tells the daemon that all of `ranks` read from it."""
    clients = [one.client() for _ in ranks]
    for rank, client in zip(ranks, clients):
        info = client.open("train", mode=trajd.SHARD, rank=rank, world=world, local=ranks)
        assert info.row_begin == info.global_batch * rank // world
    return clients


def jobs_of(one):
    """Returns {feed: job} of the feeds that have members."""
    client = one.client()
    status = client.status()
    client.close()
    return {feed["name"]: feed["job"] for feed in status["feeds"] if feed["members"]}
