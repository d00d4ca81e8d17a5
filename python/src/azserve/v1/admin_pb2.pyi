from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class StatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("version", "uptime", "draining", "running", "queued", "requests", "refused", "failed", "pools", "sessions", "states", "simulations", "expired", "goroutines", "heap_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    SIMULATIONS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    GOROUTINES_FIELD_NUMBER: _ClassVar[int]
    HEAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: str
    uptime: float
    draining: bool
    running: int
    queued: int
    requests: int
    refused: int
    failed: int
    pools: int
    sessions: int
    states: int
    simulations: int
    expired: int
    goroutines: int
    heap_bytes: int
    def __init__(self, version: _Optional[str] = ..., uptime: _Optional[float] = ..., draining: bool = ..., running: _Optional[int] = ..., queued: _Optional[int] = ..., requests: _Optional[int] = ..., refused: _Optional[int] = ..., failed: _Optional[int] = ..., pools: _Optional[int] = ..., sessions: _Optional[int] = ..., states: _Optional[int] = ..., simulations: _Optional[int] = ..., expired: _Optional[int] = ..., goroutines: _Optional[int] = ..., heap_bytes: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("grace",)
    GRACE_FIELD_NUMBER: _ClassVar[int]
    grace: float
    def __init__(self, grace: _Optional[float] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
