"""Evaluators that attach themselves to a server."""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from typing import Any

import grpc
import numpy as np

from . import _arrays, _errors, _wire
from ._client import MAX_MESSAGE, TLSFiles, channel
from ._search import Evaluator
from .v1 import models_pb2, models_pb2_grpc

_log = logging.getLogger("azserve")


def serve_evaluator(
    target: str,
    model: str,
    fn: Evaluator,
    *,
    max_batch: int = 256,
    version: int = 0,
    in_flight: int = 2,
    name: str = "",
    token: str | None = None,
    tls: TLSFiles | bool | None = None,
    max_message: int = MAX_MESSAGE,
    keep: int = 2,
    wait: bool = True,
) -> EvaluatorServer:
    """Evaluate for the searches of a server, as a model of it.

    This process dials in, so it may be behind a firewall, on the machine with the GPU. Several processes that
    attach to one model share its load. A connection that is lost is made again.

    Args:
        target: The server, ``"host:port"`` or ``"unix:PATH"``.
        model: What searches call it.
        fn: As ``evaluator`` of ``azserve.search``: a function of ``(obs, action_mask)``, a dict of arrays
            [n, ...] and bool [n, A], that returns prior logits [n, A] and values [n] from the view of the
            player to move. It is called from one thread; each row must be answered independently of the
            others. An exception fails the searches that asked.
        max_batch: Most rows of a batch.
        version: Of the weights; searches report it, and never mix versions. See ``EvaluatorServer.update``.
        in_flight: Batches that the server sends at a time: one is on its way while another is evaluated.
        name: For the server's log and its errors.
        token: What the server knows this process by; it needs the role ``evaluator``.
        tls: As for ``connect``.
        max_message: Most bytes of a message.
        keep: Versions that are kept for the searches that began with them.
        wait: Serve until Ctrl-C, or until the server refuses; else serve in the background.

    Raises:
        AuthenticationError, ForbiddenError, InvalidArgumentError: The server refuses this evaluator.
    """
    if not callable(fn):
        raise TypeError(f"fn={fn!r}; want a function of (obs, action_mask)")
    hello = models_pb2.Hello(
        model=model,
        max_batch=max_batch,
        in_flight=in_flight,
        name=name or f"{os.uname().nodename}/{os.getpid()}",
    )
    made = EvaluatorServer(lambda: channel(target, token, tls, max_message), target, hello, fn, version, keep)
    try:
        made._attached()
        if wait:
            made.wait()
    except BaseException:
        made.close()
        raise
    return made


