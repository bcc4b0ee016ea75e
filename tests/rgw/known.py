# Where the server under test answers otherwise than Ceph RGW 16.2.15 does to the requests of the
# suite, and by which rule of S3. Reads of objects that are there have a table of their own, in
# deviations.py; this one is asked first.
#
# The table is complete: a difference that no row explains fails the case, and a row that never
# applied fails the suite.
#
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import types

import deviations
from record import differences


def becomes(status, code):
    """The answer is this error."""
    def change(step):
        return dataclasses.replace(step, status=status, code=code, fields={}, document=None,
                                   case=None)
    return change


# (name, the rule, applies(group, step), change(step))
TABLE = [
]


class Known:
    def __init__(self):
        self.applied = {row[0]: 0 for row in TABLE}
        self.objects = deviations.Table()

    def problems(self, group, direct, through):
        """What is wrong with a step through the server, given the direct one."""
        rows = [row for row in TABLE if row[2](group, direct)]
        expected = direct
        for name, _, _, change in rows:
            self.applied[name] += 1
            expected = change(expected)
        if rows or not direct.case or not direct.plain or direct.plain.status != 200:
            return differences(expected, through)
        return self._object_problems(direct, through)

    def _object_problems(self, direct, through):
        plain = direct.plain
        item = types.SimpleNamespace(size=len(plain.body), key="",
                                     part=int("-" in plain.fields["etag"]))
        e = self.objects.expect(direct.case, item, direct, plain)
        return deviations.compare(direct.case, item, e, through, plain.body)

    def counts(self):
        return {**self.applied, **self.objects.applied}
