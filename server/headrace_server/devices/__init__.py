"""What a device can do beside computing: how work on it is ordered, and how numbers get there and back.

`interface` says what that is, `host` is the CPU and `cuda` a GPU as torch.cuda drives it, NVIDIA's or AMD's. Another
kind of chip is another file here.
"""