class EvaluatorServer:
    """An attached evaluator; ``serve_evaluator`` makes one.

    Attributes:
        batches, rows: What was evaluated.
    """

    def __init__(
        self, dial: Any, target: str, hello: models_pb2.Hello, fn: Evaluator, version: int, keep: int
    ) -> None:
        self._dial, self._target, self._hello, self._keep = dial, target, hello, max(1, keep)
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards everything below
        self._fns: dict[int, Evaluator] = {version: fn}  # the newest last
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._channel: grpc.Channel | None = None
        self._cancelled: set[int] = set()
        self._error: _errors.AzserveError | None = None
        self._closed = False
        self._welcome = threading.Event()
        self.batches = self.rows = 0
        self._thread = threading.Thread(target=self._run, name="azserve-evaluator", daemon=True)
        self._thread.start()

    def update(self, fn: Evaluator, version: int) -> None:
        """Evaluate with other weights from now on; searches in progress keep theirs, as far as they are kept.

        Args:
            fn: The function with the new weights. The old one must go on to give the old answers: give a new
                closure, or a copy of the network.
            version: A number that no other weights of this model have.
        """
        with self._lock:
            self._fns.pop(version, None)
            self._fns[version] = fn
            for old in list(self._fns)[: -self._keep]:
                del self._fns[old]
            self._out.put(models_pb2.AttachRequest(weights=self._weights()))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the evaluator has ended, and return whether it has; raise why the server refused it."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive() and (end is None or time.monotonic() < end):
            self._thread.join(0.2 if end is None else min(0.2, max(0, end - time.monotonic())))
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def close(self) -> None:
        """Leave the server. A second call does nothing."""
        if os.getpid() != self._pid:  # a forked child has no part in it
            return
        with self._lock:
            self._closed = True
            made = self._channel
        self._out.put(None)
        if made is not None:
            made.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def __enter__(self) -> EvaluatorServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attached(self) -> None:
        """Wait until the server knows it for the first time."""
        while not self._welcome.wait(0.05):
            if not self._thread.is_alive():
                raise self._error or _errors.UnavailableError(f"{self._target} has ended the connection")

    def _weights(self) -> models_pb2.Weights:
        return models_pb2.Weights(versions=list(self._fns))

    def _run(self) -> None:
        """Attach, and again when the connection is lost, until close or until the server refuses."""
        pause = 0.1
        while not self._closed:
            began = time.monotonic()
            try:
                self._serve()
                why: _errors.AzserveError = _errors.UnavailableError("the server has ended the connection")
            except grpc.RpcError as e:
                why = _wire.exception(e)
            except ValueError:  # the channel was closed
                return
            if self._closed:
                return
            lost = (_errors.UnavailableError, _errors.CancelledError, _errors.OverloadedError)
            if not isinstance(why, lost) and type(why) is not _errors.AzserveError:
                self._error = why
                _log.error("evaluator of %s: %s", self._target, why)
                return
            if time.monotonic() - began > 5:
                pause = 0.1
            _log.warning("evaluator of %s: %s; trying again", self._target, why)
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, 10)

    def _serve(self) -> None:
        """Serve over one connection."""
        out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._lock:
            if self._closed:
                return
            self._channel, self._out, self._cancelled = self._dial(), out, set()
            hello = models_pb2.Hello()
            hello.CopyFrom(self._hello)
            hello.weights.CopyFrom(self._weights())
            out.put(models_pb2.AttachRequest(hello=hello))  # before an update can be
        stub = models_pb2_grpc.ModelsStub(self._channel)  # type: ignore[no-untyped-call]
        answers = stub.Attach(iter(out.get, None), wait_for_ready=True)
        todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
        worker = threading.Thread(target=self._work, args=(todo, out), name="azserve-batches", daemon=True)
        worker.start()
        try:
            for m in answers:
                if m.HasField("batch"):
                    todo.put(m.batch)
                elif m.HasField("cancel"):
                    self._cancelled.add(m.cancel.id)
                else:
                    self._welcome.set()
        finally:
            todo.put(None)
            out.put(None)
            worker.join()
            self._channel.close()

    def _work(self, todo: queue.SimpleQueue[Any], out: queue.SimpleQueue[Any]) -> None:
        """Evaluate batches in their order."""
        for batch in iter(todo.get, None):
            if batch.id in self._cancelled:
                self._cancelled.discard(batch.id)
                continue
            with self._lock:
                fn = self._fns.get(batch.version)
            if fn is None:  # the server asked before it knew
                gone = models_pb2.Failure(id=batch.id, message="these weights are gone", no_weights=True)
                out.put(models_pb2.AttachRequest(failure=gone))
                continue
            try:
                answer = models_pb2.AttachRequest(answer=self._answer(fn, batch))
            except Exception as e:  # whatever the function raises fails this batch and no other
                _log.exception("evaluator of %s: a batch failed", self._target)
                failure = models_pb2.Failure(id=batch.id, message=f"{type(e).__name__}: {e}")
                answer = models_pb2.AttachRequest(failure=failure)
            out.put(answer)

    def _answer(self, fn: Evaluator, batch: models_pb2.EvaluationBatch) -> models_pb2.Answer:
        obs = _wire.named(batch.obs)
        n = len(next(iter(obs.values())))
        actions = batch.num_actions
        if batch.HasField("action_mask"):
            mask = obs["action_mask"] = _wire.array(batch.action_mask)
        else:
            mask = np.ones((n, actions), np.bool_)
        logits, value = fn(obs, mask)
        self.batches += 1
        self.rows += n
        return models_pb2.Answer(
            id=batch.id,
            prior_logits=_wire.tensor(_arrays.float32("prior_logits", logits, (n, actions))),
            value=_wire.tensor(_arrays.float32("value", value, (n,))),
        )
