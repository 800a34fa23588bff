"""Writes a stream for `git fast-import`: versions of text files of a given size, each slightly changed from the previous one."""

import random
import sys


def main():
    objects, size = int(sys.argv[1]), int(sys.argv[2])
    rng, out = random.Random(16), sys.stdout.buffer
    files = 8
    texts = [[f"{rng.getrandbits(96):024x} {rng.getrandbits(96):024x}" for _ in range(size // 50)] for _ in range(files)]
    for number in range(objects):
        text = texts[number % files]
        for _ in range(len(text) // 200):
            text[rng.randrange(len(text))] = f"{rng.getrandbits(96):024x} {rng.getrandbits(96):024x}"
        content = ("\n".join(text) + "\n").encode()
        message = f"version {number}".encode()
        out.write(b"commit refs/heads/main\ncommitter A <a@example.org> %d +0000\ndata %d\n%s\n"
                  % (1700000000 + number, len(message), message))
        out.write(b"M 100644 inline file%d\ndata %d\n%s\n" % (number % files, len(content), content))


main()
