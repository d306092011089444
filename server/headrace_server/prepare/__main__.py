"""`python -m headrace_server.prepare`."""

import sys

from headrace_server.prepare.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
