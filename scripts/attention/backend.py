"""Record attention of transformers by a backend that is registered beside its others.

A module that looks up its attention by the name in its config finds the recording backend while it is captured.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from transformers import AttentionInterface

from qkv.scripts.attention.layers import plain_forward
from qkv.scripts.attention.recorder import TRACKER, Recorder, check_backend
from qkv.scripts.attention.weights import AttentionCall


class BackendName(str):
    """The name of the recording backend, equal to the recorded name, by which attention may hide keys."""

    recorded = ""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == self.recorded

    __hash__ = str.__hash__


class RecordingConfig:
    """The config of one attention module, whose backend is the recording one."""

    def __init__(self, config: Any) -> None:
        self.config, self.recorders = config, list[Recorder]()

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "config"), name)

    @property
    def _attn_implementation(self) -> str:
        name = BackendName("qkv_recording")
        name.recorded = self.config._attn_implementation or "eager"
        check_backend(name.recorded)
        return name


def attend_and_record(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, **options: Any
) -> tuple[Any, Any]:
    """Attend by the backend that the module's config names, and record."""
    check_backend(backend := module.config._attn_implementation.recorded, is_batching=options.get("cache") is not None)
    forward = plain_forward(type(module))
    names = {name: forward.__globals__.get(name) for name in forward.__code__.co_names}
    eager = next((each for name, each in names.items() if "eager" in name), None)
    attend = names["ALL_ATTENTION_FUNCTIONS"].get_interface(backend, eager)
    attended: tuple[Any, Any] = attend(module, query, key, value, attention_mask, **options)
    for recorder in () if TRACKER.is_bw else module.config.recorders:
        recorder.add(AttentionCall.of(backend, module, query, key, attention_mask, **options))
        recorder.append(recorder.joined())
    return attended


AttentionInterface.register("qkv_recording", attend_and_record)
LOCK = Lock()  # of the configs of modules, which captures in several threads exchange


@contextmanager
def recorded_by_backend(recorder: Recorder) -> Iterator[None]:
    """Let an attention module of transformers look up the recording backend in this context."""
    module = recorder.layer.module
    with LOCK:
        if not isinstance(module.config, RecordingConfig):
            module.config = RecordingConfig(module.config)
        module.config.recorders.append(recorder)
    try:
        yield
    finally:
        with LOCK:
            module.config.recorders.remove(recorder)
            if not module.config.recorders:
                module.config = module.config.config
