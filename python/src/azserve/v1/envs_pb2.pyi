from azserve.v1 import error_pb2 as _error_pb2
from azserve.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListEnvsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListEnvsResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class EnvRef(_message.Message):
    __slots__ = ("id", "keywords")
    class KeywordsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    keywords: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., keywords: _Optional[_Mapping[str, str]] = ...) -> None: ...

class EnvSpec(_message.Message):
    __slots__ = ("id", "version", "keywords", "obs", "num_actions", "num_players", "num_outcomes", "reward_low", "reward_high", "max_episode_steps", "masks", "any_action", "info", "component_names", "component_sizes", "frame_width", "frame_height", "keyword_docs", "given_keywords")
    class GivenKeywordsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    OBS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_PLAYERS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    REWARD_LOW_FIELD_NUMBER: _ClassVar[int]
    REWARD_HIGH_FIELD_NUMBER: _ClassVar[int]
    MAX_EPISODE_STEPS_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    ANY_ACTION_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_NAMES_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_SIZES_FIELD_NUMBER: _ClassVar[int]
    FRAME_WIDTH_FIELD_NUMBER: _ClassVar[int]
    FRAME_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_DOCS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    keywords: str
    obs: _containers.RepeatedCompositeFieldContainer[ArraySpec]
    num_actions: int
    num_players: int
    num_outcomes: int
    reward_low: float
    reward_high: float
    max_episode_steps: int
    masks: bool
    any_action: bool
    info: _containers.RepeatedCompositeFieldContainer[ArraySpec]
    component_names: _containers.RepeatedScalarFieldContainer[str]
    component_sizes: _containers.RepeatedScalarFieldContainer[int]
    frame_width: int
    frame_height: int
    keyword_docs: _containers.RepeatedCompositeFieldContainer[KeywordDoc]
    given_keywords: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., keywords: _Optional[str] = ..., obs: _Optional[_Iterable[_Union[ArraySpec, _Mapping]]] = ..., num_actions: _Optional[int] = ..., num_players: _Optional[int] = ..., num_outcomes: _Optional[int] = ..., reward_low: _Optional[float] = ..., reward_high: _Optional[float] = ..., max_episode_steps: _Optional[int] = ..., masks: bool = ..., any_action: bool = ..., info: _Optional[_Iterable[_Union[ArraySpec, _Mapping]]] = ..., component_names: _Optional[_Iterable[str]] = ..., component_sizes: _Optional[_Iterable[int]] = ..., frame_width: _Optional[int] = ..., frame_height: _Optional[int] = ..., keyword_docs: _Optional[_Iterable[_Union[KeywordDoc, _Mapping]]] = ..., given_keywords: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ArraySpec(_message.Message):
    __slots__ = ("name", "dtype", "shape", "low", "high")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: _tensor_pb2.DType
    shape: _containers.RepeatedScalarFieldContainer[int]
    low: _containers.RepeatedScalarFieldContainer[float]
    high: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[_tensor_pb2.DType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., low: _Optional[_Iterable[float]] = ..., high: _Optional[_Iterable[float]] = ...) -> None: ...

class KeywordDoc(_message.Message):
    __slots__ = ("name", "type", "default", "doc")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    default: str
    doc: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., default: _Optional[str] = ..., doc: _Optional[str] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("env", "num_envs", "batch_size", "seeds", "autoreset", "max_states", "max_bytes", "record")
    ENV_FIELD_NUMBER: _ClassVar[int]
    NUM_ENVS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    AUTORESET_FIELD_NUMBER: _ClassVar[int]
    MAX_STATES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    env: EnvRef
    num_envs: int
    batch_size: int
    seeds: _containers.RepeatedScalarFieldContainer[int]
    autoreset: str
    max_states: int
    max_bytes: int
    record: bool
    def __init__(self, env: _Optional[_Union[EnvRef, _Mapping]] = ..., num_envs: _Optional[int] = ..., batch_size: _Optional[int] = ..., seeds: _Optional[_Iterable[int]] = ..., autoreset: _Optional[str] = ..., max_states: _Optional[int] = ..., max_bytes: _Optional[int] = ..., record: bool = ...) -> None: ...

