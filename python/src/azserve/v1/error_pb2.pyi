from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CODE_UNSPECIFIED: _ClassVar[ErrorCode]
    ERROR_CODE_INVALID_ARGUMENT: _ClassVar[ErrorCode]
    ERROR_CODE_KEYWORD: _ClassVar[ErrorCode]
    ERROR_CODE_STALE_STATE: _ClassVar[ErrorCode]
    ERROR_CODE_FOREIGN_STATE: _ClassVar[ErrorCode]
    ERROR_CODE_BUDGET: _ClassVar[ErrorCode]
    ERROR_CODE_ACTION: _ClassVar[ErrorCode]
    ERROR_CODE_ENV_ID: _ClassVar[ErrorCode]
    ERROR_CODE_ENV_BUSY: _ClassVar[ErrorCode]
    ERROR_CODE_NOTHING_IN_FLIGHT: _ClassVar[ErrorCode]
    ERROR_CODE_RECV_TIMEOUT: _ClassVar[ErrorCode]
    ERROR_CODE_CLOSED: _ClassVar[ErrorCode]
    ERROR_CODE_EPISODE_ENDED: _ClassVar[ErrorCode]
    ERROR_CODE_NOT_STARTED: _ClassVar[ErrorCode]
    ERROR_CODE_BAD_STATE: _ClassVar[ErrorCode]
    ERROR_CODE_EVALUATOR: _ClassVar[ErrorCode]
    ERROR_CODE_PANIC: _ClassVar[ErrorCode]
    ERROR_CODE_UNKNOWN_ENV: _ClassVar[ErrorCode]
    ERROR_CODE_OTHER: _ClassVar[ErrorCode]
    ERROR_CODE_CALL_ORDER: _ClassVar[ErrorCode]
    ERROR_CODE_UNSUPPORTED: _ClassVar[ErrorCode]
    ERROR_CODE_UNAUTHENTICATED: _ClassVar[ErrorCode]
    ERROR_CODE_PERMISSION: _ClassVar[ErrorCode]
    ERROR_CODE_OVERLOADED: _ClassVar[ErrorCode]
    ERROR_CODE_UNAVAILABLE: _ClassVar[ErrorCode]
    ERROR_CODE_UNKNOWN_MODEL: _ClassVar[ErrorCode]
    ERROR_CODE_DEADLINE: _ClassVar[ErrorCode]
    ERROR_CODE_CANCELLED: _ClassVar[ErrorCode]
    ERROR_CODE_TOO_LARGE: _ClassVar[ErrorCode]
ERROR_CODE_UNSPECIFIED: ErrorCode
ERROR_CODE_INVALID_ARGUMENT: ErrorCode
ERROR_CODE_KEYWORD: ErrorCode
ERROR_CODE_STALE_STATE: ErrorCode
ERROR_CODE_FOREIGN_STATE: ErrorCode
ERROR_CODE_BUDGET: ErrorCode
ERROR_CODE_ACTION: ErrorCode
ERROR_CODE_ENV_ID: ErrorCode
ERROR_CODE_ENV_BUSY: ErrorCode
ERROR_CODE_NOTHING_IN_FLIGHT: ErrorCode
ERROR_CODE_RECV_TIMEOUT: ErrorCode
ERROR_CODE_CLOSED: ErrorCode
ERROR_CODE_EPISODE_ENDED: ErrorCode
ERROR_CODE_NOT_STARTED: ErrorCode
ERROR_CODE_BAD_STATE: ErrorCode
ERROR_CODE_EVALUATOR: ErrorCode
ERROR_CODE_PANIC: ErrorCode
ERROR_CODE_UNKNOWN_ENV: ErrorCode
ERROR_CODE_OTHER: ErrorCode
ERROR_CODE_CALL_ORDER: ErrorCode
ERROR_CODE_UNSUPPORTED: ErrorCode
ERROR_CODE_UNAUTHENTICATED: ErrorCode
ERROR_CODE_PERMISSION: ErrorCode
ERROR_CODE_OVERLOADED: ErrorCode
ERROR_CODE_UNAVAILABLE: ErrorCode
ERROR_CODE_UNKNOWN_MODEL: ErrorCode
ERROR_CODE_DEADLINE: ErrorCode
ERROR_CODE_CANCELLED: ErrorCode
ERROR_CODE_TOO_LARGE: ErrorCode

class Error(_message.Message):
    __slots__ = ("code", "message", "path", "row", "retryable", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    message: str
    path: str
    row: int
    retryable: bool
    retry_after_ms: int
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ..., path: _Optional[str] = ..., row: _Optional[int] = ..., retryable: bool = ..., retry_after_ms: _Optional[int] = ...) -> None: ...
