"""Serve the committed dashboards on this machine: ``python -m dashboards.preview --prometheus URL``."""

from __future__ import annotations

import argparse
import asyncio
import sys

from aiohttp import web

from dashboards.preview.bundle import bundle
from dashboards.preview.server import Server, Sources, listen
from deploy.local.process import StackError

EXIT_DEPENDENCY = 3


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.preview", description=__doc__)
    parser.add_argument("--prometheus", default="", metavar="URL", help="address of a Prometheus")
    parser.add_argument("--postgres", default="", metavar="URL", help="database with the exported tables")
    parser.add_argument("--scrape-interval", type=float, default=15, metavar="SECONDS")
    parser.add_argument("--port", type=int, default=3000, help="0 takes a free one (default: 3000)")
    parser.add_argument(
        "--prepare", action="store_true", help="install and build what is missing, serve nothing"
    )
    options = parser.parse_args(arguments)
    try:
        built = bundle(lambda step: print(step, file=sys.stderr, flush=True))
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_DEPENDENCY
    if options.prepare:
        return 0
    sources = Sources(options.prometheus, options.postgres, options.scrape_interval)
    with listen("127.0.0.1", options.port) as place:
        print(f"http://127.0.0.1:{place.getsockname()[1]}/", flush=True)
        web.run_app(
            Server(built, sources).application(), sock=place, print=None, loop=asyncio.new_event_loop()
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
