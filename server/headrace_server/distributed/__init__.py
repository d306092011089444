"""Several ranks that hold one model together: how they find each other, add up and pass on tensors, agree on what comes
next, and notice that one of them is gone. What each holds is `models/split.py`."""
