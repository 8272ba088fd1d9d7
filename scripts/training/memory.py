"""Answer a batch that does not fit into memory with the fields that take the same step in less."""

from collections.abc import Iterator
from contextlib import contextmanager

from qkv.scripts.training.loop import Loop

# In the messages of torch's allocators, whose errors on a CPU have no class, and of C++.
OUT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory", "not enough memory", "std::bad_alloc")


@contextmanager
def out_of_memory_explained(loop: Loop) -> Iterator[None]:
    """Raise RuntimeError that names a remedy where the block finds no memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        optimization = loop.recipe.optimization
        raise RuntimeError(
            f"batch_size={optimization.batch_size} with accumulate={optimization.accumulate} found no memory on "
            f"{loop.accelerator.device} after step {loop.done}; {remedy(loop)}"
        ) from error


def remedy(loop: Loop) -> str:
    """Return the fields that take the same step in less memory."""
    if loop.task.in_batch_negatives:
        return "set model.embedding_chunk_size=16, which gives the loss of the whole batch, some pairs at a time"
    now, examples = loop.recipe.optimization.accumulate, loop.loader.share.size * loop.recipe.optimization.accumulate
    parts = next((parts for parts in range(now + 1, examples + 1) if examples % parts == 0), None)
    if parts is not None:
        return f"accumulate={parts} takes the same step in parts of {examples // parts} examples, to the same result"
    return "try gradient_checkpointing=true, then shorter texts (text.length), smaller images or a smaller model"
