import sys

from headrace_server.main import main

if __name__ == "__main__":
    sys.exit(main())
