"""Generates headrace_server/pb from proto/shard.proto. Does nothing when the output is newer than its sources.

The proto file is given a virtual path inside the package, so that the generated modules import each other as
`headrace_server.pb.…` instead of as top-level names.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROTO = HERE.parent / "proto" / "shard.proto"
OUTPUT = HERE / "headrace_server" / "pb"
GENERATED = [OUTPUT / name for name in ("__init__.py", "shard_pb2.py", "shard_pb2.pyi", "shard_pb2_grpc.py")]


def is_up_to_date() -> bool:
    if not all(path.exists() for path in GENERATED):
        return False
    newest_source = max(path.stat().st_mtime for path in (PROTO, Path(__file__)))
    return min(path.stat().st_mtime for path in GENERATED) >= newest_source


def generate() -> int:
    from grpc_tools import protoc

    OUTPUT.mkdir(exist_ok=True)
    status = protoc.main(
        [
            "protoc",
            f"--proto_path=headrace_server/pb={PROTO.parent}",
            f"--python_out={HERE}",
            f"--pyi_out={HERE}",
            f"--grpc_python_out={HERE}",
            "headrace_server/pb/shard.proto",
        ]
    )
    if status == 0:
        (OUTPUT / "__init__.py").write_text('"""Generated from proto/shard.proto by generate_pb.py."""\n')
    return status


if __name__ == "__main__":
    sys.exit(0 if is_up_to_date() else generate())
