"""`python -m sandbox.apiserver --port P [--kubeconfig FILE]`: serve until interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from sandbox.apiserver.server import ApiServer


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sandbox.apiserver", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes any free one (default)")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig file that points at the server")
    options = parser.parse_args(arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    server = ApiServer(options.port)
    try:
        server.start()
    except OSError as error:
        print(f"cannot serve on 127.0.0.1:{options.port}: {error}", file=sys.stderr)
        return 1
    if options.kubeconfig is not None:
        options.kubeconfig.write_text(server.kubeconfig())
    print(server.url, flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
