"""Runs a command under a container engine's seccomp profile: seccomp.py PROFILE COMMAND...

So that conf/seccomp.json can be tried without a container engine; needs libseccomp2. SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import json
import os
import sys

ALLOW = 0x7FFF0000
COMPARE = {"SCMP_CMP_NE": 1, "SCMP_CMP_LT": 2, "SCMP_CMP_LE": 3, "SCMP_CMP_EQ": 4, "SCMP_CMP_GE": 5, "SCMP_CMP_GT": 6,
           "SCMP_CMP_MASKED_EQ": 7}


class Argument(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def action(row, default_errno=1):
    word = row["action"] if "action" in row else row["defaultAction"]
    errno = row.get("errnoRet", row.get("defaultErrnoRet", default_errno))
    return {"SCMP_ACT_ALLOW": ALLOW, "SCMP_ACT_ERRNO": 0x00050000 | errno}[word]


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        profile = json.load(f)
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(action(profile)))
    for row in profile["syscalls"]:
        arguments = [Argument(a["index"], COMPARE[a["op"]], a["value"], a.get("valueTwo", 0)) for a in row.get("args", ())]
        array = (Argument * max(1, len(arguments)))(*arguments)
        for name in row["names"]:
            number = lib.seccomp_syscall_resolve_name(name.encode())
            if number == -1:
                sys.exit(f"{sys.argv[1]}: there is no system call {name}")
            error = lib.seccomp_rule_add_array(context, action(row), number, len(arguments), array)
            if error != 0 and number > 0:       # negative: a call of other architectures
                sys.exit(f"{sys.argv[1]}: {name}: {os.strerror(-error)}")
    if lib.seccomp_load(context) != 0:
        sys.exit("the profile cannot be loaded")
    os.execvp(sys.argv[2], sys.argv[2:])


main()
