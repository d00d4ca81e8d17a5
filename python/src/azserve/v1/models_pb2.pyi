from azserve.v1 import envs_pb2 as _envs_pb2
from azserve.v1 import search_pb2 as _search_pb2
from azserve.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "kind", "version", "versions", "ready", "evaluators", "requests", "rows", "batches", "failed", "default")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    EVALUATORS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    version: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    ready: bool
    evaluators: int
    requests: int
    rows: int
    batches: int
    failed: int
    default: bool
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., version: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ..., ready: bool = ..., evaluators: _Optional[int] = ..., requests: _Optional[int] = ..., rows: _Optional[int] = ..., batches: _Optional[int] = ..., failed: _Optional[int] = ..., default: bool = ...) -> None: ...

class LoadModelRequest(_message.Message):
    __slots__ = ("name", "version", "files", "activate")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    ACTIVATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    files: _containers.RepeatedCompositeFieldContainer[File]
    activate: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., files: _Optional[_Iterable[_Union[File, _Mapping]]] = ..., activate: bool = ...) -> None: ...

class File(_message.Message):
    __slots__ = ("name", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    data: bytes
    def __init__(self, name: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class LoadModelResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    def __init__(self, version: _Optional[str] = ...) -> None: ...

class ActivateRequest(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class ActivateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EvaluateRequest(_message.Message):
    __slots__ = ("env", "model", "states", "pool_states", "moves", "observations", "seed")
    ENV_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    POOL_STATES_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    env: _envs_pb2.EnvRef
    model: str
    states: _envs_pb2.StateBytes
    pool_states: _search_pb2.PoolStates
    moves: _search_pb2.Games
    observations: Observations
    seed: int
    def __init__(self, env: _Optional[_Union[_envs_pb2.EnvRef, _Mapping]] = ..., model: _Optional[str] = ..., states: _Optional[_Union[_envs_pb2.StateBytes, _Mapping]] = ..., pool_states: _Optional[_Union[_search_pb2.PoolStates, _Mapping]] = ..., moves: _Optional[_Union[_search_pb2.Games, _Mapping]] = ..., observations: _Optional[_Union[Observations, _Mapping]] = ..., seed: _Optional[int] = ...) -> None: ...

class Observations(_message.Message):
    __slots__ = ("obs", "action_mask")
    OBS_FIELD_NUMBER: _ClassVar[int]
    ACTION_MASK_FIELD_NUMBER: _ClassVar[int]
    obs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    action_mask: _tensor_pb2.Tensor
    def __init__(self, obs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., action_mask: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class EvaluateResponse(_message.Message):
    __slots__ = ("prior_logits", "value", "version")
    PRIOR_LOGITS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    prior_logits: _tensor_pb2.Tensor
    value: _tensor_pb2.Tensor
    version: int
    def __init__(self, prior_logits: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("hello", "answer", "failure", "weights")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    answer: Answer
    failure: Failure
    weights: Weights
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., weights: _Optional[_Union[Weights, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("model", "name", "max_batch", "in_flight", "weights")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    name: str
    max_batch: int
    in_flight: int
    weights: Weights
    def __init__(self, model: _Optional[str] = ..., name: _Optional[str] = ..., max_batch: _Optional[int] = ..., in_flight: _Optional[int] = ..., weights: _Optional[_Union[Weights, _Mapping]] = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("versions",)
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, versions: _Optional[_Iterable[int]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("id", "prior_logits", "value")
    ID_FIELD_NUMBER: _ClassVar[int]
    PRIOR_LOGITS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    id: int
    prior_logits: _tensor_pb2.Tensor
    value: _tensor_pb2.Tensor
    def __init__(self, id: _Optional[int] = ..., prior_logits: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("id", "message", "no_weights")
    ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NO_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    id: int
    message: str
    no_weights: bool
    def __init__(self, id: _Optional[int] = ..., message: _Optional[str] = ..., no_weights: bool = ...) -> None: ...

class AttachResponse(_message.Message):
    __slots__ = ("welcome", "batch", "cancel")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    batch: EvaluationBatch
    cancel: CancelBatch
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., batch: _Optional[_Union[EvaluationBatch, _Mapping]] = ..., cancel: _Optional[_Union[CancelBatch, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("name", "timeout_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    timeout_ms: int
    def __init__(self, name: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class EvaluationBatch(_message.Message):
    __slots__ = ("id", "version", "env", "keywords", "obs", "action_mask", "num_actions", "chance")
    class KeywordsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    OBS_FIELD_NUMBER: _ClassVar[int]
    ACTION_MASK_FIELD_NUMBER: _ClassVar[int]
    NUM_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    CHANCE_FIELD_NUMBER: _ClassVar[int]
    id: int
    version: int
    env: str
    keywords: _containers.ScalarMap[str, str]
    obs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    action_mask: _tensor_pb2.Tensor
    num_actions: int
    chance: _tensor_pb2.Tensor
    def __init__(self, id: _Optional[int] = ..., version: _Optional[int] = ..., env: _Optional[str] = ..., keywords: _Optional[_Mapping[str, str]] = ..., obs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., action_mask: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., num_actions: _Optional[int] = ..., chance: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class CancelBatch(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...
