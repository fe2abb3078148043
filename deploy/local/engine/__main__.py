"""Command line of the stand-in engine: ``python -m deploy.local.engine``."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from aiohttp import web

from deploy.local.engine.config import EngineConfig
from deploy.local.engine.server import Engine
from deploy.local.engine.timing import Speeds
from deploy.local.engine.tokenizer import CachingTokenizer, TokenizerError, find_tokenizer_file

_ROUTES = """\
routes: /v1/chat/completions, /v1/responses, /v1/messages (and /count_tokens), /v1/embeddings, /v1/models,
/health, /metrics (vLLM's and DCGM's names), /ground-truth, /ground-truth/summary, /ground-truth/energy,
POST /control {"prompt_tokens_details": false}. Ends with SIGTERM."""


class _Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows defaults, and the list of routes as it is."""


def _parser() -> argparse.ArgumentParser:
    default, speeds = EngineConfig(), Speeds()
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local.engine",
        description='Stand-in inference engine. Prints {"port": N} on stdout when it is ready.',
        epilog=_ROUTES,
        formatter_class=_Formatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=0, help="0 takes a free port")
    add("--model", action="append", help="model name to list, repeat for more; any name is served")
    add("--block-size", type=int, default=default.block_size, help="tokens per cache block")
    add("--capacity-blocks", type=int, default=default.capacity_blocks, help="cache blocks of each model")
    add("--max-running", type=int, default=default.max_running, help="requests that run at once")
    add("--max-model-len", type=int, default=default.max_model_len, help="longest prompt and answer, tokens")
    add("--boards", type=int, default=default.boards, help="boards whose power is reported")
    add("--prefill-tok-s", type=float, default=speeds.prefill_tok_s, help="prefill rate before the speed-up")
    add("--decode-tok-s", type=float, default=speeds.decode_tok_s, help="decode rate of one request alone")
    add("--overhead-s", type=float, default=speeds.overhead_s, help="seconds before every first token")
    add(
        "--co-batching",
        type=float,
        default=speeds.co_batching,
        help="slowdown by each other decoding request",
    )
    add("--speed-up", type=float, default=speeds.speed_up, help="divides every wait")
    add("--no-prompt-tokens-details", action="store_true", help="leave cached tokens out of the usage")
    add("--tokenizer", type=Path, help="tokenizer.json; default: the one in the installed LiteLLM package")
    return parser


def _config(options: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        models=tuple(options.model) if options.model else EngineConfig().models,
        block_size=options.block_size,
        capacity_blocks=options.capacity_blocks,
        max_running=options.max_running,
        max_model_len=options.max_model_len,
        boards=options.boards,
        prompt_tokens_details=not options.no_prompt_tokens_details,
        speeds=Speeds(
            prefill_tok_s=options.prefill_tok_s,
            decode_tok_s=options.decode_tok_s,
            overhead_s=options.overhead_s,
            co_batching=options.co_batching,
            speed_up=options.speed_up,
        ),
    )


async def _serve(engine: Engine, host: str, port: int) -> int:
    """Serve until a signal; return the exit code."""
    code = 0
    stop = asyncio.Event()

    def end(with_code: int) -> None:
        nonlocal code
        code = with_code
        stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, end, 0)
    loop.add_signal_handler(signal.SIGINT, end, 130)
    runner = engine.runner()
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()
    return code


def main() -> int:
    """Run the engine until a signal.

    Returns 0 after SIGTERM, 130 after SIGINT, 2 for unusable arguments, 3 when the port cannot be taken.
    """
    options = _parser().parse_args()
    try:
        config = _config(options)
        tokenizer = CachingTokenizer(options.tokenizer or find_tokenizer_file())
        return asyncio.run(_serve(Engine(config, tokenizer), options.host, options.port))
    except (TokenizerError, ValueError, OverflowError) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"engine: cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
