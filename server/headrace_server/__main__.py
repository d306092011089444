import sys

from headrace_server import signals

if __name__ == "__main__":
    # First of all: the rest takes its time to import. A shard that is told to end ends well.
    signals.end_quietly(0 if sys.argv[1:2] == ["serve"] else None)
    from headrace_server.main import main

    sys.exit(main())
