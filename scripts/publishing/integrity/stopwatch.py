"""Time one load of a model: run by path in a new process, with qkv or without.

Arguments: a folder, the Auto class, `installed` or `remote`, and qkv's `__init__.py` with its folder, for a checkout
that is not installed. Prints JSON: seconds from nothing to a loaded model, imports included, for either side imports
some of transformers in its own moment; seconds to load it again; and a hash of the answer.
"""

import copy
import hashlib
import importlib.util
import json
import sys
from time import perf_counter

FOLDER, AUTO_CLASS, MODE, INIT, PLACE = sys.argv[1:]


def import_qkv() -> None:
    """Import qkv as installed, or from a checkout."""
    if importlib.util.find_spec("qkv") is None:
        spec = importlib.util.spec_from_file_location("qkv", INIT, submodule_search_locations=[PLACE])
        if spec is not None and spec.loader is not None:
            sys.modules["qkv"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules["qkv"])
    importlib.import_module("qkv")


def main() -> None:
    """Import, load, run."""
    began = perf_counter()
    if MODE == "remote":
        sys.modules["qkv"] = None  # type: ignore[assignment]
    import torch
    import transformers

    loader = getattr(transformers, AUTO_CLASS)
    if MODE == "installed":
        import_qkv()
    model = loader.from_pretrained(FOLDER, trust_remote_code=MODE == "remote").eval()
    loaded = perf_counter()
    loader.from_pretrained(FOLDER, trust_remote_code=MODE == "remote")
    again = perf_counter() - loaded
    home = type(model).__module__.partition(".")[0]
    if home != {"remote": "transformers_modules", "installed": "qkv"}[MODE]:
        raise RuntimeError(f"{MODE} loading took the class from {home}")
    torch.set_num_threads(1)  # how work is divided decides the last bits
    inputs = torch.arange(8)[None] % model.config.vocab_size
    with torch.no_grad():
        # Copied, for weights lie at odd addresses in the file, which changes the last bits of matrix products.
        answer = copy.deepcopy(model)(input_ids=inputs)[0]
    digest = hashlib.sha256(answer.numpy().tobytes()).hexdigest()
    print(json.dumps({"first": loaded - began, "again": again, "answer": digest}))


if __name__ == "__main__":
    main()
