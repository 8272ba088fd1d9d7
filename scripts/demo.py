"""Serve a page on which a person tries a model, or write it as the folder of a Space."""

from argparse import Namespace

from qkv.scripts.common.phases import say
from qkv.scripts.web_demo.server import demo
from qkv.scripts.web_demo.space import write_space


def run(arguments: Namespace) -> None:
    """Serve until Ctrl-C, or write the folder."""
    model = {"revision": arguments.revision, "trust_remote_code": arguments.trust_remote_code}
    if arguments.space is not None:
        write_space(arguments.source, arguments.space, **model)
        return say(f"{arguments.space} is a Space: hf upload user/name {arguments.space} --type space")
    page = demo(arguments.source, port=arguments.port, host=arguments.host, **model)
    say(f"{page.local_url} is the page of {arguments.source}; Ctrl-C ends it")
    page.block_thread()
