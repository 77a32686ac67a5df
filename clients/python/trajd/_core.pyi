from typing import Any, List, Optional, Tuple

version: str

def set_errors(classes: List[type]) -> None: ...

class Tensor:
    __array_struct__: Any
    shape: Tuple[int, ...]
    dtype: str
    address: int
    read_only: bool
    def __dlpack__(self, *, stream: Optional[int] = ..., max_version: Optional[Tuple[int, int]] = ...,
                   dl_device: Optional[Tuple[int, int]] = ..., copy: Optional[bool] = ...) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...

class Ring:
    base: int
    size_bytes: int
    writable: bool

class Batch:
    epoch: int
    position: int
    row_begin: int
    row_count: int
    ready_ns: int
    sequence: int
    live: int
    released: bool
    writable: bool
    def schema(self) -> List[Tuple[str, str, Optional[str], str, List[int]]]: ...
    def tensor(self, index: int) -> Tensor: ...
    def slab(self) -> Tensor: ...
    def ring(self) -> Optional[Ring]: ...
    def done(self) -> None: ...
    def release(self) -> None: ...

class Client:
    closed: bool
    def __init__(self, *, endpoint: Optional[str] = ..., name: Optional[str] = ..., timeout_ms: int = ...,
                 reconnect: bool = ..., explicit_done: bool = ...) -> None: ...
    def open(self, *, feed: Optional[str] = ..., spec: Optional[str] = ..., job: Optional[str] = ..., shard: bool = ...,
             rank: int = ..., world: int = ..., credit: int = ..., epoch: int = ..., next: int = ..., fingerprint: int = ...,
             timeout_ms: int = ...) -> "dict[str, int]": ...
    def next(self, timeout_ms: int) -> Optional[Batch]: ...
    def status(self, timeout_ms: int = ...) -> str: ...
    def ask(self, what: str, *, name: Optional[str] = ..., window: int = ..., first: int = ..., count: int = ...,
            timeout_ms: int = ...) -> str: ...
    def close(self) -> None: ...
