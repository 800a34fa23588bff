# Runs bchlib, the Linux kernel's BCH, for `deepram bench ecc --peer`. Arguments: a file with codewords, their number,
# bytes of data, m, t, primitive polynomial, repeats, seconds of each measurement.
# The file holds for each codeword its data and parity, then data and parity with t wrong bits.
# Prints one JSON object: whether all parities and corrections are equal, and seconds a codeword for each repeat. The time
# of a call without data is subtracted, because a program in C would not have it.
import json
import sys
import time

import bchlib

path, count, size, m, t, polynomial, repeats = sys.argv[1], *map(int, sys.argv[2:8])
seconds = float(sys.argv[8])
code = bchlib.BCH(t, polynomial, m)
parity = code.ecc_bytes
with open(path, "rb") as file:
    contents = file.read()
length = size + parity
assert len(contents) == 2 * count * length, "the file has another length than expected"
parts = [contents[at : at + length] for at in range(0, len(contents), length)]
clean = [(part[:size], part[size:]) for part in parts[0::2]]
wrong = [(part[:size], part[size:]) for part in parts[1::2]]

equal = all(bytes(code.encode(data)) == ecc for data, ecc in clean)
for (sent, sent_ecc), (data, ecc) in zip(clean, wrong):
    data, ecc = bytearray(data), bytearray(ecc)
    equal = equal and code.decode(data, ecc) == t
    code.correct(data, ecc)
    equal = equal and data == sent and ecc == sent_ecc


def measure(call, arguments):
    start = time.perf_counter()
    calls = 0
    while True:
        for argument in arguments:
            call(*argument)
        calls += len(arguments)
        passed = time.perf_counter() - start
        if passed >= seconds:
            return passed / calls


overhead = min(measure(code.encode, [(b"",)] * count) for _ in range(repeats))
runs = {"encode": [], "clean": [], "errors": []}
for _ in range(repeats):
    runs["encode"].append(measure(code.encode, [(data,) for data, _ in clean]) - overhead)
    runs["clean"].append(measure(code.decode, clean) - overhead)
    runs["errors"].append(measure(code.decode, wrong) - overhead)
print(json.dumps({"equal": equal, **runs}))
