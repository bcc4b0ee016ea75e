# The list of cases: each file cases_*.py adds its own with case() or add().
#
# SPDX-License-Identifier: Apache-2.0
import hashlib

LIST = []
KIB, MIB = 1 << 10, 1 << 20


def add(group, name, function, through="through"):
    """through: the server that judges clients by their keys, or "open", which lets anybody read."""
    LIST.append((group, name, function, through))


def case(group, name, through="through"):
    def keep(function):
        add(group, name, function, through)
        return function
    return keep


def data(size, seed=""):
    return hashlib.shake_128(f"{size}:{seed}".encode()).digest(size)
