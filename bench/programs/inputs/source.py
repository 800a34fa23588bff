"""Writes a C file to the standard output: a given number of tables and functions, each with loops, a switch and calls."""

import random
import sys


def function(number, rng):
    lines = [f"__attribute__((noinline)) static unsigned f{number}(unsigned a, unsigned b, const unsigned *t) {{",
             f"    unsigned s = a ^ {rng.getrandbits(31)}u, i;",
             f"    for (i = b & {rng.randrange(3, 63)}; i < {rng.randrange(64, 900)}; i += {rng.randrange(1, 5)})",
             f"        s = s * {rng.getrandbits(20) | 1}u + t[i & 1023] + t{number}[s & 1023].b;",
             f"    switch ((s >> {rng.randrange(20)}) & 7) {{"]
    for case in range(6):
        lines.append(f"    case {case}: s += t[(s + {rng.getrandbits(10)}u) & 1023] ^ (i << {case}); break;")
    lines.append(f"    default: s ^= a + {rng.getrandbits(16)}u; }}")
    if number:
        other = rng.randrange(max(0, number - 40), number)
        lines.append(f"    if (s & {1 << rng.randrange(8)}) s += f{other}(s, a, t);")
    return "\n".join([*lines, "    return s;", "}", ""])


def table(number, rng):
    rows = ", ".join(f"{{{rng.getrandbits(30)}u, {rng.getrandbits(30)}u, {rng.getrandbits(8)}}}" for _ in range(1024))
    return f"static const struct row {{ unsigned a, b; char c; }} t{number}[1024] = {{ {rows} }};"


def main():
    count = int(sys.argv[1])
    rng = random.Random(3)
    for number in range(count):
        text = table(number, rng)
        print(text if number == 0 else text.replace("struct row { unsigned a, b; char c; }", "struct row"))
        print(function(number, rng))
    names = ", ".join(f"f{number}" for number in range(count))
    print(f"unsigned (*const all[])(unsigned, unsigned, const unsigned *) = {{ {names} }};")


main()
