"""Command line of the stand-in engine: ``python -m deploy.local.engine``."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from aiohttp import web

from deploy.local.engine.scheduler import Speeds
from deploy.local.engine.server import Engine, EngineConfig
from deploy.local.engine.tokenizer import CachingTokenizer, TokenizerError, find_tokenizer_file


def _parser() -> argparse.ArgumentParser:
    default, speeds = EngineConfig(), Speeds()
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.engine",
        description='Stand-in inference engine. Prints {"port": N} on stdout when it is ready.',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0 takes a free port")
    add("--model", action="append", help="model name to list; repeat for more")
    add("--block-size", type=int, default=default.block_size, help="tokens per cache block")
    add("--capacity-blocks", type=int, default=default.capacity_blocks, help="blocks of the KV cache")
    add("--max-running", type=int, default=default.max_running, help="requests that run at once")
    add("--max-model-len", type=int, default=default.max_model_len, help="longest prompt, tokens")
    add("--boards", type=int, default=default.boards, help="boards whose power is reported")
    add("--prefill-tok-s", type=float, default=speeds.prefill_tok_s, help="prefill rate before the speed-up")
    add("--decode-tok-s", type=float, default=speeds.decode_tok_s, help="decode rate of one request alone")
    add("--speed-up", type=float, default=speeds.speed_up, help="divides every wait")
    add("--no-prompt-tokens-details", action="store_true", help="leave cached tokens out of the usage")
    add("--tokenizer", type=Path, help="tokenizer.json; default: the one in the installed LiteLLM package")
    return parser


async def _serve(options: argparse.Namespace, tokenizer: CachingTokenizer) -> None:
    defaults = EngineConfig()
    config = EngineConfig(
        models=tuple(options.model) if options.model else defaults.models,
        block_size=options.block_size,
        capacity_blocks=options.capacity_blocks,
        max_running=options.max_running,
        max_model_len=options.max_model_len,
        boards=options.boards,
        prompt_tokens_details=not options.no_prompt_tokens_details,
        speeds=Speeds(
            prefill_tok_s=options.prefill_tok_s, decode_tok_s=options.decode_tok_s, speed_up=options.speed_up
        ),
    )
    runner = web.AppRunner(Engine(config, tokenizer).app(), handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, options.host, options.port)
        await site.start()
        print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
        stop = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        await stop.wait()
    finally:
        await runner.cleanup()


def main() -> int:
    """Run the engine until SIGTERM; 2 for unusable arguments, 3 when the port cannot be taken."""
    parser = _parser()
    options = parser.parse_args()
    if min(options.speed_up, options.prefill_tok_s, options.decode_tok_s) <= 0:
        parser.error("rates and the speed-up must be positive")
    try:
        tokenizer = CachingTokenizer(options.tokenizer or find_tokenizer_file())
        asyncio.run(_serve(options, tokenizer))
    except (TokenizerError, ValueError) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"engine: cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
