"""What processes that talk over gloo import, once for all of them: `multiprocessing` copies one that has done so."""

import transformers_source

import qkv  # noqa: F401  Auto classes know its models

transformers_source.load_tests()
transformers_source.load_fsdp()
