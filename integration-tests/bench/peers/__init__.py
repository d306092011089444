"""The servers that are measured: one file each says how it is installed and started, and what it cannot do.

peer                what a peer is
environment         virtual environments and what stops one from being made
process             a server's process: started, watched until it serves, ended
headrace            this repository
vllm                vLLM's build for CPUs
llama_cpp           llama.cpp's server
transformers_static, static_server
                    transformers' generate in static batches, and the small server around it
"""

from bench.peers.headrace import Headrace
from bench.peers.llama_cpp import LlamaCpp
from bench.peers.peer import Peer
from bench.peers.transformers_static import TransformersStatic
from bench.peers.vllm import Vllm

# Headrace is measured against the others; in this order they are columns of the table.
PEERS: dict[str, Peer] = {peer.name: peer for peer in (Headrace(), Vllm(), LlamaCpp(), TransformersStatic())}