class OpenResponse(_message.Message):
    __slots__ = ("pool", "spec", "batch_size", "num_threads", "lease_ms")
    POOL_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_THREADS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    spec: EnvSpec
    batch_size: int
    num_threads: int
    lease_ms: int
    def __init__(self, pool: _Optional[str] = ..., spec: _Optional[_Union[EnvSpec, _Mapping]] = ..., batch_size: _Optional[int] = ..., num_threads: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class PoolRef(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    def __init__(self, pool: _Optional[str] = ...) -> None: ...

class CloseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("lease_ms",)
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    def __init__(self, lease_ms: _Optional[int] = ...) -> None: ...

class PoolStats(_message.Message):
    __slots__ = ("live_states", "states", "reserved_states", "searches", "peak_states", "max_states", "bytes", "pending", "step_time_p50", "step_time_p99", "stragglers")
    LIVE_STATES_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_STATES_FIELD_NUMBER: _ClassVar[int]
    SEARCHES_FIELD_NUMBER: _ClassVar[int]
    PEAK_STATES_FIELD_NUMBER: _ClassVar[int]
    MAX_STATES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_P50_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_P99_FIELD_NUMBER: _ClassVar[int]
    STRAGGLERS_FIELD_NUMBER: _ClassVar[int]
    live_states: int
    states: int
    reserved_states: int
    searches: int
    peak_states: int
    max_states: int
    bytes: int
    pending: int
    step_time_p50: _tensor_pb2.Tensor
    step_time_p99: _tensor_pb2.Tensor
    stragglers: _tensor_pb2.Tensor
    def __init__(self, live_states: _Optional[int] = ..., states: _Optional[int] = ..., reserved_states: _Optional[int] = ..., searches: _Optional[int] = ..., peak_states: _Optional[int] = ..., max_states: _Optional[int] = ..., bytes: _Optional[int] = ..., pending: _Optional[int] = ..., step_time_p50: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., step_time_p99: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., stragglers: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("pool", "env_id", "seeds", "seeded")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    SEEDED_FIELD_NUMBER: _ClassVar[int]
    pool: str
    env_id: _tensor_pb2.Tensor
    seeds: _tensor_pb2.Tensor
    seeded: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., env_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., seeds: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., seeded: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("pool", "actions", "env_id")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    pool: str
    actions: _tensor_pb2.Tensor
    env_id: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., actions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., env_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecvRequest(_message.Message):
    __slots__ = ("pool", "timeout")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    pool: str
    timeout: float
    def __init__(self, pool: _Optional[str] = ..., timeout: _Optional[float] = ...) -> None: ...

class RecvResponse(_message.Message):
    __slots__ = ("obs", "action_mask", "reward", "env_id", "terminated", "truncated", "to_play", "elapsed_step", "rewards", "info", "final_obs", "final_info", "failed", "error")
    OBS_FIELD_NUMBER: _ClassVar[int]
    ACTION_MASK_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    TO_PLAY_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_STEP_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    FINAL_OBS_FIELD_NUMBER: _ClassVar[int]
    FINAL_INFO_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    obs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    action_mask: _tensor_pb2.Tensor
    reward: _tensor_pb2.Tensor
    env_id: _tensor_pb2.Tensor
    terminated: _tensor_pb2.Tensor
    truncated: _tensor_pb2.Tensor
    to_play: _tensor_pb2.Tensor
    elapsed_step: _tensor_pb2.Tensor
    rewards: _tensor_pb2.Tensor
    info: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    final_obs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    final_info: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    failed: _tensor_pb2.Tensor
    error: _error_pb2.Error
    def __init__(self, obs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., action_mask: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., reward: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., env_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., terminated: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., truncated: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., to_play: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., elapsed_step: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rewards: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., info: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., final_obs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., final_info: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., failed: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., error: _Optional[_Union[_error_pb2.Error, _Mapping]] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("reset", "step", "send", "recv", "simulate_batch")
    RESET_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    RECV_FIELD_NUMBER: _ClassVar[int]
    SIMULATE_BATCH_FIELD_NUMBER: _ClassVar[int]
    reset: ResetRequest
    step: SendRequest
    send: SendRequest
    recv: RecvRequest
    simulate_batch: SimulateBatchRequest
    def __init__(self, reset: _Optional[_Union[ResetRequest, _Mapping]] = ..., step: _Optional[_Union[SendRequest, _Mapping]] = ..., send: _Optional[_Union[SendRequest, _Mapping]] = ..., recv: _Optional[_Union[RecvRequest, _Mapping]] = ..., simulate_batch: _Optional[_Union[SimulateBatchRequest, _Mapping]] = ...) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("recv", "send", "simulate_batch", "error")
    RECV_FIELD_NUMBER: _ClassVar[int]
    SEND_FIELD_NUMBER: _ClassVar[int]
    SIMULATE_BATCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    recv: RecvResponse
    send: SendResponse
    simulate_batch: SimulateBatchResponse
    error: _error_pb2.Error
    def __init__(self, recv: _Optional[_Union[RecvResponse, _Mapping]] = ..., send: _Optional[_Union[SendResponse, _Mapping]] = ..., simulate_batch: _Optional[_Union[SimulateBatchResponse, _Mapping]] = ..., error: _Optional[_Union[_error_pb2.Error, _Mapping]] = ...) -> None: ...

class EnvIds(_message.Message):
    __slots__ = ("pool", "env_id")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    pool: str
    env_id: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., env_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class StateIds(_message.Message):
    __slots__ = ("pool", "state_id")
    POOL_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    pool: str
    state_id: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., state_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("pool", "env_id", "state_id")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    pool: str
    env_id: _tensor_pb2.Tensor
    state_id: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., env_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., state_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class RestoreRequest(_message.Message):
    __slots__ = ("pool", "env_id", "state_id")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    pool: str
    env_id: _tensor_pb2.Tensor
    state_id: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., env_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., state_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class RestoreResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SimulateBatchRequest(_message.Message):
    __slots__ = ("pool", "state_id", "actions")
    POOL_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    state_id: _tensor_pb2.Tensor
    actions: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., state_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., actions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class SimulateBatchResponse(_message.Message):
    __slots__ = ("state_id", "view", "reward", "terminated", "truncated", "rewards")
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    state_id: _tensor_pb2.Tensor
    view: View
    reward: _tensor_pb2.Tensor
    terminated: _tensor_pb2.Tensor
    truncated: _tensor_pb2.Tensor
    rewards: _tensor_pb2.Tensor
    def __init__(self, state_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., view: _Optional[_Union[View, _Mapping]] = ..., reward: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., terminated: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., truncated: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rewards: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("obs", "action_mask", "to_play", "info")
    OBS_FIELD_NUMBER: _ClassVar[int]
    ACTION_MASK_FIELD_NUMBER: _ClassVar[int]
    TO_PLAY_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    obs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    action_mask: _tensor_pb2.Tensor
    to_play: _tensor_pb2.Tensor
    info: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    def __init__(self, obs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., action_mask: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., to_play: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., info: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ...) -> None: ...

class ViewResponse(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: View
    def __init__(self, view: _Optional[_Union[View, _Mapping]] = ...) -> None: ...

class StateBytes(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, states: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LoadRequest(_message.Message):
    __slots__ = ("pool", "states")
    POOL_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    states: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, pool: _Optional[str] = ..., states: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RenderResponse(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _tensor_pb2.Tensor
    def __init__(self, frames: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class QueryMaskRequest(_message.Message):
    __slots__ = ("rows", "prefix", "prefix_len", "width")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PREFIX_LEN_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    rows: Rows
    prefix: _tensor_pb2.Tensor
    prefix_len: _tensor_pb2.Tensor
    width: int
    def __init__(self, rows: _Optional[_Union[Rows, _Mapping]] = ..., prefix: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., prefix_len: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., width: _Optional[int] = ...) -> None: ...

class QueryMaskResponse(_message.Message):
    __slots__ = ("mask",)
    MASK_FIELD_NUMBER: _ClassVar[int]
    mask: _tensor_pb2.Tensor
    def __init__(self, mask: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class HashResponse(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _tensor_pb2.Tensor
    def __init__(self, keys: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class TextResponse(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...

class ReplayRequest(_message.Message):
    __slots__ = ("pool", "env_id", "step")
    POOL_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    pool: str
    env_id: _tensor_pb2.Tensor
    step: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., env_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., step: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class ActionsResponse(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    def __init__(self, actions: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ...) -> None: ...
