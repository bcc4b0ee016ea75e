# What each key of the store was, from when to when, and what may be read of it.
#
# Invariants:
#  1. A state is what one change left: an object, or none (token None). Its number grows by one with
#     each change of its key; 0 is what was there before the first.
#  2. The floor of a key is the newest state that somebody is known to have: its writer was answered,
#     or a reader was shown it, through the server. A floor never sinks, and is only raised to states
#     that are certain, so that a verdict is never too strict.
#  3. Every object has a token of its own in x-amz-meta-token: also where its bytes and its ETag are
#     those of another. But a copy of a key onto itself whose first answer was lost is done twice, with
#     one token, and others may have written between: token and ETag together name a state.
#
# Life: one for each part of a run. Failure: none; the verdicts are the callers'.
#
# SPDX-License-Identifier: Apache-2.0
import threading
import time

BODIES_KEPT = 20                       # of a key; older states keep their names only


class State:
    def __init__(self, number, token, body=b"", etag=""):
        self.number, self.token, self.body, self.etag = number, token, body, etag
        self.size = len(body)
        self.since, self.until = time.monotonic(), float("inf")
        self.modified = int(time.time())


class Key:
    def __init__(self):
        self.states = [State(0, None)]
        self.states[0].since = float("-inf")
        self.floor = 0
        self.hurt = float("-inf")        # when the store last broke off an answer


class History:
    def __init__(self):
        self.lock = threading.RLock()
        self.keys = {}

    def key(self, name):
        with self.lock:
            return self.keys.setdefault(name, Key())

    def now(self, name):
        with self.lock:
            return self.key(name).states[-1]

    def change(self, name, token, body=b"", etag=""):
        """The store's: this is the key from now on."""
        with self.lock:
            k = self.key(name)
            new = State(k.states[-1].number + 1, token, body, etag)
            k.states[-1].until = new.since
            k.states.append(new)
            if len(k.states) > BODIES_KEPT:
                k.states[-BODIES_KEPT - 1].body = None
            return new

    def hurt(self, name):
        with self.lock:
            self.key(name).hurt = time.monotonic()

    def floor(self, name):
        with self.lock:
            return self.key(name).floor

    def calm(self, name, since):
        """Nothing has touched the key since then: no change, no broken answer."""
        with self.lock:
            k = self.key(name)
            return k.states[-1].since < since and k.hurt < since

    def _raise(self, k, number):
        k.floor = max(k.floor, number)

    def written(self, name, token):
        """A write was acknowledged. False: the store never had it."""
        with self.lock:
            k = self.key(name)
            for s in reversed(k.states):
                if s.token == token:
                    self._raise(k, s.number)
                    return True
            return False

    def deleted(self, name, since):
        """A delete that was asked for then was acknowledged. False: the store heard of none."""
        with self.lock:
            k = self.key(name)
            for s in k.states:
                if s.token is None and s.since >= since:
                    self._raise(k, s.number)
                    return True
            return False

    def seen(self, name, matches, floor, shown=True):
        """A reader was shown something that began when the floor was this. The state that it was, or
        None: nothing of that kind was the key's at or behind the floor."""
        with self.lock:
            k = self.key(name)
            for s in k.states:
                if s.number >= floor and matches(s):
                    if shown:
                        self._raise(k, s.number)
                    return s
            return None

    def current(self, name, matches, when):
        """Was the key's state of that kind at that moment, or later?"""
        with self.lock:
            return any(matches(s) for s in self.key(name).states if s.until >= when)

    def find(self, name, token):
        with self.lock:
            for s in reversed(self.key(name).states):
                if s.token == token:
                    return s
            return None
