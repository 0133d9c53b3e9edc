"""python3 -m server: the model server as a program."""

import argparse
import asyncio
import json
import resource
import runpy
import signal
import sys

from .model_server import ModelServer


def load_rules(path):
    """The rules of a JSON file (a list, or an object with `rules`), or RULES of a Python file."""
    if path.endswith(".py"):
        return runpy.run_path(path)["RULES"]
    with open(path, encoding="utf-8") as file:
        body = json.load(file)
    return body["rules"] if isinstance(body, dict) else body


def parse_arguments(arguments):
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m server", description="A model server for tests.",
        epilog="Example: python3 -m server --port 8080 --rules rules.json")
    parser.add_argument("--port", type=int, default=0, help="0: any free one (it is printed)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--rules", metavar="FILE", help=".json, or .py that sets RULES")
    parser.add_argument("--key", action="append", help="accept only this key; may be repeated")
    parser.add_argument("--model", action="append", help="know only this model; may be repeated")
    parser.add_argument("--allow-any-field", action="store_true",
                        help="accept unknown request fields, as many local servers do")
    parser.add_argument("--no-bodies", action="store_true", help="keep no request bodies")
    return parser.parse_args(arguments)


async def serve(server):
    """Serves until SIGINT or SIGTERM."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    listener = await server.listen()
    print(json.dumps({"url": server.url, "base_url": server.base_url,
                      "anthropic_url": server.anthropic_url}), flush=True)
    await ended.wait()
    listener.close()


def main():
    """Runs the server; the first line of stdout is a JSON object with its addresses."""
    options = parse_arguments(sys.argv[1:])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        rules = load_rules(options.rules) if options.rules else ()
        server = ModelServer(
            rules, host=options.host, port=options.port, keys=options.key, models=options.model,
            allow_fields=None if options.allow_any_field else (),
            **({"max_body_bytes": 0} if options.no_bodies else {}))
    except (OSError, ValueError, KeyError) as exc:
        sys.exit(f"server: rules {options.rules}: {exc}")
    try:
        asyncio.run(serve(server))
    except OSError as exc:
        sys.exit(f"server: {exc}")


if __name__ == "__main__":
    main()
