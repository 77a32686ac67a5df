"""A device in host memory that takes the place of trajd.cuda's. A test decides when its copies end."""
import numpy as np


class HostEvent:
    def __init__(self, device):
        self.device, self.over = device, device.prompt

    def query(self):
        return self.over

    def synchronize(self):
        self.device.waits += not self.over
        self.over = True


class HostDevice:
    def __init__(self, name):
        self.name, self.prompt, self.waits, self.events, self.rings, self.handed = name, True, 0, [], [], 0
        self.stream, self.readers = 0, []

    def register(self, ring):
        self.rings.append(ring.base)
        return True

    def unregister(self, ring):
        self.rings.remove(ring.base)

    def copy(self, plan, sources, frames):
        block = np.zeros(plan.size, np.uint8)
        for offset, source in zip((0,) if plan.in_one_copy else plan.offsets, sources):
            block[offset:offset + source.size] = source
        self.events.append(HostEvent(self))
        from trajd.arrays import finish_numpy  # tests/python adds the package to the path after this import

        finished = [finish_numpy(self.view(block, each.offset, each.size, "u8", each.shape), each.finish)
                    for each in frames]
        return block, finished, self.events[-1]

    def current_stream(self):
        return self.stream

    def hand_over(self, blocks, event, stream=None):
        self.handed += 1
        self.readers.append((id(blocks[0]), event.over, self.stream if stream is None else stream))

    def view(self, block, offset, size, dtype, shape):
        kind = {"f32": np.float32, "f16": np.float16, "i64": np.int64, "u8": np.uint8}[dtype]
        return block[offset:offset + size].view(kind).reshape(shape)

    def settle(self):
        pass
