"""`python -m headrace_server.profile`: where a step's time goes on a CPU, beside what the machine could do at best.

Each shape is a batch of real steps, from the bytes of a Decode or Prefill message to the bytes of its answer, in this
process: what is missing of a served step is the socket and two changes of thread. docs/performance.md says how to read
what is printed.

`shapes` says what can be measured, `steps` makes the messages, `floors` says what a step must read and multiply,
`machine` how fast that could be, `measure` runs and times, `memory` counts, `report` prints.
"""
