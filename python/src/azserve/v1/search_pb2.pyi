from azserve.v1 import envs_pb2 as _envs_pb2
from azserve.v1 import error_pb2 as _error_pb2
from azserve.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchRequest(_message.Message):
    __slots__ = ("env", "states", "pool_states", "moves", "model", "settings", "seed", "seeds", "invalid_actions", "simulations", "time_limit", "fast", "dirichlet_noise", "root_gumbel", "action_gumbel")
    ENV_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    POOL_STATES_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    INVALID_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    SIMULATIONS_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    FAST_FIELD_NUMBER: _ClassVar[int]
    DIRICHLET_NOISE_FIELD_NUMBER: _ClassVar[int]
    ROOT_GUMBEL_FIELD_NUMBER: _ClassVar[int]
    ACTION_GUMBEL_FIELD_NUMBER: _ClassVar[int]
    env: _envs_pb2.EnvRef
    states: _envs_pb2.StateBytes
    pool_states: PoolStates
    moves: Games
    model: str
    settings: SearchSettings
    seed: int
    seeds: _tensor_pb2.Tensor
    invalid_actions: _tensor_pb2.Tensor
    simulations: _tensor_pb2.Tensor
    time_limit: _tensor_pb2.Tensor
    fast: _tensor_pb2.Tensor
    dirichlet_noise: _tensor_pb2.Tensor
    root_gumbel: _tensor_pb2.Tensor
    action_gumbel: _tensor_pb2.Tensor
    def __init__(self, env: _Optional[_Union[_envs_pb2.EnvRef, _Mapping]] = ..., states: _Optional[_Union[_envs_pb2.StateBytes, _Mapping]] = ..., pool_states: _Optional[_Union[PoolStates, _Mapping]] = ..., moves: _Optional[_Union[Games, _Mapping]] = ..., model: _Optional[str] = ..., settings: _Optional[_Union[SearchSettings, _Mapping]] = ..., seed: _Optional[int] = ..., seeds: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., invalid_actions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., simulations: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., time_limit: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., fast: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dirichlet_noise: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., root_gumbel: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., action_gumbel: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class PoolStates(_message.Message):
    __slots__ = ("pool", "state_id")
    POOL_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    pool: str
    state_id: _tensor_pb2.Tensor
    def __init__(self, pool: _Optional[str] = ..., state_id: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Games(_message.Message):
    __slots__ = ("games",)
    GAMES_FIELD_NUMBER: _ClassVar[int]
    games: _containers.RepeatedCompositeFieldContainer[Game]
    def __init__(self, games: _Optional[_Iterable[_Union[Game, _Mapping]]] = ...) -> None: ...

class Game(_message.Message):
    __slots__ = ("seed", "actions")
    SEED_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    seed: int
    actions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, seed: _Optional[int] = ..., actions: _Optional[_Iterable[int]] = ...) -> None: ...

class SearchSettings(_message.Message):
    __slots__ = ("policy", "num_simulations", "max_depth", "leaves_per_step", "pb_c_init", "pb_c_base", "qtransform", "epsilon", "min_value", "max_value", "value_scale", "maxvisit_init", "rescale_values", "use_mixed_value", "fpu", "fpu_reduction", "fpu_value", "root_fpu", "root_fpu_reduction", "root_fpu_value", "max_num_considered_actions", "forced_playouts", "lcb", "lcb_min_visits", "early_stop", "count_kept", "max_nodes", "solve", "keep_tree", "dirichlet_fraction", "dirichlet_alpha", "temperature", "gumbel_scale", "visit_offset", "value_cutoff", "discount", "pipeline", "max_bytes")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    NUM_SIMULATIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    LEAVES_PER_STEP_FIELD_NUMBER: _ClassVar[int]
    PB_C_INIT_FIELD_NUMBER: _ClassVar[int]
    PB_C_BASE_FIELD_NUMBER: _ClassVar[int]
    QTRANSFORM_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    MIN_VALUE_FIELD_NUMBER: _ClassVar[int]
    MAX_VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUE_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAXVISIT_INIT_FIELD_NUMBER: _ClassVar[int]
    RESCALE_VALUES_FIELD_NUMBER: _ClassVar[int]
    USE_MIXED_VALUE_FIELD_NUMBER: _ClassVar[int]
    FPU_FIELD_NUMBER: _ClassVar[int]
    FPU_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    FPU_VALUE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FPU_FIELD_NUMBER: _ClassVar[int]
    ROOT_FPU_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    ROOT_FPU_VALUE_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_CONSIDERED_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    FORCED_PLAYOUTS_FIELD_NUMBER: _ClassVar[int]
    LCB_FIELD_NUMBER: _ClassVar[int]
    LCB_MIN_VISITS_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOP_FIELD_NUMBER: _ClassVar[int]
    COUNT_KEPT_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    SOLVE_FIELD_NUMBER: _ClassVar[int]
    KEEP_TREE_FIELD_NUMBER: _ClassVar[int]
    DIRICHLET_FRACTION_FIELD_NUMBER: _ClassVar[int]
    DIRICHLET_ALPHA_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    GUMBEL_SCALE_FIELD_NUMBER: _ClassVar[int]
    VISIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VALUE_CUTOFF_FIELD_NUMBER: _ClassVar[int]
    DISCOUNT_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    policy: str
    num_simulations: int
    max_depth: int
    leaves_per_step: int
    pb_c_init: float
    pb_c_base: float
    qtransform: str
    epsilon: float
    min_value: float
    max_value: float
    value_scale: float
    maxvisit_init: float
    rescale_values: bool
    use_mixed_value: bool
    fpu: str
    fpu_reduction: float
    fpu_value: float
    root_fpu: str
    root_fpu_reduction: float
    root_fpu_value: float
    max_num_considered_actions: int
    forced_playouts: float
    lcb: float
    lcb_min_visits: float
    early_stop: bool
    count_kept: bool
    max_nodes: int
    solve: bool
    keep_tree: bool
    dirichlet_fraction: float
    dirichlet_alpha: float
    temperature: float
    gumbel_scale: float
    visit_offset: float
    value_cutoff: float
    discount: float
    pipeline: bool
    max_bytes: int
    def __init__(self, policy: _Optional[str] = ..., num_simulations: _Optional[int] = ..., max_depth: _Optional[int] = ..., leaves_per_step: _Optional[int] = ..., pb_c_init: _Optional[float] = ..., pb_c_base: _Optional[float] = ..., qtransform: _Optional[str] = ..., epsilon: _Optional[float] = ..., min_value: _Optional[float] = ..., max_value: _Optional[float] = ..., value_scale: _Optional[float] = ..., maxvisit_init: _Optional[float] = ..., rescale_values: bool = ..., use_mixed_value: bool = ..., fpu: _Optional[str] = ..., fpu_reduction: _Optional[float] = ..., fpu_value: _Optional[float] = ..., root_fpu: _Optional[str] = ..., root_fpu_reduction: _Optional[float] = ..., root_fpu_value: _Optional[float] = ..., max_num_considered_actions: _Optional[int] = ..., forced_playouts: _Optional[float] = ..., lcb: _Optional[float] = ..., lcb_min_visits: _Optional[float] = ..., early_stop: bool = ..., count_kept: bool = ..., max_nodes: _Optional[int] = ..., solve: bool = ..., keep_tree: bool = ..., dirichlet_fraction: _Optional[float] = ..., dirichlet_alpha: _Optional[float] = ..., temperature: _Optional[float] = ..., gumbel_scale: _Optional[float] = ..., visit_offset: _Optional[float] = ..., value_cutoff: _Optional[float] = ..., discount: _Optional[float] = ..., pipeline: bool = ..., max_bytes: _Optional[int] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("action", "action_weights", "visits", "qvalues", "value", "raw_value", "proven", "stats", "version", "errors", "tree", "partial")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ACTION_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    VISITS_FIELD_NUMBER: _ClassVar[int]
    QVALUES_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RAW_VALUE_FIELD_NUMBER: _ClassVar[int]
    PROVEN_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    action: _tensor_pb2.Tensor
    action_weights: _tensor_pb2.Tensor
    visits: _tensor_pb2.Tensor
    qvalues: _tensor_pb2.Tensor
    value: _tensor_pb2.Tensor
    raw_value: _tensor_pb2.Tensor
    proven: _tensor_pb2.Tensor
    stats: SearchStats
    version: int
    errors: _containers.RepeatedCompositeFieldContainer[_error_pb2.Error]
    tree: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    partial: bool
    def __init__(self, action: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., action_weights: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., visits: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., qvalues: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., raw_value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., proven: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., stats: _Optional[_Union[SearchStats, _Mapping]] = ..., version: _Optional[int] = ..., errors: _Optional[_Iterable[_Union[_error_pb2.Error, _Mapping]]] = ..., tree: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., partial: bool = ...) -> None: ...

class SearchStats(_message.Message):
    __slots__ = ("simulations", "evaluations", "batches", "room", "cache_hits", "max_depth", "pruned", "proven_rows")
    SIMULATIONS_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    PROVEN_ROWS_FIELD_NUMBER: _ClassVar[int]
    simulations: int
    evaluations: int
    batches: int
    room: int
    cache_hits: int
    max_depth: int
    pruned: int
    proven_rows: int
    def __init__(self, simulations: _Optional[int] = ..., evaluations: _Optional[int] = ..., batches: _Optional[int] = ..., room: _Optional[int] = ..., cache_hits: _Optional[int] = ..., max_depth: _Optional[int] = ..., pruned: _Optional[int] = ..., proven_rows: _Optional[int] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("begin", "run", "advance", "result", "select", "expand", "stop")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ADVANCE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    EXPAND_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    begin: Begin
    run: RunSearch
    advance: Advance
    result: GetResult
    select: Select
    expand: Expand
    stop: Stop
    def __init__(self, begin: _Optional[_Union[Begin, _Mapping]] = ..., run: _Optional[_Union[RunSearch, _Mapping]] = ..., advance: _Optional[_Union[Advance, _Mapping]] = ..., result: _Optional[_Union[GetResult, _Mapping]] = ..., select: _Optional[_Union[Select, _Mapping]] = ..., expand: _Optional[_Union[Expand, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("search", "ask")
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    search: SearchRequest
    ask: bool
    def __init__(self, search: _Optional[_Union[SearchRequest, _Mapping]] = ..., ask: bool = ...) -> None: ...

class RunSearch(_message.Message):
    __slots__ = ("report_every_ms",)
    REPORT_EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    report_every_ms: int
    def __init__(self, report_every_ms: _Optional[int] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Advance(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _tensor_pb2.Tensor
    def __init__(self, actions: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class GetResult(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Select(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Expand(_message.Message):
    __slots__ = ("prior_logits", "value")
    PRIOR_LOGITS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    prior_logits: _tensor_pb2.Tensor
    value: _tensor_pb2.Tensor
    def __init__(self, prior_logits: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., value: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("begun", "result", "leaves", "done", "error")
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    begun: Begun
    result: SearchResponse
    leaves: Leaves
    done: Done
    error: _error_pb2.Error
    def __init__(self, begun: _Optional[_Union[Begun, _Mapping]] = ..., result: _Optional[_Union[SearchResponse, _Mapping]] = ..., leaves: _Optional[_Union[Leaves, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., error: _Optional[_Union[_error_pb2.Error, _Mapping]] = ...) -> None: ...

class Begun(_message.Message):
    __slots__ = ("rows", "nodes", "width")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    rows: int
    nodes: int
    width: int
    def __init__(self, rows: _Optional[int] = ..., nodes: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...

class Leaves(_message.Message):
    __slots__ = ("obs", "action_mask", "chance")
    OBS_FIELD_NUMBER: _ClassVar[int]
    ACTION_MASK_FIELD_NUMBER: _ClassVar[int]
    CHANCE_FIELD_NUMBER: _ClassVar[int]
    obs: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Tensor]
    action_mask: _tensor_pb2.Tensor
    chance: _tensor_pb2.Tensor
    def __init__(self, obs: _Optional[_Iterable[_Union[_tensor_pb2.Tensor, _Mapping]]] = ..., action_mask: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., chance: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
